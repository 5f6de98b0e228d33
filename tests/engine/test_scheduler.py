"""The scheduler, turned by hand on a replay backend: what it admits, keeps, retries and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from row_program import Driver, Op, RowProgram, rows

from semops.engine import bounds
from semops.engine.backends.replay import Reply
from semops.engine.plan import Decoding, Request
from semops.engine.scheduler import ABORT_AFTER_S, PARK_AFTER_S
from semops.engine.task import State

FILTER = Op("F")
MAP = Op("M", "map", max_tokens=16)
JOIN = Op("J")


def yes(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
    return "done" if operator.startswith("M") else True


def asked(driver: Driver) -> list[tuple[Any, ...]]:
    return [(call.operator, *call.row.values()) for call in driver.backend.calls]


@pytest.mark.parametrize("max_running", [1, 3])
def test_a_tuple_goes_through_its_stage_while_its_prefix_is_cached(max_running: int) -> None:
    driver = Driver(yes, max_running=max_running, kv_tokens=4_096)
    driver.add(RowProgram([[FILTER, MAP]]), rows(12, 64))
    driver.finish()
    order = asked(driver)
    for number in range(12):
        gap = order.index(("M", number)) - order.index(("F", number))
        assert gap <= max_running
    counts = driver.runs[0].query.counts["M"]
    assert counts.cached_tokens == 12 * 64


def test_children_go_before_new_parents_and_the_oldest_parent_first() -> None:
    driver = Driver(yes, max_running=1, kv_tokens=4_096)
    driver.add(RowProgram([[FILTER], [JOIN, MAP]], [rows(3, 16, 100)]), rows(4, 64))
    driver.finish()
    expected = []
    for left in range(4):
        expected.append(("F", left))
        for right in (100, 101, 102):
            expected += [("J", left, right), ("M", left, right)]
    assert asked(driver) == expected


def test_children_of_an_older_tuple_go_first_although_a_younger_one_was_ready_before() -> None:
    def first_is_slow(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
        return Reply(True, delay_s=1.0) if (operator, row["id0"]) == ("F", 0) else True

    driver = Driver(first_is_slow, max_running=2, kv_tokens=4_096)
    driver.add(RowProgram([[FILTER], [JOIN]], [rows(50, 16, 100)]), rows(3, 64))
    driver.finish()
    joined = [call[1] for call in asked(driver) if call[0] == "J"]
    started = joined.index(0)
    assert joined[started + 1 : started + 50].count(0) == 49


def test_rows_that_wait_for_an_older_tuple_do_not_keep_it_from_running() -> None:
    def first_is_slow(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
        return Reply(True, delay_s=1.0) if (operator, row["id0"]) == ("F", 0) else True

    for wanted in (None, 2):
        driver = Driver(first_is_slow, kv_tokens=16_384)
        program = RowProgram([[FILTER], [JOIN]], [rows(9, 16, 100)], holds=True)
        run = driver.add(program, rows(8, 64), rows_wanted=wanted)
        for _ in range(600):
            driver.turn()
        places = sorted(item.place for item in program.emitted)
        assert places[:2] == [(0, 0), (0, 1)], places
        assert len(places) <= 8 + 9
        driver.scheduler.end_query(run.query, None)
        driver.check_released()


def test_a_retry_does_not_wait_behind_rows_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "START", 4)

    def first_is_long(operator: str, instruction: str, row: Mapping[str, Any]) -> str:
        return "a b c d e f g h i j" if row["id0"] == 0 else "a"

    driver = Driver(first_is_long, kv_tokens=16_384)
    program = RowProgram([[MAP]], holds=True)
    run = driver.add(program, rows(30, 64), rows_wanted=2)
    for _ in range(50):
        driver.turn()
    assert (0,) in {item.place for item in program.emitted}
    assert len(driver.backend.calls) <= 2 + 8
    driver.scheduler.end_query(run.query, None)
    driver.check_released()


def test_a_dropped_tuple_is_never_asked_about_again() -> None:
    def even(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
        return "text" if operator == "M" else row["id0"] % 2 == 0

    driver = Driver(even, max_running=5)
    run = driver.add(RowProgram([[FILTER, MAP], [JOIN]], [rows(3, 8, 100)]), rows(10, 32))
    driver.finish()
    after = [call for call in asked(driver) if call[0] != "F"]
    assert {call[1] for call in after} == {0, 2, 4, 6, 8}
    assert len(after) == 5 + 5 * 3
    assert run.query.counts["F"].rows == 10
    assert run.query.counts["F"].kept == 5


def test_a_task_larger_than_the_budget_runs_alone() -> None:
    driver = Driver(yes, kv_tokens=512, block_tokens=16)
    small, large = rows(3, 32), rows(1, 480, 10)
    program = RowProgram([[FILTER]])
    driver.add(program, [*small, *large, *rows(3, 32, 20)])
    driver.finish()
    assert driver.scheduler.events.solo == 1
    assert len(program.emitted) == 7
    assert driver.scheduler.events.deadlocks == 0


def test_a_request_over_the_context_fails_alone() -> None:
    driver = Driver(yes, kv_tokens=512)
    program = RowProgram([[MAP]])
    driver.add(program, [*rows(1, 32), *rows(1, 600, 5), *rows(1, 32, 9)])
    driver.finish()
    assert [item.outputs["M"] for item in program.emitted].count("NULL") == 1
    assert len(driver.backend.calls) == 2


def test_a_cut_off_answer_is_asked_for_again_at_the_head_of_its_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "START", 2)
    driver = Driver(lambda *_: "one two three four five", max_running=1)
    program = RowProgram([[MAP]])
    driver.add(program, rows(3, 32))
    driver.finish()
    assert [call[1] for call in asked(driver)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all(attempts == [2, 4, 8] for attempts in driver.bounds.values())
    counts = driver.runs[0].query.counts["M"]
    assert (counts.rows, counts.calls, counts.retries) == (3, 3, 6)


def test_equal_requests_are_asked_once_and_retried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "START", 2)
    driver = Driver(lambda *_: "one two three four five", max_running=8)
    program = RowProgram([[MAP]])
    driver.add(program, [{**rows(1, 32)[0]} for _ in range(6)])
    driver.finish()
    assert len(program.emitted) == 6
    assert len(driver.backend.calls) == 3
    counts = driver.runs[0].query.counts["M"]
    assert (counts.rows, counts.calls, counts.retries, counts.reused) == (6, 1, 2, 5)


def shares(driver: Driver, need: int) -> None:
    """Check that no query is below its share while it has work that would fit into it."""
    scheduler = driver.scheduler
    live = [run for run in driver.runs if not run.ended]
    weights = sum(run.query.weight for run in live)
    for run in live:
        share = scheduler.ledger.budget * run.query.weight / weights
        if run.query.waiting[0]:
            assert run.query.used + need > share, (run.query.key, run.query.used, share)


def test_two_queries_get_their_shares_and_a_late_one_is_served_from_what_is_released() -> None:
    def random_time(operator: str, instruction: str, row: Mapping[str, Any]) -> Reply:
        return Reply(True, delay_s=0.01 + (row["id0"] * 7 % 5) * 0.01)

    driver = Driver(random_time, kv_tokens=2_048, block_tokens=16, max_running=64)
    need = 80
    first = driver.add(RowProgram([[FILTER]]), rows(60, 64))
    second = driver.add(RowProgram([[FILTER]]), rows(60, 64, 100))
    driver.before_step = lambda: shares(driver, need)
    for _ in range(12):
        driver.turn()
    driver.before_step = None
    third = driver.add(RowProgram([[FILTER]]), rows(60, 64, 200))
    share = driver.scheduler.ledger.budget / 3
    held = {task.key for run in (first, second) for task in run.query.live}

    def nobody_else_is_served_first() -> None:
        new = {task.key for run in (first, second) for task in run.query.live} - held
        assert not new or third.query.used + need > share

    driver.before_step = nobody_else_is_served_first
    while third.query.used + need <= share:
        driver.turn()
        driver.scheduler.ledger.check_integrity(driver.scheduler.queries.values())
    driver.before_step = lambda: shares(driver, need)
    driver.finish()
    assert [len(run.program.emitted) for run in driver.runs] == [60, 60, 60]


def test_a_query_may_borrow_what_others_do_not_want() -> None:
    driver = Driver(lambda *_: Reply(True, delay_s=0.1), kv_tokens=2_048)
    driver.add(RowProgram([[FILTER]]), rows(2, 64))
    greedy = driver.add(RowProgram([[FILTER]]), rows(60, 64, 100))
    driver.turn()
    assert greedy.query.used > driver.scheduler.ledger.budget / 2
    driver.finish()


def test_an_abandoned_query_stops_then_gives_back_and_goes_on_without_loss() -> None:
    driver = Driver(lambda *_: Reply(True, delay_s=0.3), kv_tokens=1_024, max_running=4)
    program = RowProgram([[FILTER], [JOIN]], [rows(3, 8, 100)])
    run = driver.add(program, rows(10, 64))
    for _ in range(40):
        driver.turn()
    run.demand.end_pull()
    since = driver.clock.now_s
    calls = 0
    while driver.clock.now_s < since + ABORT_AFTER_S + 0.2:
        driver.turn()
        idle_s = driver.clock.now_s - since
        if idle_s <= PARK_AFTER_S:
            calls = len(driver.backend.calls)
        elif idle_s < ABORT_AFTER_S:
            assert len(driver.backend.calls) - calls <= 4, "starts nothing new"
    assert driver.scheduler.ledger.used == 0
    assert driver.backend._pins == {}
    assert not driver.scheduler.running
    assert not run.ended
    calls = len(driver.backend.calls)
    driver.turn()
    assert len(driver.backend.calls) == calls
    assert driver.scheduler.events.parked == 1
    run.demand.begin_pull()
    driver.finish()
    assert len(program.emitted) == 30
    assert run.query.counts["F"].rows == 10
    assert run.query.counts["J"].rows == 30


def test_local_work_that_ends_while_parked_loses_no_tuple() -> None:
    driver = Driver(yes)
    program = RowProgram([[FILTER, Op("L", "local"), MAP]])
    run = driver.add(program, rows(3, 64))
    while not run.local:
        driver.scheduler.turn()
    held = list(run.local)
    run.local.clear()
    assert all(task.state is State.HELD for task in held)
    run.demand.end_pull()
    driver.clock.sleep(ABORT_AFTER_S + 0.1)
    driver.turn()
    assert driver.scheduler.ledger.used == 0
    run.local.extend(held)
    driver.turn()
    assert driver.scheduler.ledger.used == 0
    run.demand.begin_pull()
    driver.finish()
    assert len(program.emitted) == 3


def pin_everything(driver: Driver) -> None:
    """Fill the cache with foreign prompts and pin them."""
    block = driver.backend.capabilities.block_tokens
    blocks = driver.backend.capabilities.kv_tokens // block
    for number in range(blocks - 1):
        ids = tuple(range(-1 - number * block - block, -1 - number * block))
        driver.scheduler.running[-1 - number] = None  # type: ignore[assignment]
        type(driver.backend).submit(
            driver.backend, -1 - number, Request(ids, 0, Decoding(1, (1, 2))), 1, 0
        )
        while not driver.backend.step():
            pass
        del driver.scheduler.running[-1 - number]
        assert driver.backend.pin(-1 - number, ids) == block
    driver.backend.calls.clear()


@pytest.mark.parametrize("pinning", ["auto", "virtual"])
def test_pins_beyond_the_ledger_are_dropped_once_and_the_query_finishes(pinning: str) -> None:
    driver = Driver(lambda operator, *_: "x" if operator == "M" else True, pinning=pinning)
    pin_everything(driver)
    driver.fits = False
    program = RowProgram([[FILTER], [JOIN, MAP]], [rows(3, 16, 100)])
    driver.add(program, rows(8, 64))
    driver.finish()
    assert driver.scheduler.events.deadlocks == 1
    assert len(program.emitted) == 24


def test_a_program_that_raises_ends_only_its_own_query() -> None:
    class Broken(RowProgram):
        def accept(self, *args: Any) -> Any:
            raise ZeroDivisionError

    driver = Driver(yes)
    # Equal prompts: the good query's tuples follow the broken one's, if they share answers.
    broken = driver.add(Broken([[FILTER]]), rows(5, 32))
    good = driver.add(RowProgram([[FILTER]]), rows(5, 32))
    good.query.memo = broken.query.memo
    for _ in range(200):
        driver.turn()
        if good.ended:
            break
    assert isinstance(broken.ended[0], ZeroDivisionError)
    assert good.ended == [None]
    assert len(good.program.emitted) == 5
    driver.check_released()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
def test_a_query_ended_early_gives_everything_back(turns: int) -> None:
    driver = Driver(lambda *_: Reply(True, delay_s=0.01), kv_tokens=1_024, max_running=4)
    program = RowProgram([[FILTER, Op("L", "local")], [JOIN]], [rows(3, 8, 100)])
    run = driver.add(program, [*rows(5, 64), *rows(5, 64)])
    for _ in range(turns):
        driver.turn()
    driver.scheduler.end_query(run.query, None)
    driver.scheduler.end_query(run.query, None)
    assert run.ended == [None]
    driver.check_released()


@pytest.mark.parametrize("pinning", ["auto", "virtual"])
@pytest.mark.parametrize("kv_tokens", [1_024, 4_096])
def test_a_childs_prefix_is_still_cached(pinning: str, kv_tokens: int) -> None:
    def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
        return Reply("done" if operator == "M" else True, delay_s=sum(row.values()) % 3 * 0.01)

    driver = Driver(answer, pinning=pinning, kv_tokens=kv_tokens, block_tokens=16)
    program = RowProgram([[FILTER], [JOIN, MAP]], [rows(6, 16, 100)])
    run = driver.add(program, rows(40, 96))
    driver.finish()
    counts = run.query.counts["J"]
    # Without pins the LRU takes a few: suffixes that ended are newer than a parent's idle prefix.
    least = 0.99 if pinning == "auto" else 0.97
    assert counts.cached_tokens >= least * counts.calls * 96
    assert driver.scheduler.events.solo == 0
