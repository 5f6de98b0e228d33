"""The ``demand`` controller: one pool, with room for children that are to come."""

from __future__ import annotations

import pytest
from row_program import Driver, RowProgram, rows
from trajectories import FILTER, JOIN, check_golden, slow, two_stages


def demand(**options: object) -> Driver:
    return Driver(slow(), **{"kv_tokens": 4_096, **options})


def test_a_child_goes_wherever_it_fits() -> None:
    driver = demand()
    program, tuples = two_stages(fan_out=4)
    run = driver.add(program, tuples)
    for _ in range(3):
        driver.turn()
    child = next(task for task in run.query.live if task.stage == 1)
    free = driver.scheduler.ledger.budget - driver.scheduler.ledger.used
    assert run.query.controller.admits(child, free)
    assert not run.query.controller.admits(child, free + 1)
    driver.finish()


def test_a_parent_leaves_room_for_one_task_of_each_later_stage() -> None:
    driver = demand()
    program, tuples = two_stages(fan_out=4)
    run = driver.add(program, tuples)
    query, ledger = run.query, driver.scheduler.ledger
    parent = query.waiting[0][0]
    floor = ledger.rounded(int(query.child_need[1]))
    assert query.controller.admits(parent, ledger.budget - floor)
    assert not query.controller.admits(parent, ledger.budget - floor + 1)
    driver.finish()


def test_parents_stop_when_expected_children_would_not_fit() -> None:
    driver = Driver(slow(F=0.5), kv_tokens=8_192)
    program, tuples = two_stages(fan_out=40)
    run = driver.add(program, tuples)
    driver.turn()
    query, ledger = run.query, driver.scheduler.ledger
    admitted = query.active_in[0]
    assert 1 <= admitted < 24
    assert ledger.used < ledger.budget / 2, "memory was left for the children"
    driver.finish()
    wide = Driver(slow(F=0.5), kv_tokens=8_192)
    program, tuples = two_stages(fan_out=1)
    run = wide.add(program, tuples)
    wide.turn()
    assert run.query.active_in[0] == 24, "one child each fits, so all parents start"
    wide.finish()


def test_running_children_are_not_expected_again() -> None:
    driver = Driver(slow(J=0.5), kv_tokens=8_192)
    program = RowProgram([[FILTER], [JOIN]], [rows(10, 16, 500)])
    run = driver.add(program, rows(24, 64, 1))
    for _ in range(8):
        driver.turn()
    query = run.query
    assert query.active_in[1] > 0
    waiting, coming = query.waiting_in(1), (query.active_in[0] + 1) * query.pass_rate * 10
    expected = query.controller._expected_children(0)  # type: ignore[attr-defined]
    assert expected == pytest.approx(query.child_need[1] * (waiting + coming))
    driver.finish()


def test_active_tasks_are_counted_by_stage() -> None:
    driver = Driver(slow(F=0.02, J=0.02, M=0.05), kv_tokens=2_048, max_running=6)
    program, tuples = two_stages(fan_out=4)
    run = driver.add(program, tuples)

    def check() -> None:
        query = run.query
        assert sum(query.active_in) == query.active
        assert all(count >= 0 for count in query.active_in)

    driver.before_step = check
    driver.finish()
    assert run.query.active_in == [0, 0]


def test_the_trajectory_is_the_golden_one() -> None:
    driver = Driver(slow(F=0.05, J=0.02, M=0.1), kv_tokens=2_048, max_running=16)
    program, tuples = two_stages(fan_out=4, tuples=10)
    run = driver.add(program, tuples)
    driver.finish()
    check_golden(run, "demand")
