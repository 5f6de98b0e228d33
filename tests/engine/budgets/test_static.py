"""The ``static`` controller: fixed shares of the memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_program import Driver, RowProgram
from trajectories import FILTER, JOIN, MAP, check_golden, documents, run_checked, slow, two_stages

from semops.engine.budgets import new_controller
from semops.errors import ConfigError


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=14),
    rights=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    split=st.sampled_from(["1:9", "3:7", "1:1", "9:1"]),
    max_running=st.integers(1, 16),
)
def test_shares_add_up_and_hold_what_is_used(
    sizes: list[int], rights: list[int], split: str, max_running: int
) -> None:
    driver = Driver(slow(), controller=f"static:{split}", kv_tokens=4_096, max_running=max_running)
    program = RowProgram([[FILTER], [JOIN, MAP]], [documents(rights)])
    run = driver.add(program, documents(sizes))
    run_checked(driver, run)


def test_a_split_stays_whatever_waits() -> None:
    driver = Driver(slow(J=0.1), controller="static:1:3", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=12)
    run = driver.add(program, tuples)
    budget = driver.scheduler.ledger.budget
    driver.before_step = lambda: None
    driver.finish()
    assert {sample.budgets for sample in run.query.trajectory} == {(budget // 4, budget * 3 // 4)}


def test_a_query_with_other_stages_gets_equal_shares() -> None:
    driver = Driver(slow(), controller="static:1:2:3", kv_tokens=4_096)
    program, tuples = two_stages(fan_out=2)
    run = driver.add(program, tuples)
    assert run.query.controller.budgets[0] == driver.scheduler.ledger.budget // 2
    driver.finish()


def test_a_task_larger_than_its_share_runs_alone() -> None:
    driver = Driver(slow(), controller="static:1:9", kv_tokens=2_048)
    program, tuples = two_stages(fan_out=2, tuples=4, tokens=320)
    driver.add(program, tuples)
    driver.finish()
    assert len(program.emitted) > 0


WRONG = [
    "static:0:1",
    "static:a",
    "static:nan:1",
    "static:inf:1",
    "kalypso:-1:1",
    "kalypso:1",
    "greedy",
]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_name_or_parameter_says_what_is_allowed(name: str) -> None:
    driver = Driver(slow())
    program, tuples = two_stages(fan_out=2)
    run = driver.add(program, tuples)
    with pytest.raises(ConfigError, match=r"positive numbers|two numbers|choose one of"):
        new_controller(name, run.query, driver.scheduler.ledger)


def test_the_trajectory_is_the_golden_one() -> None:
    driver = Driver(
        slow(F=0.05, J=0.02, M=0.1), controller="static:3:7", kv_tokens=2_048, max_running=16
    )
    program, tuples = two_stages(fan_out=4, tuples=10)
    run = driver.add(program, tuples)
    driver.finish()
    check_golden(run, "static")
