"""Admission controllers against the best fixed split, on 24 simulated queries.

Fan-out, pass rate, answer length and KV memory vary; ``demand`` and ``kalypso`` adapt, ``static`` gives
each of the two stages a fixed share of the memory. Which share is best differs from case to case.
"""

from __future__ import annotations

import argparse
import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from benchmarks import harness, simulated

SPLITS = ("static:1:9", "static:3:7", "static:5:5", "static:7:3", "static:9:1")
ADAPTIVE = ("demand", "kalypso")
FAN_OUTS = (3, 17)
PASS_RATES = (0.3, 0.95)
ANSWER_TOKENS = (20, 60, 200)
KV_TOKENS = (24_000, 96_000)
QUICK = {(3, 0.3, 20, 96_000), (3, 0.3, 60, 96_000), (3, 0.95, 20, 96_000), (17, 0.3, 20, 96_000)}
"""Cases left out by ``--quick``: with much memory and little to do all controllers are alike."""


class Case(NamedTuple):
    """One query."""

    fan_out: int
    pass_rate: float
    answer_tokens: int
    """Median answer of the map, in tokens."""
    kv_tokens: int


def main() -> None:
    args = harness.arguments(
        __doc__ or "", seeds={"type": int, "default": 1, "help": "runs of each case"}
    )
    grid = [Case(*c) for c in itertools.product(FAN_OUTS, PASS_RATES, ANSWER_TOKENS, KV_TOKENS)]
    if args.quick:
        grid = [case for case in grid if case not in QUICK]
    jobs = [
        (case, controller, seed)
        for seed in range(args.seeds)
        for case in grid
        for controller in (*ADAPTIVE, *SPLITS)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, jobs, chunksize=2))
    compared = compare(results)
    harness.report(args, "controllers", results + compared, summarise(compared))
    draw(args, compared)


def run(job: tuple[Case, str, int]) -> dict[str, Any]:
    """Run one case under one controller."""
    case, controller, seed = job
    load = simulated.workload(
        fan_out=case.fan_out,
        pass_rate=case.pass_rate,
        answer_tokens=case.answer_tokens,
        seed=seed,
    )
    outcome = simulated.pipelined(load, case.kv_tokens, controller)
    return {**case._asdict(), "seed": seed, "controller": controller, **outcome.row()}


def compare(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each case and seed, the adaptive controllers' time over the best split's."""
    cases: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in results:
        key = tuple(row[name] for name in (*Case._fields, "seed"))
        cases.setdefault(key, {})[row["controller"]] = row["seconds"]
    compared = []
    for key, seconds in cases.items():
        best = min(SPLITS, key=seconds.__getitem__)
        compared.append(
            {
                **dict(zip((*Case._fields, "seed"), key, strict=True)),
                "best_static": best,
                "best_static_s": seconds[best],
                **{f"{name}_ratio": seconds[name] / seconds[best] for name in ADAPTIVE},
                "worst_static_ratio": max(seconds[s] for s in SPLITS) / seconds[best],
            }
        )
    return compared


def summarise(compared: list[dict[str, Any]]) -> dict[str, float]:
    """Return the worst and the mean ratio of each controller."""
    summary = {}
    for name in ADAPTIVE:
        ratios = [row[f"{name}_ratio"] for row in compared]
        summary[f"{name}_over_best_static_worst"] = max(ratios)
        summary[f"{name}_over_best_static_mean"] = sum(ratios) / len(ratios)
    summary["worst_static_over_best_worst"] = max(r["worst_static_ratio"] for r in compared)
    return summary


def draw(args: argparse.Namespace, compared: list[dict[str, Any]]) -> None:
    """Plot the ratios of the cases with the larger fan-out and pass rate."""
    shown = [row for row in compared if row["fan_out"] == 17 and row["pass_rate"] == 0.95]
    groups = [f"{row['answer_tokens']} tok, {row['kv_tokens'] // 1000}k" for row in shown]
    series = {name: [row[f"{name}_ratio"] for row in shown] for name in ADAPTIVE}
    harness.bars(harness.plot_path(args), "Time over the best fixed split", groups, series, "ratio")


if __name__ == "__main__":
    main()
