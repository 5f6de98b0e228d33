"""A short query beside a long one on the real engine: how much longer it takes than alone.

Five review sentences, filtered and mapped, alone and while 200 excerpts of contracts are filtered and mapped.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from typing import Any

import polars as pl

import semops
from benchmarks import harness

SHORT_ROWS, LONG_ROWS = 5, 200
EXCERPT_CHARACTERS = 1_500
TIMES = 3
HEAD_START_S = 4.0
"""How long the long query runs before the short ones come, in seconds."""


def main() -> None:
    args = harness.arguments(__doc__ or "")
    semops.configure(model=args.model, progress=False)
    reviews = pl.read_parquet(args.data / "reviews.parquet")
    parts = iter(reviews.iter_slices(SHORT_ROWS))
    ask(next(parts))  # starts the engine
    results: list[dict[str, Any]] = [
        {"query": "short, alone", "wall_s": ask(next(parts))} for _ in range(TIMES)
    ]
    took: list[float] = []
    batch = threading.Thread(target=lambda: took.append(ask(excerpts(args))))
    batch.start()
    time.sleep(HEAD_START_S)  # the long query must be well under way
    for _ in range(TIMES):
        beside = batch.is_alive()
        wall_s = ask(next(parts))
        assert beside, "the long query was over too soon to compare with"
        results.append({"query": "short, beside", "wall_s": wall_s})
    batch.join()
    results.append({"query": "long", "wall_s": took[0]})
    semops.close()
    alone, beside_s = (
        statistics.median(r["wall_s"] for r in results if r["query"] == f"short, {how}")
        for how in ("alone", "beside")
    )
    harness.report(args, "beside", results, {"short_beside_over_alone": beside_s / alone})


def excerpts(args: argparse.Namespace) -> pl.DataFrame:
    """Return the rows of the long query, all different from their first word on."""
    contracts = pl.read_parquet(args.data / "contracts.parquet")
    text = pl.col("text").str.slice(0, EXCERPT_CHARACTERS)
    copies = [
        contracts.select(text=pl.format("{} {}", pl.lit(copy), text))
        for copy in range(-(-LONG_ROWS // contracts.height))
    ]
    return pl.concat(copies).head(LONG_ROWS)


def ask(frame: pl.DataFrame) -> float:
    """Filter and map a frame; return how long it took, in seconds."""
    query = frame.sem_filter("{text} is about a product", name="v").sem_map(
        "Sum up {text}", "s", max_tokens=16, on_cutoff="keep"
    )
    started = time.perf_counter()
    query.collect()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
