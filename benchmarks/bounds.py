"""Token bounds: the learned 99th percentile against fixed ones, and pinning against its absence.

Simulated: filter, join and map over the contracts with the map's first bound fixed at 8 to 1,024 tokens.
A low bound is paid for in retries, a high one in memory that lies idle. Real: the query of
``benchmarks.contractnli`` with explicit and with virtual pinning.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import semops
from benchmarks import contractnli, harness, measured, simulated

FIXED = (8, 16, 32, 64, 128, 256, 512, 1_024)
KV_TOKENS = (24_000, 96_000)
ONLINE = 0
"""Stands for the learned bound."""


def main() -> None:
    args = harness.arguments(__doc__ or "")
    jobs = [(kv, bound) for kv in KV_TOKENS for bound in (*FIXED, ONLINE)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, jobs))
    summary = summarise(results)
    real = measure(args)
    results += [found.row(kv="real", bound=pinning) for pinning, found in real.items()]
    summary["virtual_over_explicit_wall"] = real["virtual"].wall_s / real["auto"].wall_s
    summary["virtual_over_explicit_prefill"] = (
        real["virtual"].computed_tokens / real["auto"].computed_tokens
    )
    harness.report(args, "bounds", results, summary)
    draw(args, results)


def run(job: tuple[int, int]) -> dict[str, Any]:
    """Run the query with one bound."""
    kv_tokens, bound = job
    outcome = simulated.pipelined(simulated.workload(), kv_tokens, fixed_bound=bound or None)
    return {"kv": kv_tokens, "bound": bound or "online", **outcome.row()}


def summarise(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return the learned bound's time over the best fixed one's, and both extremes'."""
    summary = {}
    for kv in KV_TOKENS:
        seconds = {row["bound"]: row["seconds"] for row in results if row["kv"] == kv}
        retries = {row["bound"]: row["retries"] for row in results if row["kv"] == kv}
        best = min(FIXED, key=seconds.__getitem__)
        name = f"{kv // 1000}k"
        summary[f"online_over_best_fixed_{name}"] = seconds["online"] / seconds[best]
        summary[f"best_fixed_bound_{name}"] = best
        summary[f"worst_fixed_over_best_{name}"] = max(seconds[b] for b in FIXED) / seconds[best]
        summary[f"retries_online_{name}"] = retries["online"]
        summary[f"retries_best_fixed_{name}"] = retries[best]
    worst = max(summary[f"online_over_best_fixed_{kv // 1000}k"] for kv in KV_TOKENS)
    return {"online_over_best_fixed": worst, **summary}


def measure(args: argparse.Namespace) -> dict[str, measured.Run]:
    """Run the real query with and without explicit pins."""
    one = measured.CONTRACT_TOKENS + measured.OVERHEAD_TOKENS
    settings = {"kv_tokens": contractnli.IN_KV * one, "model": args.model}
    found: dict[str, list[measured.Run]] = {"auto": [], "virtual": []}
    for pinning in (*found, *found):
        run = measured.fresh(lambda: contractnli.query(args), pinning=pinning, **settings)
        print(f"pinning={pinning}: {run.wall_s:.1f} s", flush=True)
        found[pinning].append(run)
    semops.close()
    return {pinning: measured.best(runs) for pinning, runs in found.items()}


def draw(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Plot simulated seconds by bound."""
    by = {(row["kv"], row["bound"]): row.get("seconds", 0.0) for row in results}
    names = [*FIXED, "online"]
    series = {f"KV {kv // 1000}k": [by[kv, name] for name in names] for kv in KV_TOKENS}
    title = "Seconds by first bound of the map, simulated"
    harness.bars(harness.plot_path(args), title, list(map(str, names)), series, "s")


if __name__ == "__main__":
    main()
