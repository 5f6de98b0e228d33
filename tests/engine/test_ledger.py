"""Reservations, and the admission that keeps them below the budget."""

from __future__ import annotations

import pytest
from row_program import Driver, Op, RowProgram, rows

from semops.engine.ledger import HEADROOM, Ledger


@pytest.mark.parametrize("block_tokens", [1, 16, 32])
@pytest.mark.parametrize("kv_tokens", [32, 1_000, 65_536])
def test_the_budget_is_whole_blocks_below_the_physical_memory(
    kv_tokens: int, block_tokens: int
) -> None:
    ledger = Ledger(kv_tokens, block_tokens)
    assert ledger.budget % block_tokens == 0
    assert block_tokens <= ledger.budget <= max(kv_tokens * HEADROOM, block_tokens)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_reservations_are_whole_blocks(tokens: int, blocks: int) -> None:
    assert Ledger(1_024, 16).rounded(tokens) == blocks * 16


def held() -> Driver:
    driver = Driver(lambda *_: True, kv_tokens=1_024)
    program = RowProgram([[Op("F"), Op("L", "local")]])
    run = driver.add(program, rows(1, 64))
    while not run.local:
        driver.scheduler.turn()
    return driver


def test_the_books_balance() -> None:
    driver = held()
    ledger, query = driver.scheduler.ledger, driver.runs[0].query
    (task,) = query.live
    assert ledger.used == query.used == task.reserved == 80
    ledger.set_reserved(task, 17)
    assert ledger.used == query.used == task.reserved == 32
    ledger.check_integrity([query])


@pytest.mark.parametrize("what", ["task", "query", "ledger"])
def test_a_leak_is_found(what: str) -> None:
    driver = held()
    ledger, query = driver.scheduler.ledger, driver.runs[0].query
    if what == "task":
        next(iter(query.live)).reserved += 16
    elif what == "query":
        query.used += 16
    else:
        ledger.used += 16
    with pytest.raises(AssertionError, match="hold"):
        ledger.check_integrity([query])


def test_what_a_task_retains_for_its_children_is_reserved_before_it_starts() -> None:
    """A stage without steps needs nothing itself, but its prefix stays cached for the children."""
    driver = Driver(lambda *_: True, kv_tokens=1_024, max_running=1)
    run = driver.add(RowProgram([[], [Op("J")]], [rows(4, 16, 100)]), rows(30, 64))
    most = 0
    while not run.ended:
        driver.turn()
        most = max(most, driver.scheduler.ledger.used)
    assert 0 < most <= driver.scheduler.ledger.budget
