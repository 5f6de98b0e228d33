"""What a profile says of a run beyond the counters."""

from __future__ import annotations

import polars as pl
import pytest

import semops
from semops.profile import Profile
from semops.testing import Reply, replay

PAPERS = pl.DataFrame({"text": [f"paper {number} on whales" for number in range(30)]})
CLAIMS = pl.DataFrame({"claim": ["whales sing", "whales sleep", "whales dive"]})


def run(controller: str, executor: str = "pipelined") -> Profile:
    joined = PAPERS.sem_filter("{text} is a study").sem_join(CLAIMS, "{text} supports {claim}")
    with (
        replay(lambda *_: True, controller=controller, kv_tokens=1_024) as log,
        semops.options(executor=executor),
    ):
        assert joined.collect().height == 90
        assert log.engine.scheduler.ledger.used == 0
    profile = semops.last_profile()
    assert profile is not None
    return profile


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
def test_a_join_leaves_its_budgets_and_queues_over_time(executor: str) -> None:
    profile = run("kalypso", executor)
    times = [sample.time_s for sample in profile.trajectory]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= profile.wall_s
    assert len({sample.budgets for sample in profile.trajectory}) > 1
    for sample in profile.trajectory:
        assert len(sample.budgets) == len(sample.used) == len(sample.waiting) == 2
        assert all(u <= b for u, b in zip(sample.used, sample.budgets, strict=True))


def test_one_pool_has_no_budgets_and_a_plan_of_one_stage_no_trajectory() -> None:
    assert {sample.budgets for sample in run("demand").trajectory} == {()}
    with replay(lambda *_: True):
        PAPERS.sem_filter("{text} is a study").collect()
    profile = semops.last_profile()
    assert profile is not None
    assert profile.trajectory == []


def test_profiles_of_a_block_collect_trajectories() -> None:
    with semops.profile() as profile:
        lengths = [len(run("static:1:1").trajectory) for _ in range(2)]
    assert len(profile.trajectory) == sum(lengths) > 0


def test_a_stopped_operator_took_its_time() -> None:
    frame = pl.DataFrame({"text": [f"row {i}" for i in range(50)]})
    with replay(lambda *_: Reply("x", 0.05), max_running=4):
        for _ in frame.sem_map("Shorten {text}", "s").collect_batches(chunk_size=1):
            break
        frame.sem_map("Shorten {text}", "s").head(3).collect()
        counts = semops.last_profile().operators["sem_map:s"]
    assert counts.busy_s > 0
    assert repr(semops.last_profile()) == str(semops.last_profile())
