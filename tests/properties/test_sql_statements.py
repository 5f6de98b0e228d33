"""Whatever the statement: planned or not, the rows, names and types are the same."""

from __future__ import annotations

from collections import Counter

import pytest

duckdb = pytest.importorskip("duckdb")

from sql_forms import answer, loaded  # noqa: E402
from sql_random import Writer  # noqa: E402

import semops  # noqa: E402
from semops.testing import replay  # noqa: E402


@pytest.fixture(scope="module")
def con():
    return semops.attach(loaded(duckdb.connect()))


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
