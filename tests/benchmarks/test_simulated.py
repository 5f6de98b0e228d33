"""The simulated query: the same rows in every mode, less computed when pipelined."""

from __future__ import annotations

import pytest

from benchmarks import simulated
from benchmarks.simulated import Workload

CONTROLLERS = ["demand", "kalypso", "static:1:9", "static:7:3"]


@pytest.fixture(scope="module")
def load() -> Workload:
    return simulated.workload(contracts=30, fan_out=8)


def expected_rows(load: Workload) -> int:
    return sum(sum(row) for row, ok in zip(load.entails, load.passes, strict=True) if ok)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_every_controller_gives_all_rows_without_deadlock(load: Workload, controller: str) -> None:
    outcome = simulated.pipelined(load, 24_000, controller)
    assert outcome.rows == expected_rows(load)
    assert outcome.deadlocks == 0
    assert outcome.trajectory


def test_pipelined_computes_half_of_what_operator_at_a_time_does_in_less_time(
    load: Workload,
) -> None:
    pipelined, blocking, bare = (
        run(load, 24_000) for run in (simulated.pipelined, simulated.blocking, simulated.bare)
    )
    assert pipelined.rows == blocking.rows == bare.rows == expected_rows(load)
    assert pipelined.prefill_tokens <= 0.55 * min(blocking.prefill_tokens, bare.prefill_tokens)
    assert pipelined.seconds <= 0.8 * min(blocking.seconds, bare.seconds)


@pytest.mark.parametrize("pinning", ["auto", "virtual"])
def test_a_child_finds_its_parents_prefix(load: Workload, pinning: str) -> None:
    outcome = simulated.pipelined(load, 24_000, pinning=pinning)
    # One contract is computed once; what a pair or a step adds is short.
    once = sum(load.contracts)
    calls = outcome.prompt_tokens / (once / len(load.contracts))
    assert outcome.prefill_tokens <= 1.02 * once + calls * 80


@pytest.mark.parametrize(("fan_out", "answer_tokens"), [(3, 200), (17, 200)])
def test_the_default_controller_is_near_the_best_fixed_split(
    fan_out: int, answer_tokens: int
) -> None:
    load = simulated.workload(contracts=40, fan_out=fan_out, answer_tokens=answer_tokens)
    fixed = [
        simulated.pipelined(load, 24_000, split).seconds
        for split in ("static:3:7", "static:5:5", "static:7:3")
    ]
    for controller in ("demand", "kalypso"):
        assert simulated.pipelined(load, 24_000, controller).seconds <= 1.1 * min(fixed)


def test_the_first_bound_is_paid_for_in_retries_or_in_idle_memory(load: Workload) -> None:
    low, high = (simulated.pipelined(load, 24_000, fixed_bound=bound) for bound in (8, 1_024))
    learned = simulated.pipelined(load, 24_000)
    assert low.retries > learned.retries
    assert high.retries == 0
    assert learned.seconds < min(low.seconds, high.seconds)
