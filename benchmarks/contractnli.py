"""Filter, join and map over contracts and hypotheses: pipelined against operator at a time.

First simulated, 184 contracts x 17 hypotheses in three sizes of KV memory. ``blocking`` runs the same
operators one after the other on the same scheduler, ``bare`` on the engine alone with everything queued
at once; the ratio is to the faster of the two. Then real: 12 contracts of 1,000 tokens x 5 hypotheses,
KV memory for four, in float32, where the rows are those of asking row by row.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

import semops
from benchmarks import harness, measured, simulated

KV_TOKENS = (24_000, 48_000, 96_000)
MODES = {
    "bare": simulated.bare,
    "blocking": simulated.blocking,
    "pipelined": simulated.pipelined,
}
CONTRACTS, HYPOTHESES = 12, 5
IN_KV = 4
"""Contracts that the real KV memory holds."""
FILTER = "{text}\nThis document is a legal"
JOIN = "{text}\nIs this so: {hypothesis} Answer yes or no:"
MAP = "{text}\nIs this so: {hypothesis} Yes, since"
MAX_TOKENS = 8


def main() -> None:
    args = harness.arguments(__doc__ or "")
    results = simulate()
    summary = summarise_simulated(results)
    real, alone = measure(args)
    summary |= {
        "real_time_ratio": real["blocking"].wall_s / real["pipelined"].wall_s,
        "real_prefill_ratio": real["pipelined"].computed_tokens / real["blocking"].computed_tokens,
        "real_rows_same": float(same(real, alone)),
    }
    results += [run.row(kv="real", mode=mode) for mode, run in real.items()]
    harness.report(args, "contractnli", results, summary)
    draw(args, results)


def simulate() -> list[dict[str, Any]]:
    """Run all modes in all sizes of memory on the simulator."""
    jobs = [(mode, kv) for kv in KV_TOKENS for mode in MODES]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(simulate_one, jobs))


def simulate_one(job: tuple[str, int]) -> dict[str, Any]:
    """Run one mode."""
    mode, kv_tokens = job
    outcome = MODES[mode](simulated.workload(), kv_tokens)
    return {"kv": f"{kv_tokens // 1000}k", "mode": mode, **outcome.row()}


def summarise_simulated(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return the worst ratios over the sizes of memory."""
    by = {(row["kv"], row["mode"]): row for row in results}
    sizes = sorted({row["kv"] for row in results})

    def worst(metric: str, *, over: str) -> list[float]:
        return [by[kv, over][metric] / by[kv, "pipelined"][metric] for kv in sizes]

    blocking, bare = worst("seconds", over="blocking"), worst("seconds", over="bare")
    prefill = worst("prefill_tokens", over="blocking") + worst("prefill_tokens", over="bare")
    return {
        "sim_time_ratio_worst": min(blocking + bare),
        "sim_time_ratio_to_blocking_worst": min(blocking),
        "sim_time_ratio_to_bare_worst": min(bare),
        "sim_prefill_ratio_worst": max(1 / ratio for ratio in prefill),
    }


def query(args: argparse.Namespace, contracts: int = CONTRACTS) -> pl.LazyFrame:
    """Return the real query."""
    left = pl.scan_parquet(args.data / "contracts.parquet").select("contract_id", "text")
    right = pl.read_parquet(args.data / "hypotheses.parquet").select("hypothesis_id", "hypothesis")
    return ask(left.head(contracts), right.head(HYPOTHESES))


def ask(left: pl.LazyFrame, right: pl.DataFrame) -> pl.LazyFrame:
    """Put the three operators onto tables."""
    with semops.options(prompt_style="raw"):
        return (
            left.sem_filter(FILTER, answers=("agreement", "statute"))
            .sem_join(right, JOIN, answers=("yes", "no"))
            .sem_map(MAP, "says", max_tokens=MAX_TOKENS, on_cutoff="keep")
        )


def measure(args: argparse.Namespace) -> tuple[dict[str, measured.Run], pl.DataFrame]:
    """Run the real query in both executors; return also what asking row by row gives."""
    kv_tokens = IN_KV * (measured.CONTRACT_TOKENS + measured.OVERHEAD_TOKENS)
    settings = {"kv_tokens": kv_tokens, "model": args.model, "dtype": "float32"}
    found: dict[str, list[measured.Run]] = {"blocking": [], "pipelined": []}
    for executor in [*found] * (1 if args.quick else 2):
        run = measured.fresh(lambda: query(args), executor, **settings)
        print(f"{executor}: {run.frame.height} rows in {run.wall_s:.1f} s", flush=True)
        found[executor].append(run)
    best = {executor: measured.best(runs) for executor, runs in found.items()}
    alone = row_by_row(args)
    semops.close()
    return best, alone


def row_by_row(args: argparse.Namespace) -> pl.DataFrame:
    """Return what asking about each contract and each pair alone gives."""
    left = pl.read_parquet(args.data / "contracts.parquet").select("contract_id", "text")
    right = pl.read_parquet(args.data / "hypotheses.parquet").select("hypothesis_id", "hypothesis")
    rows = [
        ask(left[number].lazy(), right[other]).collect()
        for number in range(CONTRACTS)
        for other in range(HYPOTHESES)
    ]
    return pl.concat(rows)


def same(real: dict[str, measured.Run], alone: pl.DataFrame) -> bool:
    """Return whether all gave the same rows.

    Raises
    ------
    AssertionError
        If they don't, with the first difference.
    """
    for run in real.values():
        assert_frame_equal(run.frame, alone)
    return True


def draw(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Plot simulated seconds."""
    by = {(row["kv"], row["mode"]): row.get("seconds", 0.0) for row in results}
    sizes = [f"{kv // 1000}k" for kv in KV_TOKENS]
    series = {mode: [by[kv, mode] for kv in sizes] for mode in MODES}
    title = "184 contracts x 17 hypotheses, simulated"
    harness.bars(harness.plot_path(args), title, sizes, series, "s")


if __name__ == "__main__":
    main()
