"""The planned connection is a DuckDB connection in everything else."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest
from sql_tables import GOOD, TOPIC, connected, says

import semops
from semops.testing import Reply, replay


@pytest.fixture
def con():
    with replay(says):
        yield connected(40)


def planned(con, sql, params=None):
    return "pipeline 1" in semops.explain_sql(con, sql, params)


AT = "SELECT * FROM mine WHERE sem_filter('{a} ok', a)"


def test_attach_opens_a_database_and_is_idempotent():
    con = semops.attach()
    assert semops.attach(con) is con
    again = semops.attach(con.connection)
    with replay(says):
        assert again.sql("SELECT sem_map('say {x}', 'a')").fetchall() == [("<a>",)]


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT id FROM t WHERE id < ? AND sem_filter(?, review) LIMIT ?", [9, "{r} ok", 4]),
        (
            "SELECT id FROM t WHERE id < $1 AND sem_filter($2, review) AND id < $1 - 4",
            [9, "{r} ok"],
        ),
        (
            "SELECT id FROM t WHERE id < $n AND sem_filter($p, review) LIMIT 4",
            {"n": 9, "p": "{r} ok"},
        ),
        (
            "SELECT id /* ? */ FROM t WHERE '?' <> ? AND id < 5 AND sem_filter(?, review)",
            ["x", "{r} ok"],
        ),
        ("SELECT id FROM t WHERE id < 5 AND sem_filter('{r} is {x}', review, ?)", ["ok"]),
    ],
)
def test_parameters(con, sql, values):
    """Each part of a statement gets its own, whatever their order in the text."""
    expected = [(0,), (1,), (2,), (4,)]
    assert con.execute(sql, values).fetchall() == expected
    assert con.sql(sql, params=values).fetchall() == expected
    assert planned(con, sql, values)


def test_parameters_keep_their_types(con):
    rows = con.execute(
        "SELECT ? AS a, ? AS b, id FROM t WHERE sem_filter('{r} ok', review) LIMIT 1", [True, None]
    ).fetchall()
    assert rows == [(True, None, 0)]


def test_python_variables_of_the_caller(con):
    mine = pl.DataFrame({"a": ["x1", "x3"]})
    assert con.sql(AT).fetchall() == [("x1",)]
    assert con.execute(AT).fetchall() == [("x1",)]
    assert con.query("SELECT count(*) FROM mine").fetchall() == [(mine.height,)]


def relation_elsewhere(con):
    mine = pl.DataFrame({"a": ["y1", "y3", "y4"]})
    assert mine.height == 3
    return con.sql(AT)


def test_a_relation_outlives_its_variables_and_runs_twice(con):
    relation = relation_elsewhere(con)
    assert relation.fetchall() == [("y1",), ("y4",)]
    assert len(relation) == 2
    assert relation.filter("a <> 'y1'").fetchall() == [("y4",)]
    assert relation.pl()["a"].to_list() == ["y1", "y4"]


def test_unknown_table_is_duckdbs_error(con):
    with pytest.raises(duckdb.CatalogException, match="mine"):
        con.sql(AT)


def test_temporary_and_registered_tables(con):
    con.execute("CREATE TEMP TABLE own AS SELECT 'a' || i AS a FROM range(5) r(i)")
    con.register("given", pl.DataFrame({"a": ["b1", "b3"]}))
    for name, expected in (("own", ["a0", "a1", "a2", "a4"]), ("given", ["b1"])):
        sql = AT.replace("mine", name)
        assert [r[0] for r in con.sql(sql).fetchall()] == expected
        assert planned(con, sql)
    both = (
        "SELECT own.a FROM own JOIN t ON own.a = 'a' || t.id WHERE sem_filter('{r} ok', t.review)"
    )
    assert sorted(con.execute(both).fetchall()) == [("a0",), ("a1",), ("a2",), ("a4",)]


def test_open_transaction_is_seen_and_rolled_back(con):
    con.begin()
    con.execute("INSERT INTO t VALUES (99, 1, 'new')")
    sql = f"SELECT id FROM t WHERE id > 37 AND {GOOD}"
    assert con.sql(sql).fetchall() == [(38,), (39,), (99,)]
    assert con.execute(sql).fetchall() == [(38,), (39,), (99,)]
    assert con.cursor().execute(sql).fetchall() == [(38,), (39,)]
    con.rollback()
    assert con.sql(sql).fetchall() == [(38,), (39,)]


def test_settings_and_schema_of_the_connection_hold_below(con):
    con.execute(
        "CREATE SCHEMA s; CREATE TABLE s.here AS SELECT TIMESTAMPTZ '2026-01-01 00:00:00Z' AS a"
    )
    con.execute("USE s; SET TimeZone = 'Asia/Tokyo'")
    sql = "SELECT sem_map('say {x}', a::VARCHAR) AS said FROM here"
    assert con.sql(sql).fetchall() == [("<2026-01-01 09:00:00+09>",)]
    assert planned(con, sql)


def test_session_variables_are_seen(con):
    con.execute("SET VARIABLE low = 37")
    sql = f"SELECT id FROM t WHERE id > getvariable('low') AND {GOOD}"
    assert con.sql(sql).fetchall() == [(38,), (39,)]


def test_statements_that_write(con):
    con.execute(f"CREATE TABLE made AS SELECT id, {TOPIC} AS topic FROM t WHERE id < 2")
    con.execute(
        f"INSERT INTO made SELECT id, {TOPIC} FROM t WHERE id = 2; INSERT INTO made (id) VALUES (7)"
    )
    con.sql(f"CREATE OR REPLACE TABLE other AS SELECT id FROM t WHERE id < 5 AND {GOOD}")
    assert con.sql("FROM made").fetchall() == [(0, "<r0>"), (1, "<r1>"), (2, "<r2>"), (7, None)]
    assert con.sql("FROM other").fetchall() == [(0,), (1,), (2,), (4,)]
    assert planned(con, f"INSERT INTO made SELECT id, {TOPIC} FROM t")


def test_statements_that_stay_with_functions(con):
    con.execute("UPDATE t SET review = sem_map('{r} again', review, max_tokens := 9) WHERE id = 1")
    con.execute("DELETE FROM t WHERE NOT sem_filter('{r} ok', review)")
    con.execute(f"CREATE VIEW v AS SELECT id, {TOPIC} AS topic FROM t WHERE id < 2")
    assert con.sql("FROM v").fetchall() == [(0, "<r0>"), (1, "<<r1>>")]
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(36,)]
    text = semops.explain_sql(
        con, "DELETE FROM t WHERE sem_filter('{r} ok', review, on_error := 'null')"
    )
    assert "a semantic call in DELETE" in text


def test_several_statements_in_one(con):
    rows = con.execute(
        f"CREATE TABLE x AS SELECT 5 AS low; SELECT id FROM t, x WHERE id < low AND {GOOD}"
    )
    assert rows.fetchall() == [(0,), (1,), (2,), (4,)]


def test_a_new_statement_takes_the_place_of_rows_not_fetched(con):
    con.execute(f"SELECT id FROM t WHERE {GOOD}")
    assert con.fetchone() == (0,)
    assert con.execute(f"SELECT id FROM t WHERE id > 37 AND {GOOD}").fetchall() == [(38,), (39,)]


def test_read_only(tmp_path):
    path = str(tmp_path / "data.db")
    connected(12, database=path).close()
    con = semops.attach(duckdb.connect(path, read_only=True))
    with replay(says):
        assert len(con.sql(f"SELECT id, {TOPIC} FROM t WHERE {GOOD}").fetchall()) == 11
        assert len(con.connection.sql(f"SELECT id FROM t WHERE {GOOD}").fetchall()) == 11


def test_the_rest_is_duckdbs(con):
    with con as same:
        assert same.execute("SELECT 1 AS a").description[0][0] == "a"
        assert same.table("t").columns == ["id", "g", "review"]
        assert same.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(duckdb.ConnectionException):
        con.sql("SELECT 1")
    with pytest.raises(AttributeError):
        _ = con.nothing_of_this_name


@pytest.mark.parametrize(
    ("sql", "error", "match"),
    [
        (
            "SELECT sem_filter('no place', review) FROM t",
            semops.TemplateError,
            "placeholders are: none",
        ),
        ("SELECT sem_filter('{a} {b}', review) FROM t", semops.TemplateError, r"\{a\}, \{b\}"),
        ("SELECT sem_filter('{a', review) FROM t", semops.TemplateError, "unmatched"),
        (
            "SELECT sem_filter('{a}', review, {'colour': 1}) FROM t",
            semops.ConfigError,
            "'colour'.*on_error",
        ),
        ("SELECT sem_map('{a}', review, max_tokens := 0) FROM t", semops.ConfigError, "max_tokens"),
        ("SELECT sem_map('{a}', review, 7) FROM t", semops.TemplateError, "struct of options"),
        (
            "SELECT sem_map('{a}', review, {'name': 'x'}) FROM t",
            semops.ConfigError,
            "no option 'name'",
        ),
        ("SELECT sem_filter(7, review) FROM t", semops.TemplateError, "takes the instruction"),
        ("SELECT sem_filter('{a}', nope) FROM t", duckdb.BinderException, "nope"),
        ("SELEC sem_filter('{a}', review)", duckdb.ParserException, "SELEC"),
    ],
)
def test_mistakes(con, sql, error, match):
    """A mistake is an error before anything runs, and names what is allowed."""
    with pytest.raises(error, match=match):
        con.sql(sql)


def test_options_by_name_and_as_struct(con):
    for options in ("answers := ['y', 'n'], on_error => 'raise'", "{'answers': ['y', 'n']}"):
        sql = f"SELECT id FROM t WHERE id < 5 AND sem_filter('{{r}} ok', review, {options})"
        assert con.sql(sql).fetchall() == [(0,), (1,), (2,), (4,)]


def test_null_argument_is_null_without_a_call():
    con = semops.attach()
    con.execute("CREATE TABLE n AS SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3, 'c3')) v(id, x)")
    sql = "SELECT id, sem_filter('{x} ok', x) AS f, sem_map('say {x}', x) AS m FROM n"
    where = "SELECT id FROM n WHERE {} ORDER BY id"
    for side in (con, con.connection):
        with replay(says) as log:
            rows = [(1, True, "<a>"), (2, None, None), (3, False, "<c3>")]
            assert side.sql(sql).fetchall() == rows
            assert len(log.calls) == 4
            call = "sem_filter('{x} ok', x)"
            assert side.sql(where.format(call)).fetchall() == [(1,)]
            assert side.sql(where.format(f"NOT {call}")).fetchall() == [(3,)]
            assert side.sql(where.format(f"{call} IS NULL")).fetchall() == [(2,)]


def undecided(operator, instruction, row):
    if row["x"] == "u":
        return None if operator == "sem_filter" else Reply("long", cut_off=True)
    return says(operator, instruction, row)


def test_what_cant_be_decided_is_null_counted_and_warned_of():
    con = semops.attach()
    con.execute("CREATE TABLE n AS SELECT * FROM (VALUES (1, 'a'), (2, 'u')) v(id, x)")
    sql = "SELECT id FROM n WHERE sem_filter('{x} ok', x)"
    with replay(undecided):
        with pytest.warns(semops.SemopsWarning, match="1 undecided"):
            rows = con.sql(sql).fetchall()
        assert rows == [(1,)]
        assert semops.last_profile().operators["sem_filter"].nulls == {"undecided": 1}
        with pytest.warns(semops.SemopsWarning, match="in DuckDB are NULL"):
            rows = con.connection.sql(f"{sql} OR sem_map('{{x}}', x) = 'long'").fetchall()
        assert rows == [(1,)]


@pytest.mark.parametrize("planned_side", [True, False])
def test_on_error_raise_ends_the_statement(planned_side):
    con = semops.attach()
    con.execute("CREATE TABLE n AS SELECT * FROM (VALUES (1, 'a'), (2, 'u')) v(id, x)")
    side = con if planned_side else con.connection
    sql = "SELECT id FROM n WHERE sem_filter('{x} ok', x, {'on_error': 'raise'})"
    with replay(undecided) as log:
        error = semops.EngineError if planned_side else duckdb.Error
        with pytest.raises(error, match="could not answer for a row: undecided"):
            side.sql(sql).fetchall()
        assert side.sql("SELECT count(*) FROM n").fetchall() == [(2,)]
        assert log.engine.scheduler.ledger.used == 0


TYPES = {
    "HUGEINT": "170141183460469231731687303715884105727",
    "UUID": "00000000-0000-0000-0000-000000000001",
    "ENUM('a', 'b')": "b",
    "INTERVAL": "3 days",
    "BIT": "101",
    "TIME": "10:00:00.5",
    "TIMESTAMP_S": "2020-01-01 10:00:00",
    "TIMESTAMP WITH TIME ZONE": "2020-01-01 10:00:00+01",
    "DECIMAL(38,3)": "1.5",
    "BLOB": "ab",
    "JSON": '{"a": 1}',
    "MAP(VARCHAR, INTEGER)": "{a=1}",
    "STRUCT(a INTEGER, b UUID[])": "{'a': 1, 'b': [00000000-0000-0000-0000-000000000001]}",
    "INTEGER[3]": "[1, 2, 3]",
}


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_comes_through(con, dtype):
    """A column that isn't asked about keeps its type and its value."""
    con.execute(
        f"CREATE TABLE typed AS SELECT $v::{dtype} AS v, 'x' AS x UNION ALL SELECT NULL, 'y'",
        {"v": TYPES[dtype]},
    )
    plain = con.connection.sql("SELECT v FROM typed")
    got = con.sql("SELECT v FROM typed WHERE sem_filter('{x} ok', x)")
    assert got.types == plain.types
    assert got.fetchall() == plain.fetchall()


@pytest.mark.parametrize("dtype", [t for t in TYPES if t not in {"BLOB", "BIT", "INTERVAL"}])
def test_prompts_are_the_same_planned_and_not(con, dtype):
    con.execute(f"CREATE TABLE typed AS SELECT $v::{dtype} AS v", {"v": TYPES[dtype]})
    seen = []
    for side in (con, con.connection):
        with replay(lambda operator, instruction, row: seen.append(dict(row)) or True):
            side.sql("SELECT sem_filter('{v} ok', v) FROM typed").fetchall()
    assert seen[0] == seen[1]
