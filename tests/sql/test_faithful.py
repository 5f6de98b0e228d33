"""What the parser or the writer of SQL would change is not changed."""

from __future__ import annotations

import warnings
from collections import Counter

import duckdb
import pytest

import semops
from semops.testing import Reply, replay

F = "sem_filter('{a} ok', text)"
M = "sem_map('{a}', text)"


def says(operator, instruction, row):
    value = str(row["a"])
    return f"<{value}>" if operator == "sem_map" else "x" not in value


def connected():
    con = semops.attach()
    con.execute("CREATE TABLE t(id INT, text VARCHAR, year INT, g VARCHAR)")
    con.execute(
        "INSERT INTO t VALUES (1,'one',2000,'a'), (2,'two',2001,'b'), (3,NULL,2002,'a'), (4,'four',NULL,'b'), "
        "(5,'fix',2003,'a'), (6,'one',1999,NULL), (7,'Ü',2004,'c'), (8,'zz',2000,'c')"
    )
    return con


STATEMENTS = [
    f"SELECT id, text FROM t WHERE {F} ORDER BY ALL LIMIT 2",
    f"SELECT * FROM t WHERE {F} ORDER BY ALL DESC LIMIT 3",
    f"SELECT text, id FROM t WHERE {F} ORDER BY ALL LIMIT 2",
    f"SELECT id, {M} AS text FROM t ORDER BY upper(text), id LIMIT 3",
    f"SELECT -id AS id, text FROM t WHERE {F} ORDER BY id+0",
    f"SELECT -id AS id, text FROM t WHERE {F} ORDER BY id+0 LIMIT 2",
    f"SELECT -id AS id, text FROM t WHERE {F} ORDER BY id LIMIT 2",
    f"SELECT id%3 AS year, id, {M} FROM t ORDER BY year+1, id",
    "SELECT t.id AS text, sem_map('{a}', t.text) AS id FROM t ORDER BY id||'x', text LIMIT 3",
    f"SELECT -id AS id FROM (SELECT id, {M} AS m FROM t) ORDER BY id+0 LIMIT 3",
    f"SELECT id, {M} AS m FROM t ORDER BY length(m), id LIMIT 3",
    f"SELECT id, {M} FROM t WHERE {F} ORDER BY id LIMIT 2.5",
    f"SELECT id, {M} FROM t WHERE {F} ORDER BY id LIMIT 2 OFFSET 1.5",
    f"SELECT id, {M} FROM t WHERE {F} AND NOT id IN [NULL, 99] ORDER BY id",
    f"SELECT id, {M} FROM t WHERE {F} AND id IN [1, 2]",
    f"SELECT id, 'in [1]' AS s FROM t WHERE {F} ORDER BY id",
]


@pytest.mark.parametrize("sql", STATEMENTS, ids=range(len(STATEMENTS)))
def test_rows_and_their_order_are_those_of_plain_functions(sql):
    con = connected()
    with replay(says):
        assert con.sql(sql).fetchall() == con.connection.sql(sql).fetchall()


@pytest.mark.parametrize("order", ["nulls_first", "nulls_last", "nulls_first_on_asc_last_on_desc"])
def test_the_session_s_order_of_nulls_holds(order):
    con = connected()
    con.execute(f"SET default_null_order = '{order}'")
    for end in ("", " NULLS LAST", " NULLS FIRST", " DESC"):
        sql = f"SELECT year, id, {M} FROM t ORDER BY year{end}, id LIMIT 2"
        with replay(says):
            assert con.sql(sql).fetchall() == con.connection.sql(sql).fetchall()


def test_a_table_without_data_asks_nothing():
    con = connected()
    with replay(says) as log:
        con.execute(f"CREATE TABLE k AS SELECT id, {M} AS m FROM t WITH NO DATA")
        assert con.sql("SELECT * FROM k").fetchall() == []
    assert not log.calls


def test_top_rows_are_those_of_the_order_whatever_finishes_first():
    con = semops.attach()
    con.execute("CREATE TABLE big AS SELECT i AS id, 'r' || i AS text FROM range(60) r(i)")
    slow = lambda _o, _i, row: Reply(True, 0.02 if row["a"].endswith("1") else 0)  # noqa: E731
    with replay(slow, max_running=4), semops.options(ordered=False):
        sql = f"SELECT id FROM big WHERE {F} ORDER BY id DESC LIMIT 10"
        assert con.sql(sql).fetchall() == [(i,) for i in range(59, 49, -1)]
        sql = f"SELECT list(id ORDER BY id) FROM (SELECT id FROM big WHERE {F} ORDER BY id LIMIT 6)"
        assert con.sql(sql).fetchall() == [([0, 1, 2, 3, 4, 5],)]
        everything = con.sql(f"SELECT id FROM big WHERE {F}").fetchall()
    assert Counter(everything) == Counter((i,) for i in range(60))


def test_options_may_be_decimal_numbers():
    con = connected()
    for options in ("min_margin := 0.2", "min_mass := 0.1", "{'min_margin': 0.2}"):
        sql = f"SELECT count(*) FROM t WHERE sem_filter('{{a}} ok', text, {options})"
        with replay(says):
            assert con.sql(sql).fetchall() == [(6,)]


@pytest.mark.parametrize(
    "given",
    [
        "CREATE TEMP MACRO bang(x) AS x || '!'",
        "CREATE TEMP SEQUENCE bang_s; CREATE TEMP MACRO bang(x) AS x || nextval('bang_s')",
        "CREATE TEMP TABLE tt AS SELECT '!' AS e; CREATE MACRO bang(x) AS x || (SELECT e FROM temp.tt)",
    ],
    ids=["macro", "sequence", "macro over a temporary table"],
)
def test_what_only_the_connection_sees_is_seen(given):
    con = connected()
    con.execute(given)
    with replay(says):
        found = con.sql("SELECT sem_map('{a}', bang(text)) AS m FROM t WHERE id = 1").fetchall()
    assert found[0][0].startswith("<one")


@pytest.mark.parametrize("name", ['te""mp', "İx", "ÄÖ", "a b"])
def test_temporary_tables_may_have_any_name(name):
    con = connected()
    con.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM t')
    with replay(says):
        assert con.sql(f'SELECT {M} FROM "{name}" WHERE id = 1').fetchall() == [("<one>",)]


def test_a_view_over_a_registered_frame_is_seen():
    import polars as pl

    con = connected()
    con.register("given", pl.DataFrame({"text": ["x1"]}))
    con.execute("CREATE TEMP VIEW pv AS SELECT * FROM given")
    with replay(says):
        assert con.sql(f"SELECT {M} FROM pv").fetchall() == [("<x1>",)]


@pytest.mark.parametrize("end", ["", " LIMIT 5", " ORDER BY id LIMIT 5"])
def test_every_statement_warns_of_its_nulls(end):
    con = connected()
    with (
        replay(lambda *_: Reply("x " * 500, cut_off=True)),
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("default")
        for number in range(2):
            con.sql(
                f"SELECT id, sem_map('{{a}} {number}', text, max_tokens := 3) FROM t{end}"
            ).fetchall()
    assert [w.category for w in seen] == [semops.SemopsWarning] * 2


def test_explain_says_what_does_not_bind():
    con = connected()
    text = semops.explain_sql(con, f"SELECT nope FROM t WHERE {F}")
    assert "nope" in text.partition("\n")[2] or "can't run" in text
    with pytest.raises(duckdb.Error, match="nope"):
        con.sql(f"SELECT nope FROM t WHERE {F}")
