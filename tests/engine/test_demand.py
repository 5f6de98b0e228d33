"""How many tuples may be in flight for what the consumer has asked so far."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from row_program import Clock

from semops.engine.demand import PATIENCE_S, READ_AHEAD, START, Demand


def test_the_window_starts_small_and_doubles_with_use() -> None:
    demand = Demand()
    assert demand.allows(START - 1, 0)
    assert not demand.allows(START, 0)
    demand.took(16)
    assert demand.allows(15, 0)
    assert not demand.allows(16, 0)
    demand.done = 100
    assert demand.allows(49, 0)
    assert not demand.allows(50, 0)


def test_the_window_has_an_end() -> None:
    demand = Demand()
    demand.took(1_000_000)
    assert demand.allows(READ_AHEAD - 1, 0)
    assert not demand.allows(READ_AHEAD, 0)


def test_rows_that_nobody_takes_fill_the_window() -> None:
    demand = Demand()
    assert demand.allows(0, START - 1)
    assert not demand.allows(0, START)


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_a_limit_only_ever_narrows(wanted: int, taken: int, active: int, ready: int) -> None:
    limited, free = Demand(wanted), Demand()
    limited.took(taken)
    free.took(taken)
    if limited.allows(active, ready):
        # Rows before a tuple that are ready don't count twice under a limit.
        assert free.allows(active, 0)
        assert taken + ready < wanted


@given(st.integers(1, 50), st.integers(0, 60))
def test_with_nothing_active_the_oldest_tuple_goes_on_while_rows_are_missing(
    wanted: int, taken: int
) -> None:
    demand = Demand(wanted)
    demand.took(taken)
    assert demand.allows(0, 0) is (taken < wanted)
    assert Demand().allows(0, 0)


def test_a_limit_that_was_too_low_is_forgotten_once_the_consumer_goes_on_pulling() -> None:
    clock = Clock()
    demand = Demand(2, clock)
    demand.begin_pull()
    demand.took(2)
    demand.end_pull()
    demand.begin_pull()
    assert not demand.allows(0, 0)
    clock.sleep(PATIENCE_S + 0.1)
    demand.allows(0, 0)
    assert demand.allows(0, 0)


def test_a_consumer_that_stopped_at_its_limit_gets_nothing_more() -> None:
    clock = Clock()
    demand = Demand(2, clock)
    demand.begin_pull()
    demand.took(2)
    demand.end_pull()
    clock.sleep(10)
    assert not demand.allows(0, 0)
    assert not demand.allows(0, 0)


def test_only_the_time_between_pulls_is_idle() -> None:
    clock = Clock()
    demand = Demand(clock=clock)
    clock.sleep(1)
    assert demand.idle_s() == 1
    demand.begin_pull()
    clock.sleep(5)
    assert demand.idle_s() == 0
    demand.end_pull()
    clock.sleep(2)
    assert demand.idle_s() == 2


def test_an_abandoned_query_is_idle_until_somebody_begins_to_pull_again() -> None:
    clock = Clock()
    demand = Demand(clock=clock)
    demand.begin_pull()
    demand.abandon()
    demand.end_pull()  # of the pull that was on its way
    assert demand.abandoned
    assert demand.idle_s() == math.inf
    demand.begin_pull()
    assert not demand.abandoned
    assert demand.idle_s() == 0
    demand.end_pull()
    clock.sleep(2)
    assert demand.idle_s() == 2
