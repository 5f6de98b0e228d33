"""Planned statements give the rows that DuckDB gives with plain functions, for no more calls."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest
from sql_forms import FORMS, answer, loaded

import semops
from semops.testing import replay

WINDOW = 16


def fresh() -> duckdb.DuckDBPyConnection:
    return loaded(duckdb.connect())


@pytest.mark.parametrize(
    ("sql", "planned"), [f[1:] for f in FORMS], ids=[f"{n} {f[0]}" for n, f in enumerate(FORMS)]
)
def test_rows_are_those_of_plain_functions(sql, planned):
    plain = semops.attach(fresh())
    with replay(answer) as log:
        expected = plain.connection.sql(sql)
        rows, columns, types = expected.fetchall(), expected.columns, expected.types
        allowed = len(log.calls) + WINDOW
    con = semops.attach(fresh())
    with replay(answer) as log:
        found = con.sql(sql)
        assert found.columns == columns
        assert found.types == types
        got = found.fetchall()
        assert len(log.calls) <= allowed
        assert log.engine.scheduler.ledger.used == 0
    if "ORDER BY" in sql.rpartition(")")[2]:
        assert got == rows
    assert Counter(map(repr, got)) == Counter(map(repr, rows))
    explained = semops.explain_sql(con, sql)
    assert ("pipeline 1" in explained) == planned, explained
    assert ("as a function in DuckDB" in explained) != planned, explained
