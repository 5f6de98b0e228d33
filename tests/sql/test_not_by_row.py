"""Windows, aggregates and functions that make rows keep their place, under whatever name."""

from __future__ import annotations

from collections import Counter

import pytest
from sql_forms import F, M, answer, loaded

import semops
from semops.testing import replay

MADE = "CASE WHEN id > 5 THEN [id, g] END"
VALUES = {
    "row_number() OVER (ORDER BY id)": "window",
    "rank() OVER (PARTITION BY g ORDER BY id)": "window",
    "lag(id IGNORE NULLS) OVER (ORDER BY id)": "window",
    "sum(id) FILTER (id > 2) OVER (ORDER BY id)": "window",
    "numbered(id)": "window",
    f"unnest({MADE})": "rows",
    f"several({MADE})": "rows",
    f"more({MADE})": "rows",
    f"generate_subscripts({MADE}, 1)": "rows",
    f"unnest(list_transform({MADE}, lambda y: y + 1))": "rows",
    "round(geomean(id + 1), 6)": "aggregate",
    "total(id)": "aggregate",
}
INNER = f"(SELECT id, g, review, {M} AS m FROM reviews)"
FORMS = {
    "window": [
        f"SELECT * FROM (SELECT id, m, @@ AS v FROM {INNER}) WHERE id > 7",
        f"SELECT * FROM (SELECT id, {M} AS m, @@ AS v FROM reviews) WHERE m > 'b'",
        f"SELECT id, sem_map('{{v}}', @@) FROM reviews WHERE {F}",
        f"SELECT id, sem_map('{{v}}', @@), {M} FROM reviews WHERE {M} > 'b' AND id > 2 ORDER BY id LIMIT 5",
        f"SELECT @@ AS v, {M} AS m FROM reviews ORDER BY id DESC LIMIT 3",
        f"SELECT @@ AS v, {M} AS m FROM reviews QUALIFY v < 4",
    ],
    "rows": [
        f"SELECT m FROM (SELECT @@ AS v, m FROM {INNER})",
        f"SELECT m FROM (SELECT @@ AS v, {M} AS m FROM reviews) WHERE m > 'b'",
        f"SELECT @@ AS v, {M} AS m FROM reviews ORDER BY id, v LIMIT 3",
        f"SELECT count(*) FROM (SELECT @@ AS v FROM reviews WHERE {F} LIMIT 3)",
        "SELECT @@ AS v, sem_map('{v}', v) FROM reviews",
        "SELECT unnest([1, 2]), sem_map('{v}', @@) FROM reviews",
        f"SELECT pid FROM products WHERE EXISTS (SELECT @@ FROM reviews WHERE {F})",
    ],
    "aggregate": [
        f"SELECT @@ FROM reviews WHERE {F} LIMIT 1",
        "SELECT g, @@ AS v, sem_map('{m}', max(review)) FROM reviews GROUP BY g HAVING v > 0",
        f"SELECT @@ FROM {INNER} WHERE m > 'b' LIMIT 1",
        f"SELECT max(m) FROM (SELECT @@ AS v, max(m) AS m FROM {INNER}) WHERE v > 1",
    ],
}
STATEMENTS = [form.replace("@@", value) for value, kind in VALUES.items() for form in FORMS[kind]]


@pytest.fixture(scope="module")
def con():
    attached = loaded(semops.attach())
    attached.execute("CREATE MACRO numbered(x) AS row_number() OVER (ORDER BY x)")
    attached.execute("CREATE MACRO several(x) AS unnest(x)")
    attached.execute("CREATE MACRO more(x) AS several(x)")
    attached.execute("CREATE MACRO total(x) AS 2 * sum(x)")
    attached.execute("CREATE MACRO most() AS (SELECT max(pid) FROM products)")
    return attached


@pytest.mark.parametrize("sql", STATEMENTS, ids=range(len(STATEMENTS)))
def test_rows_are_those_of_plain_functions(con, sql):
    with replay(answer):
        plain = Counter(con.connection.sql(sql).fetchall())
        assert plain
        assert Counter(con.sql(sql).fetchall()) == plain


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM (SELECT id, m, @@ AS v FROM {INNER}) WHERE id > 7",
        f"SELECT id, @@ FROM reviews WHERE {F}",
        f"SELECT id, sem_map('{{v}}', @@) FROM reviews WHERE {F}",
    ],
)
@pytest.mark.parametrize("value", ["row_number() OVER (ORDER BY id)", f"unnest({MADE})", "most()"])
def test_they_are_planned_all_the_same(con, sql, value):
    plan = semops.explain_sql(con, sql.replace("@@", value))
    assert "pipeline 1" in plan
    assert "as a function" not in plan
