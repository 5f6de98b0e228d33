"""Without pins: prefixes that are lost behind the ledger's back shrink the budget, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from row_program import Driver, Op, RowProgram, rows
from trajectories import FILTER, JOIN, MAP, slow, two_stages

from semops.engine import feedback
from semops.engine.feedback import HitFeedback
from semops.engine.ledger import Ledger

CONTROLLERS = ["demand", "kalypso", "static:3:7"]


def full_budget(driver: Driver) -> int:
    return Ledger(driver.backend.capabilities.kv_tokens, 16).budget


def losing(driver: Driver, upto_turn: int = 10_000) -> None:
    """Let the server evict every block that nobody uses, before each step of the first turns."""
    turns = 0

    def evict() -> None:
        nonlocal turns
        turns += 1
        if turns <= upto_turn:
            driver.backend._pool._free.clear()

    driver.before_step = evict


def results(controller: str = "demand", *, evicts: bool, pinning: str = "virtual") -> Any:
    driver = Driver(slow(M=0.02), controller=controller, pinning=pinning, kv_tokens=4_096)
    if evicts:
        losing(driver)
    program, tuples = two_stages(fan_out=6)
    run = driver.add(program, tuples)
    driver.finish()
    return driver, run, program.results


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_server_that_evicts_behind_our_back_changes_no_row_and_shrinks_the_budget(
    controller: str,
) -> None:
    driver, run, found = results(controller, evicts=True)
    _, _, expected = results(controller, evicts=False)
    assert found == expected
    assert run.query.counts["J"].cached_tokens < 0.9 * run.query.counts["J"].rows * 96
    assert driver.scheduler.feedback.share < 0.8
    assert driver.scheduler.events.shrunk > 3
    assert driver.scheduler.events.deadlocks == 0


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_hits_leave_the_budget_alone(controller: str) -> None:
    driver, _, _ = results(controller, evicts=False)
    assert driver.scheduler.feedback.share == 1.0
    assert driver.scheduler.ledger.budget == full_budget(driver)


def test_with_explicit_pins_nothing_is_expected() -> None:
    driver, run, _ = results(evicts=True, pinning="auto")
    assert driver.scheduler.feedback.share == 1.0
    counts = run.query.counts["J"]
    assert counts.cached_tokens >= counts.calls * 96


def test_a_prefix_that_no_earlier_request_computed_is_not_missed() -> None:
    driver = Driver(slow(), pinning="virtual", kv_tokens=4_096, max_running=1)
    program = RowProgram([[Op("L", "local")], [JOIN]], [rows(3, 16, 500)])
    run = driver.add(program, rows(10, 96))
    driver.finish()
    assert run.query.counts["J"].cached_tokens < run.query.counts["J"].prompt_tokens
    assert driver.scheduler.feedback.ratio == 1.0


def test_what_is_reserved_is_never_cut_into() -> None:
    driver = Driver(slow(J=0.1), pinning="virtual", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=6)
    driver.add(program, tuples)
    for _ in range(8):
        driver.turn()
    ledger = driver.scheduler.ledger
    used = ledger.used
    assert used > full_budget(driver) * feedback.FLOOR
    driver.scheduler.feedback.share = feedback.FLOOR
    driver.scheduler.feedback.apply()
    assert ledger.budget == used
    driver.finish()
    driver.scheduler.feedback.apply()
    assert ledger.budget < used


def test_the_budget_has_a_floor_and_comes_back_slowly() -> None:
    back = HitFeedback(Ledger(3_200, 16))
    for _ in range(200):
        back.observe(0, 64)
    assert back.share == feedback.FLOOR
    for _ in range(feedback.GOOD_CHILDREN):
        back.observe(64, 64)
    assert back.share == pytest.approx(feedback.FLOOR + feedback.GROW)
    for _ in range(feedback.GOOD_CHILDREN * 60):
        back.observe(64, 64)
    assert back.share == 1.0


@pytest.mark.parametrize("pinning", ["auto", "virtual"])
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_queries_at_the_same_time_give_what_they_give_alone(controller: str, pinning: str) -> None:
    alone = [results(controller, evicts=False)[2] for _ in range(2)]
    driver = Driver(slow(M=0.02), controller=controller, pinning=pinning, kv_tokens=2_048)
    programs = [two_stages(fan_out=6) for _ in range(2)]
    for program, tuples in programs:
        driver.add(program, tuples)
        for _ in range(5):
            driver.turn()
    third = RowProgram([[FILTER], [JOIN], [MAP]], [rows(2, 16, 500), rows(2, 16, 600)])
    driver.add(third, rows(6, 64, 700))
    driver.finish()
    assert [program.results for program, _ in programs] == alone
    assert driver.scheduler.events.deadlocks == 0


@pytest.mark.parametrize("pinning", ["auto", "virtual"])
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_memory_that_others_pin_slows_a_query_down_but_changes_no_row(
    controller: str, pinning: str
) -> None:
    _, _, expected = results(controller, evicts=False)
    driver = Driver(slow(M=0.02), controller=controller, pinning=pinning, kv_tokens=4_096)
    pool = driver.backend._pool
    foreign = list(range(-1, -129, -1))  # half of the blocks
    assert pool.acquire(foreign, 0)
    driver.fits = False
    program, tuples = two_stages(fan_out=6)
    run = driver.add(program, tuples)
    for _ in range(3_000):
        if run.ended:
            break
        driver.turn()
    pool.release(foreign, 0)
    assert run.ended == [None]
    assert program.results == expected
    driver.check_released()
