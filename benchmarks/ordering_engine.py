"""A burst on the real engine under each policy: latencies in engine steps, and what predicting costs."""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks import engine_load
from semops.engine.backends import vllm
from semops.engine.lengths import OperatorLengths
from semops.engine.models import resolve
from semops.engine.scheduler import Scheduler

REQUESTS = 60
KV_TOKENS = 1_536
"""Two of the largest requests, or forty of the smallest."""
PROMPTS = (16, 600)
TYPICAL = 16
"""Median answer to a prompt of 64 tokens, in tokens; it falls with the root of the prompt's length."""
SIGMA = 0.6
LONGEST = 96
BATCH = 200
"""Requests predicted at once, as in the paper."""


def burst(seed: int) -> list[tuple[int, int]]:
    """Return requests whose answers are the shorter the longer their prompts are."""
    dice = random.Random(seed)
    low, high = map(math.log, PROMPTS)
    found = []
    for _ in range(REQUESTS):
        prompt = int(math.exp(dice.uniform(low, high)))
        answer = TYPICAL * (64 / prompt) ** 0.5 * dice.lognormvariate(0.0, SIGMA)
        found.append((prompt, min(max(int(answer), 1), LONGEST)))
    return found


def run(args: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run the burst under each policy on one engine; return rows and a summary."""
    model = resolve(args.model, Path.home() / ".cache" / "semops")
    backend = vllm.start(
        model.path, name=model.name, kv_tokens=KV_TOKENS, context_tokens=1_024, max_running=64
    )
    try:
        results = [_run(backend, policy, args.first) for policy in ("fcfs", "oracle_sjf", "svf")]
        learned = _learned(backend, args.first)
    finally:
        backend.close()
    by = {row["policy"]: row for row in results}
    summary = {
        "engine_svf_over_sjf": by["svf"]["mean"] / by["oracle_sjf"]["mean"],
        "engine_sjf_over_fcfs": by["oracle_sjf"]["mean"] / by["fcfs"]["mean"],
        "engine_svf_over_fcfs": by["svf"]["mean"] / by["fcfs"]["mean"],
        "engine_svf_over_fcfs_p95": by["svf"]["p95"] / by["fcfs"]["p95"],
        "predictor_share_percent": 100 * learned["predicting_s"] / learned["wall_s"],
        **overhead(learned["wall_s"] / REQUESTS),
    }
    return [*results, learned], summary


def overhead(request_s: float) -> dict[str, float]:
    """Return what predicting a batch costs, in percent of the time that its requests take."""
    dice = random.Random(0)
    book = OperatorLengths(cap=512)
    for _ in range(512):
        prompt = dice.randint(50, 2_000)
        book.observe(prompt, max(prompt // 8, 1))
    started = time.perf_counter()
    book.learn()
    learning_s = time.perf_counter() - started
    prompts = [dice.randint(50, 2_000) for _ in range(BATCH)]
    found = {}
    for name, predict in (("full", book.predict), ("onebit", book.one_bit)):
        started = time.perf_counter()
        for _ in range(20):
            predict(prompts)
        batch_s = (time.perf_counter() - started) / 20
        found[f"{name}_overhead_percent"] = 100 * batch_s / (BATCH * request_s)
    # Learned once in 256 requests when much is known.
    found["learning_overhead_percent"] = 100 * learning_s / (256 * request_s)
    return found


def _run(backend: Any, policy: str, seed: int) -> dict[str, Any]:
    backend._engine.reset_prefix_cache()  # noqa: SLF001 - every policy starts alike
    scheduler = engine_load.scheduler_on(backend, policy)
    started = time.perf_counter()
    found = engine_load.serve(scheduler, engine_load.rows(burst(seed), seed))
    steps = sorted(found.at_step.values())
    return {
        "run": "engine burst",
        "policy": policy,
        "mean": statistics.mean(steps),
        "p95": steps[int(0.95 * len(steps))],
        "steps": found.steps,
        "wall_s": time.perf_counter() - started,
        "completed_per_s": len(steps) / found.seconds,
        "mean_s": statistics.mean(found.at_s.values()),
    }


def _learned(backend: Any, seed: int) -> dict[str, Any]:
    """Run the burst twice with a predictor that learns, and count what that costs."""
    backend._engine.reset_prefix_cache()  # noqa: SLF001 - what was run before must help nobody
    scheduler = Scheduler(backend, policy="svf")
    data = engine_load.rows(burst(seed), seed)
    started = time.perf_counter()
    for _ in range(2):
        found = engine_load.serve(scheduler, data)
    wall_s = (time.perf_counter() - started) / 2
    steps = sorted(found.at_step.values())
    return {
        "run": "engine burst",
        "policy": "svf learned",
        "mean": statistics.mean(steps),
        "p95": steps[int(0.95 * len(steps))],
        "steps": found.steps,
        "wall_s": wall_s,
        "predicting_s": scheduler.lengths.seconds / 2,
        "predictions": scheduler.lengths.predictions,
    }
