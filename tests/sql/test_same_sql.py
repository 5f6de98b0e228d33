"""DuckDB reads a planned statement as what was written: the kinds of SQL that a parser could change."""

from __future__ import annotations

import json

import duckdb
import pytest
import sqlglot

import semops
from semops.planner.sql_calls import Unplanned, sql_of
from semops.planner.sql_dialect import DIALECT
from semops.planner.sql_options import with_struct_options
from semops.planner.sql_same import canonical
from semops.testing import replay

F = "sem_filter('{a} ok', text)"


def says(operator, instruction, row):
    return f"<{row['a']}>" if operator == "sem_map" else "x" not in str(row["a"])


@pytest.fixture
def con():
    con = semops.attach()
    con.execute("CREATE TABLE t(id INT, text VARCHAR, j JSON); CREATE SEQUENCE s")
    con.execute(
        """INSERT INTO t SELECT i, 'One ' || i, '{"a": {"b": 1}, "a.b": "r", "x y": [1, 2]}' FROM range(6) r(i)"""
    )
    with replay(says):
        yield con


EXPRESSIONS = [
    "j->'a.b'", "j->>'a.b'", "j->>'$.a.b'", "j->'a' || 'b'", "j->'x y'->0", "json_extract(j, 'a.b')",
    "j->>'a.b' = 'r' AND id > 1", "NOT j->>'a' = 'b'", "j->'a'->>'b' || 'c'", "json_extract_string(j, text)",
    "regexp_replace(text, 'ONE', 'x', lower('GI'))", "regexp_extract(text, '(ONE)', 1, lower('I'))",
    "jaro_winkler_similarity(text, 'one', 0.9)", "reduce([1, id], lambda x, y: x + y, 100)",
    "date_trunc(CASE WHEN id > 3 THEN 'month' ELSE 'year' END, DATE '2020-02-15')",
    "date_diff(lower('DAY'), DATE '2020-01-01', DATE '2020-02-15')", "decode('\\xA0'::BLOB, 'replace')",
    ".5", "0.5", "1_000", "id IN [1, 2]", "2 ** 3 ** 2", "(-id)::VARCHAR", "INTERVAL '2 weeks'", "INTERVAL 3 DAY",
    "id::DECIMAL", "text::VARCHAR(3)", "if(id > 3, 'a', 'b')", "id IS DISTINCT FROM 3", "text SIMILAR TO 'O.*'",
    "extract(dow FROM DATE '2020-02-15')", "lag(text IGNORE NULLS) OVER (ORDER BY id)", "position('e' IN text)",
]  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_beside_a_call_keeps_its_value_and_type(con, expression):
    sql = f"SELECT id, {expression} AS e FROM t WHERE {F} AND id < 5 ORDER BY id"
    plain, found = con.connection.sql(sql), con.sql(sql)
    assert (found.columns, found.types) == (plain.columns, plain.types)
    assert found.fetchall() == plain.fetchall()
    con.execute(f"CREATE TABLE made AS {sql}")
    assert con.table("made").types == plain.types
    assert con.table("made").fetchall() == plain.fetchall()


def test_every_function_keeps_its_arguments(con):
    """No function of DuckDB's is renamed into another or loses an argument on the way."""
    functions = con.connection.sql(
        "SELECT DISTINCT function_name, len(parameters) FROM duckdb_functions() "
        "WHERE regexp_full_match(function_name, '[a-z_0-9]+') AND len(parameters) < 9"
    ).fetchall()
    assert len(functions) > 900
    for name, count in functions:
        text = f"SELECT {name}({', '.join(f'a{n}' for n in range(count))}) FROM t"
        try:
            written = sql_of(sqlglot.parse_one(text, read=DIALECT))
        except (sqlglot.errors.SqlglotError, Unplanned):
            continue  # runs as functions
        query = "SELECT json_serialize_sql($q::VARCHAR)"
        trees = [
            json.loads(con.connection.sql(query, params={"q": q}).fetchall()[0][0])
            for q in (text, written)
        ]
        if not any(tree.get("error") for tree in trees):  # that runs as functions, too
            assert canonical(trees[0]) == canonical(trees[1]), written


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO made SELECT id, text FROM t WHERE {F} AND id IN [1, 2]",
        "INSERT INTO made (id, text) (SELECT id, text FROM t WHERE {F}) ON CONFLICT DO NOTHING",
        "INSERT INTO made FROM (SELECT id, text FROM t WHERE {F} AND id > (j->'x y'->>0)::INT)",
        "WITH c AS (SELECT * FROM t WHERE {F}) INSERT INTO made SELECT id, text FROM c",
        "INSERT INTO made BY NAME SELECT text, id FROM t WHERE {F} RETURNING id",
    ],
)
def test_statements_that_write(con, sql):
    found = []
    for side in (con.connection, con):
        side.execute("CREATE OR REPLACE TABLE made (id INT PRIMARY KEY, text VARCHAR)")
        side.execute(sql.replace("{F}", F))
        found.append(sorted(side.sql("FROM made").fetchall()))
    assert found[0] == found[1] != []


PARAMETERS = [
    ("id < $n", {"n": 3, "more": 4}),
    ("id < 5", {"n": 3}),
    ("id < ?", [3, 4]),
    ("id < 5", [3]),
    ("id < $2", [1, 2]),
    ("id < $n", {}),
    ("id < ?", None),
    ("id < ?", {"a": 3}),
    ("id < ?", 3),
]


@pytest.mark.parametrize("head", ["", "CREATE TABLE made AS "])
@pytest.mark.parametrize(("condition", "values"), PARAMETERS)
def test_parameters_that_do_not_match_are_duckdb_s_error(con, head, condition, values):
    sql = f"{head}SELECT id FROM t WHERE {F} AND {condition}"
    errors = []
    for side in (con.connection, con):
        with pytest.raises(duckdb.Error) as caught:
            side.execute(sql, values)
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


def test_columns_are_called_as_duckdb_calls_them_with_parameters(con):
    sql = f"SELECT id + ?, ? FROM t WHERE {F}"
    assert con.sql(sql, params=[1, 2]).columns == con.connection.sql(sql, params=[1, 2]).columns


@pytest.mark.parametrize("view", [False, True])
def test_planning_advances_no_sequence(con, view):
    con.execute("CREATE VIEW v AS SELECT nextval('s') AS n, * FROM t")
    sql = f"SELECT n, id FROM v WHERE {F}" if view else f"SELECT nextval('s'), id FROM t WHERE {F}"
    semops.explain_sql(con, sql)
    assert con.sql(sql).fetchall() == [(n + 1, n) for n in range(6)]


def test_named_options_are_a_struct_wherever_the_call_stands(con):
    con.execute(
        f"UPDATE t SET text = sem_map('{{a}}', text, max_tokens := 9) WHERE {F} AND id IN [1]"
    )
    assert con.sql("SELECT text FROM t WHERE id = 1").fetchall() == [("<One 1>",)]
    text = "SELECT sem_map('{x} := ,)', f(a, (b)), stop := ['a', ')'], max_tokens => sem_map('{y}', y, z := 1))"
    assert with_struct_options(text) == (
        "SELECT sem_map('{x} := ,)', f(a, (b)), {'stop': ['a', ')'], "
        "'max_tokens': sem_map('{y}', y, {'z': 1})})"
    )
