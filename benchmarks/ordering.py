"""Ordering policies on real lengths: bursts and Poisson arrivals in the queue model, and a burst on vLLM.

The model runs the scheduler's own policies and admission modes with one token a step. Five traces, several
seeds; lengths exact, with a log-normal error, as one bit that is wrong for one request in five, and as a
predictor says that has learned from other requests of the trace. On the engine, prompts and answers are
anti-correlated and latencies are counted in engine steps.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks import harness, ordering_engine, traces
from semops.engine.lengths import OperatorLengths
from semops.engine.ordering import MODES, ORDERINGS
from semops.engine.ordering.queueing import Arrival, Outcome, serve
from semops.engine.ordering.volume import volume

SIGMA = 0.5
"""Of the log-normal error of a noisy prediction."""
FLIPPED = 0.2
"""Share of the requests whose bit is wrong."""
TAUGHT = 1_000
"""Requests that the learned predictors have seen."""
BURST_POLICIES = (
    "fcfs", "sjf", "svf", "sjf noisy", "svf noisy", "svf_onebit", "svf_onebit flipped", "svf learned",
    "svf_onebit learned",
)  # fmt: skip
LOADS = (0.7, 0.9)
PATIENCE = 20
"""``max_wait`` of the Poisson runs, in median latencies of first come, first served."""


def main() -> None:
    args = harness.arguments(
        __doc__ or "",
        seeds={"type": int, "default": 5, "help": "runs of each case"},
        first={"type": int, "default": 0, "help": "first seed"},
        skip_engine={"action": "store_true", "help": "leave the real engine out"},
    )
    count = 1_000 if args.quick else 2_000
    seeds = range(args.first, args.first + args.seeds)
    names = [trace.name for trace in traces.all_traces()]
    bursts = [(name, count, seed) for seed in seeds for name in names]
    steady = [(name, count, seed, load) for seed in seeds for name in names for load in LOADS]
    # Polars' threads don't survive a fork.
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        burst_rows = [row for rows in pool.map(burst, bursts) for row in rows]
        steady_rows = [row for rows in pool.map(arriving, steady) for row in rows]
    summary = summarise(burst_rows, steady_rows)
    results = [*means(burst_rows), *means(steady_rows)]
    if not args.skip_engine:
        engine_rows, engine_summary = ordering_engine.run(args)
        results += engine_rows
        summary |= engine_summary
    harness.report(args, "ordering", results, summary)
    draw(args, burst_rows)


def burst(job: tuple[str, int, int]) -> list[dict[str, Any]]:
    """Serve a burst under each policy."""
    name, count, seed = job
    trace = next(t for t in traces.all_traces() if t.name == name)
    requests = traces.sample(trace, count + TAUGHT, seed)
    requests, others = requests[:count], requests[count:]
    rows = []
    for label in BURST_POLICIES:
        policy, _, how = label.partition(" ")
        predicted = predictions(requests, others, policy, how, seed)
        arrivals = [
            Arrival(s, o, predicted_tokens=p) for (s, o), p in zip(requests, predicted, strict=True)
        ]
        outcome = serve(arrivals, trace.memory, ORDERINGS[policy], MODES["lookahead"])
        rows.append(
            {"run": "burst", "trace": name, "policy": label, "seed": seed}
            | figures(outcome, arrivals)
        )
    return rows


def predictions(
    requests: Sequence[tuple[int, int]],
    others: Sequence[tuple[int, int]],
    policy: str,
    how: str,
    seed: int,
) -> list[float]:
    """Return the answer lengths that a policy is told."""
    dice = random.Random(seed + 1)
    exact = [float(o) for _, o in requests]
    if how == "noisy":
        return [max(1.0, o * dice.lognormvariate(0.0, SIGMA)) for o in exact]
    if how != "learned" and policy != "svf_onebit":
        return exact
    book = OperatorLengths(cap=max(o for _, o in others))
    for s, o in others:
        book.observe(s, o)
        if book.due:
            book.learn()
    book.learn()
    prompts = [s for s, _ in requests]
    if how == "learned":
        return book.one_bit(prompts) if policy == "svf_onebit" else book.predict(prompts)
    median = statistics.median(o for _, o in others)
    wrong = FLIPPED if how == "flipped" else 0.0
    bits = [(o > median) != (dice.random() < wrong) for o in exact]
    return book.standing_for(bits, prompts)


def arriving(job: tuple[str, int, int, float]) -> list[dict[str, Any]]:
    """Serve requests that come one after the other, at a share of what the memory sustains."""
    name, count, seed, load = job
    trace = next(t for t in traces.all_traces() if t.name == name)
    requests = traces.sample(trace, count, seed)
    mu = trace.memory / statistics.mean(volume(s, o) for s, o in requests)
    arrivals = traces.poisson(requests, load * mu, seed)
    rows: list[dict[str, Any]] = []
    patience = math.inf
    for label in ("fcfs", "sjf", "svf", "svf fair"):
        policy, _, fair = label.partition(" ")
        # Fair: the oldest goes first, and the smallest fill what it and the next ones leave free.
        wait = 0.0 if fair else patience
        outcome = serve(
            arrivals, trace.memory, ORDERINGS[policy], MODES["lookahead"], max_wait=wait
        )
        found = figures(outcome, arrivals)
        if policy == "fcfs":
            patience = PATIENCE * statistics.median(outcome.latencies(arrivals))
        about = {"run": f"poisson {load}", "trace": name, "policy": label, "seed": seed}
        rows.append(about | found)
    return rows


def figures(outcome: Outcome, arrivals: Sequence[Arrival]) -> dict[str, float]:
    """Return what is compared, in steps."""
    latencies = outcome.latencies(arrivals)
    largest = sorted(
        range(len(arrivals)),
        key=lambda i: volume(arrivals[i].prompt_tokens, arrivals[i].output_tokens),
    )[-len(arrivals) // 10 :]
    slowdown = [latencies[i] / arrivals[i].output_tokens for i in largest]
    return {
        "mean": statistics.mean(latencies),
        "p95": sorted(latencies)[int(0.95 * len(latencies))],
        "per_1000_steps": 1_000 * len(latencies) / outcome.steps,
        "large_slowdown": statistics.mean(slowdown),
        "preemptions": outcome.preemptions,
    }


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the means over the seeds."""
    cases: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((row["run"], row["trace"], row["policy"]), []).append(row)
    return [
        {"run": run, "trace": trace, "policy": policy, "seeds": len(found)}
        | {
            key: statistics.mean(row[key] for row in found)
            for key in ("mean", "p95", "per_1000_steps", "large_slowdown", "preemptions")
        }
        for (run, trace, policy), found in cases.items()
    ]


