"""What less KV memory costs a pipelined query, and a blocking one.

Simulated: filter, join and map over 184 contracts with 96,000 and 48,000 tokens of KV. Real: two maps
over 24 contracts of 1,000 tokens with KV for 14 and for 8 of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import polars as pl

import semops
from benchmarks import harness, measured, simulated

KV_TOKENS = (96_000, 48_000)
IN_KV = (14, 8)
"""Contracts that the real KV memory holds."""
CONTRACTS = 24
MAPS = (
    "What is the purpose of {text}? Answer in a few words.",
    "Which law governs {text}? Answer in a few words.",
)
MAX_TOKENS = 8
EXECUTORS = ("blocking", "pipelined")


def main() -> None:
    args = harness.arguments(__doc__ or "")
    results = simulate() + measure(args)
    harness.report(args, "memory", results, summarise(results))
    draw(args, results)


def simulate() -> list[dict[str, Any]]:
    """Run both executors in both sizes of memory on the simulator."""
    load = simulated.workload()
    runs = {"blocking": simulated.blocking, "pipelined": simulated.pipelined}
    return [
        {"engine": "sim", "kv": kv, "executor": executor, **runs[executor](load, kv).row()}
        for kv in KV_TOKENS
        for executor in EXECUTORS
    ]


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run both executors in both sizes of memory on the real engine."""
    one = measured.CONTRACT_TOKENS + measured.OVERHEAD_TOKENS
    # Large and small memory take turns, and the faster run counts: a shared machine's speed drifts.
    order = [(kv, "pipelined") for kv in IN_KV * 2] + [(kv, "blocking") for kv in IN_KV]
    runs: dict[tuple[int, str], list[measured.Run]] = {}
    for kv, executor in order:
        settings = {"kv_tokens": kv * one, "model": args.model}
        run = measured.fresh(lambda: query(args), executor, **settings)
        print(f"KV for {kv}, {executor}: {run.wall_s:.1f} s", flush=True)
        runs.setdefault((kv, executor), []).append(run)
    semops.close()
    return [
        {**measured.best(found).row(engine="real", kv=kv, executor=executor)}
        for (kv, executor), found in runs.items()
    ]


def query(args: argparse.Namespace) -> pl.LazyFrame:
    """Return the real query."""
    frame = pl.scan_parquet(args.data / "contracts.parquet").select("contract_id", "text")
    frame = frame.head(CONTRACTS)
    for number, instruction in enumerate(MAPS, 1):
        frame = frame.sem_map(
            instruction, f"answer_{number}", max_tokens=MAX_TOKENS, on_cutoff="keep"
        )
    return frame


def summarise(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return how much longer the smaller memory takes."""
    by = {(r["engine"], r["kv"], r["executor"]): r.get("seconds", r.get("wall_s")) for r in results}
    summary = {}
    for engine, (large, small) in (("sim", KV_TOKENS), ("real", IN_KV)):
        for executor in reversed(EXECUTORS):
            slowdown = by[engine, small, executor] / by[engine, large, executor]
            summary[f"{executor}_slowdown_{engine}"] = slowdown
    return summary


def draw(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Plot seconds."""
    summary = summarise(results)
    series = {e: [summary[f"{e}_slowdown_{kind}"] for kind in ("sim", "real")] for e in EXECUTORS}
    title = "Time with less KV memory over time with more"
    harness.bars(harness.plot_path(args), title, ["simulated", "real"], series, "ratio")


if __name__ == "__main__":
    main()
