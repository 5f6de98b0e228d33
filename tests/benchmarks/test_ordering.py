"""Orders on real lengths: ratios that hold for every trace and seed, at a size that takes seconds."""

from __future__ import annotations

import pytest

from benchmarks import engine_load, ordering, ordering_engine, stability, traces
from semops.engine.time_model import TimeModel

NAMES = [trace.name for trace in traces.all_traces()]


@pytest.mark.parametrize("name", NAMES)
def test_smallest_volume_first_is_fastest_in_a_burst(name: str) -> None:
    mean = {row["policy"]: row["mean"] for row in ordering.burst((name, 400, 3))}
    assert mean["svf"] <= mean["sjf"] < mean["fcfs"]
    assert mean["svf noisy"] <= mean["sjf noisy"]
    assert mean["svf_onebit flipped"] < mean["fcfs"]


@pytest.mark.parametrize("name", ["mooncake", "conv and mooncake"])
def test_long_prompts_gain_most(name: str) -> None:
    mean = {row["policy"]: row["mean"] for row in ordering.burst((name, 800, 5))}
    assert mean["svf"] <= 0.5 * mean["fcfs"]
    assert mean["svf_onebit flipped"] < mean["sjf"]


@pytest.mark.parametrize("name", NAMES)
def test_with_little_patience_large_requests_lose_nothing(name: str) -> None:
    rows = {row["policy"]: row for row in ordering.arriving((name, 500, 2, 0.9))}
    fair, fcfs = rows["svf fair"], rows["fcfs"]
    assert fair["mean"] <= fcfs["mean"]
    assert fair["large_slowdown"] <= 1.01 * fcfs["large_slowdown"]


@pytest.mark.parametrize("seed", range(3))
def test_the_burst_for_the_engine_tells_the_policies_apart(seed: int) -> None:
    """On the simulator; the real engine is the benchmark's."""
    mean = {}
    for policy in ("fcfs", "oracle_sjf", "svf"):
        backend = engine_load.simulator(
            TimeModel(0.03, 8e-4, 2e-3, 1e-6),
            kv_tokens=ordering_engine.KV_TOKENS,
            block_tokens=32,
            context_tokens=1_024,
            max_running=64,
            chunk_tokens=512,
        )
        data = engine_load.rows(ordering_engine.burst(seed), seed)
        found = engine_load.serve(engine_load.scheduler_on(backend, policy), data)
        mean[policy] = sum(found.at_step.values())
    assert mean["svf"] < mean["oracle_sjf"] < mean["fcfs"]


def test_capacity_predicts_other_loads_on_the_simulator() -> None:
    _, summary = stability.simulated(seed=7)
    assert summary["mu_error_simulator"] <= 0.05
    assert summary["replicas_error"] <= 0.03
    assert summary["sim_slope_at_0.8"] < 0.02
    assert summary["sim_slope_at_1.25"] > 0.1
