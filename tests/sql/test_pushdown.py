"""What DuckDB knows above a stage reaches it: no more is asked than by plain functions in the same places."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from sql_forms import F, M, answer, loaded

import semops
from semops.testing import replay

WINDOW = 16
INNER = f"SELECT id, g, {M} AS m, {F} AS f FROM reviews"
STATEMENTS = [
    f"SELECT a.id FROM ({INNER}) a JOIN products p ON a.id = p.pid",
    f"SELECT a.id, m FROM ({INNER}) a JOIN products p ON a.id = p.pid WHERE a.id < 4",
    f"SELECT a.id, m FROM ({INNER}) a, products p WHERE a.id IN (3, 5, 7) AND p.pid = 1",
    f"SELECT id, m FROM ({INNER} UNION ALL SELECT pid, g, name, true FROM products) WHERE id < 5",
    f"SELECT * FROM (SELECT DISTINCT g, {M} AS m FROM reviews) WHERE g = 1",
    f"SELECT * FROM (SELECT g, max({M}) AS m FROM reviews GROUP BY g) WHERE g = 1",
    f"SELECT g, count(*) FROM reviews WHERE {F} GROUP BY g HAVING g = 1",
    f"SELECT g, count(*) FROM reviews WHERE {F} GROUP BY ALL HAVING g = 1 AND count(*) > 2",
    f"WITH c AS ({INNER}) SELECT id FROM c UNION ALL SELECT id FROM c WHERE id < 3",
    f"WITH c AS ({INNER}) SELECT a.id, b.m FROM c a, c b WHERE a.id < 3 AND b.id < 3",
    f"SELECT id FROM ({INNER} ORDER BY id) WHERE id < 5",
    f"SELECT id, m FROM ({INNER} ORDER BY id) WHERE id < 5 AND f",
    f"SELECT count(*) FROM ({INNER}) a, products",
    f"SELECT count(*), count(m) FROM ({INNER}) WHERE f",
    f"SELECT p.pid FROM products p LEFT JOIN ({INNER}) a ON a.id = p.pid",
    f"SELECT * FROM (SELECT id, {M}, {M} FROM reviews) WHERE id < 9",
    f"SELECT * FROM ({INNER} WHERE id < 60) a JOIN products p ON a.m = p.name OR a.m = 'a1'",
]


def fresh():
    return semops.attach(loaded(duckdb.connect()))


@pytest.mark.parametrize("sql", STATEMENTS, ids=range(len(STATEMENTS)))
def test_conditions_and_columns_go_down(sql):
    plain, con = fresh(), fresh()
    with replay(answer) as log:
        rows = plain.connection.sql(sql).fetchall()
        allowed = len(log.calls) + WINDOW
    with replay(answer) as log:
        assert Counter(con.sql(sql).fetchall()) == Counter(rows)
        assert len(log.calls) <= allowed
        assert "pipeline 1" in semops.explain_sql(con, sql)


LIMITED = [
    f"SELECT * FROM (SELECT id, review FROM reviews WHERE {F} ORDER BY id LIMIT 30) WHERE id > 20",
    f"SELECT * FROM (SELECT id, {M} AS m FROM reviews ORDER BY id DESC LIMIT 9) WHERE m > 'b'",
    f"SELECT a.id FROM (SELECT id FROM reviews WHERE {F} ORDER BY id LIMIT 5) a JOIN products p ON p.pid = a.id",
    f"SELECT count(*) FROM (SELECT id, {M} AS m FROM reviews LIMIT 7)",
]


@pytest.mark.parametrize("sql", LIMITED, ids=range(len(LIMITED)))
def test_nothing_goes_below_a_limit(sql):
    con = fresh()
    with replay(answer):
        assert Counter(con.sql(sql).fetchall()) == Counter(con.connection.sql(sql).fetchall())


CONDITIONS = [
    "v = 1.5", "v <> 1.5", "v > 1", "v IS NULL", "v IS NOT NULL", "v = 'nan'::DOUBLE", "v > 1e300", "v IN (1.5, 2)",
    "NOT v = 1.5", "v < 1 OR v IS NULL", "t = 'a'", "t > 'a'", "t IN ('a', 'ß')", "t = ''", "d = DATE '2020-01-02'",
    "d > DATE '2020-01-01'", "b", "NOT b", "b IS NULL", "z = TIMESTAMPTZ '2020-01-01 00:00:00+02'", "u.a = 1",
    "m = '<a>'", "m > '<a>'", "m IN ('<a>', '<ß>') AND v > 1", "m IS NULL", "n > 1.25", "h > 5", "i = 1",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_means_below_what_it_means_above(condition):
    con = semops.attach()
    con.execute("SET TimeZone = 'Europe/Berlin'")
    con.execute(
        "CREATE TABLE x AS SELECT * FROM (VALUES "
        "(1.5::DOUBLE, 'a', DATE '2020-01-02', true, TIMESTAMPTZ '2020-01-01 00:00:00+02', {'a': 1}, 1.25::DECIMAL(9,2)),"
        "('nan', 'ß', NULL, false, NULL, {'a': NULL}, 2.5), (NULL, NULL, DATE '2019-01-01', NULL, NULL, NULL, NULL),"
        "('inf', '', DATE '2021-01-01', true, TIMESTAMPTZ '1900-01-01 00:00:00+00', {'a': 2}, 0), "
        "(-0.0, 'A', NULL, false, NULL, {'a': 1}, -3)) q(v, t, d, b, z, u, n)"
    )
    inner = "SELECT *, 7::HUGEINT AS h, INTERVAL 1 DAY AS i, sem_map('{t}', t) AS m FROM x"
    sql = f"SELECT v, t FROM (SELECT DISTINCT * FROM ({inner})) WHERE {condition.replace('i = 1', 'i = INTERVAL 1 DAY')}"
    with replay(lambda _o, _i, row: f"<{row['t']}>"):
        plain = con.connection.sql(sql).fetchall()
        assert Counter(map(repr, con.sql(sql).fetchall())) == Counter(map(repr, plain))