def summarise(
    bursts: Sequence[dict[str, Any]], steady: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """Return the worst ratios over traces and seeds."""
    long = {trace.name for trace in traces.all_traces() if trace.long_prompts}

    def worst(one: str, other: str, rows: Sequence[dict[str, Any]], key: str = "mean") -> float:
        return max(ratios(rows, one, other, key).values())

    long_rows = [row for row in bursts if row["trace"] in long]
    summary = {
        "svf_over_sjf_worst": worst("svf", "sjf", bursts),
        "svf_over_fcfs_long_prompts": worst("svf", "fcfs", long_rows),
        "svf_over_fcfs_worst": worst("svf", "fcfs", bursts),
        "svf_over_fcfs_p95_worst": worst("svf", "fcfs", bursts, "p95"),
        "svf_over_fcfs_completed_worst": 1 / worst("fcfs", "svf", bursts, "per_1000_steps"),
        "noisy_svf_over_noisy_sjf_worst": worst("svf noisy", "sjf noisy", bursts),
        "onebit_over_fcfs_worst": worst("svf_onebit flipped", "fcfs", bursts),
        "onebit_over_sjf_long_prompts": worst("svf_onebit flipped", "sjf", long_rows),
        "learned_svf_over_fcfs_worst": worst("svf learned", "fcfs", bursts),
        "learned_onebit_over_fcfs_worst": worst("svf_onebit learned", "fcfs", bursts),
    }
    for load in LOADS:
        rows = [row for row in steady if row["run"] == f"poisson {load}"]
        name = f"poisson_{int(100 * load)}"
        for policy in ("svf", "svf fair"):
            for key in ("mean", "p95", "large_slowdown"):
                by_case = ratios(rows, policy, "fcfs", key)
                label = f"{name}_{policy.replace(' ', '_')}_over_fcfs_{key}"
                summary[label] = statistics.mean(by_case.values())
                summary[f"{label}_worst"] = max(by_case.values())
                of_trace: dict[str, list[float]] = {}
                for (trace, _), ratio in by_case.items():
                    of_trace.setdefault(trace, []).append(ratio)
                summary[f"{label}_worst_trace"] = max(map(statistics.mean, of_trace.values()))
    return summary


def ratios(
    rows: Sequence[dict[str, Any]], one: str, other: str, key: str
) -> dict[tuple[str, int], float]:
    """Return one policy's figure over another's, by trace and seed."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows:
        found.setdefault((row["trace"], row["seed"]), {})[row["policy"]] = row[key]
    return {case: by[one] / by[other] for case, by in found.items()}


def draw(args: Any, bursts: Sequence[dict[str, Any]]) -> None:
    """Plot mean latencies over that of first come, first served."""
    shown = ("sjf", "svf", "svf noisy", "svf_onebit flipped", "svf learned")
    names = list(dict.fromkeys(row["trace"] for row in bursts))
    series = {
        policy: [
            statistics.mean(
                value
                for (trace, _), value in ratios(bursts, policy, "fcfs", "mean").items()
                if trace == name
            )
            for name in names
        ]
        for policy in shown
    }
    harness.bars(
        harness.plot_path(args), "Mean latency of a burst over FCFS's", names, series, "ratio"
    )


if __name__ == "__main__":
    main()
