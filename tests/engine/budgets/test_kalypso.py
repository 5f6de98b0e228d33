"""The ``kalypso`` controller: budgets that follow starvation and saturation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_program import Driver, RowProgram, rows
from trajectories import (
    FILTER,
    JOIN,
    MAP,
    check_golden,
    documents,
    run_checked,
    slow,
    two_stages,
)

from semops.engine.budgets.kalypso import Kalypso


def kalypso(**options: object) -> Driver:
    return Driver(slow(), controller="kalypso", **{"kv_tokens": 4_096, **options})


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=14),
    rights=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    kv_tokens=st.sampled_from([1_024, 2_048, 8_192]),
    max_running=st.integers(1, 16),
    stages=st.sampled_from([2, 3]),
)
def test_budgets_add_up_hold_what_is_used_and_leave_each_stage_the_least_it_needs(
    sizes: list[int], rights: list[int], kv_tokens: int, max_running: int, stages: int
) -> None:
    driver = kalypso(kv_tokens=kv_tokens, max_running=max_running)
    shape = [[FILTER], [JOIN, MAP]] if stages == 2 else [[FILTER], [JOIN], [MAP]]
    program = RowProgram(shape, [documents(rights)] * (stages - 1))
    run = driver.add(program, documents(sizes))
    run_checked(driver, run, least=True)


def test_it_starts_with_the_least_for_each_stage_and_the_rest_for_the_last() -> None:
    driver = kalypso()
    program, tuples = two_stages(fan_out=4)
    run = driver.add(program, tuples)
    controller = run.query.controller
    assert isinstance(controller, Kalypso)
    assert controller.budgets[0] == controller.least[0]
    assert sum(controller.budgets) == driver.scheduler.ledger.budget


def test_a_starving_stage_gives_budget_to_the_one_before_it() -> None:
    driver = Driver(slow(F=0.5), controller="kalypso", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=1)
    run = driver.add(program, tuples)
    before = run.query.controller.budgets[0]
    for _ in range(20):
        driver.turn()  # no filter has answered: nothing waits for the second stage
    assert run.query.waiting_in(1) == 0
    assert run.query.controller.budgets[0] > before
    assert run.query.active_in[0] > 1
    driver.finish()


def test_a_saturated_stage_draws_budget_down_the_plan() -> None:
    driver = Driver(slow(J=0.5), controller="kalypso", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=60, tuples=12, tokens=320)
    run = driver.add(program, tuples)
    budgets = []
    while run.query.waiting_in(1) < 100 and len(budgets) < 2_000:
        driver.turn()
        budgets.append(run.query.controller.budgets[0])
    highest = max(budgets)
    for _ in range(400):
        driver.turn()
        budgets.append(run.query.controller.budgets[0])
    assert run.query.controller.budgets[0] < highest
    assert run.query.controller.budgets[1] > driver.scheduler.ledger.budget / 2
    driver.finish(20_000)


def test_at_the_end_of_the_input_the_last_stage_gets_what_the_first_has_free() -> None:
    driver = Driver(slow(J=0.2), controller="kalypso", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=3, tuples=4)
    run = driver.add(program, tuples)
    while run.query.waiting[0] or run.query.active_in[0]:
        driver.turn()
    driver.turn()
    controller = run.query.controller
    assert isinstance(controller, Kalypso)
    assert controller.budgets[0] <= max(controller.least[0], run.query.stage_used[0])
    driver.finish()


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_smaller_share_is_followed_as_far_as_it_is_free_and_a_larger_one_at_once(
    share: float,
) -> None:
    driver = Driver(slow(J=0.2), controller="kalypso", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=6)
    run = driver.add(program, tuples)
    for _ in range(30):
        driver.turn()
    controller, full = run.query.controller, driver.scheduler.ledger.budget
    smaller = int(full * share)
    controller.rebalance(smaller)
    used = run.query.stage_used
    assert all(b >= u for b, u in zip(controller.budgets, used, strict=True))
    assert smaller <= sum(controller.budgets) <= max(smaller, full)
    controller.rebalance(full)
    assert sum(controller.budgets) == full
    driver.finish()


def test_a_lone_task_larger_than_its_budget_borrows_what_is_free() -> None:
    driver = kalypso(kv_tokens=2_048)
    program = RowProgram([[FILTER], [JOIN]], [rows(2, 16, 500)])
    run = driver.add(program, [*rows(2, 1_400, 1), *rows(3, 32, 5)])
    run_checked(driver, run)
    assert driver.scheduler.events.solo == 0
    assert len(program.emitted) > 0


def test_the_trajectory_is_the_golden_one() -> None:
    driver = Driver(
        slow(F=0.05, J=0.02, M=0.1), controller="kalypso", kv_tokens=2_048, max_running=16
    )
    program, tuples = two_stages(fan_out=4, tuples=10)
    run = driver.add(program, tuples)
    driver.finish()
    check_golden(run, "kalypso")
