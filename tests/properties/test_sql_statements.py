"""Whatever the statement: planned or not, the rows, names and types are the same."""

from __future__ import annotations

from collections import Counter

import pytest

duckdb = pytest.importorskip("duckdb")

from sql_forms import answer, tables  # noqa: E402
from sql_random import Writer  # noqa: E402

import semops  # noqa: E402
from semops.testing import replay  # noqa: E402


@pytest.fixture(scope="module")
def con():
    raw = duckdb.connect()
    for name, frame in tables().items():
        raw.register("given", frame)
        raw.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        raw.unregister("given")
    return semops.attach(raw)


@pytest.mark.parametrize("seed", range(25))
def test_planned_and_plain_agree(con, seed):
    sql, ordered = Writer(seed).statement()
    with replay(answer) as log:
        expected = con.connection.sql(sql)
        names, types, rows = expected.columns, expected.types, expected.fetchall()
        found = con.sql(sql)
        assert (found.columns, found.types) == (names, types), sql
        got = found.fetchall()
        assert log.engine.scheduler.ledger.used == 0
    assert Counter(map(repr, got)) == Counter(map(repr, rows)), sql
    assert not ordered or got == rows, sql
