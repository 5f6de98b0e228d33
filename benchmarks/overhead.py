"""What the scheduler and the runtime cost: filter, then map, over instant answers and no model.

The input is made row by row and the output is dropped batch by batch, so what the process holds is what
a query holds. The first run tells seconds and memory at 100,000 rows, the second whether memory grows.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from benchmarks import harness
from semops.testing import replay

ROWS = 100_000
MANY_ROWS = 1_000_000
BATCH = 10_000
FIRST_SHARE = 0.2
"""After this share of the rows memory is measured the first time."""
STATM = Path("/proc/self/statm")
PAGE_BYTES = 4_096


def main() -> None:
    args = harness.arguments(__doc__ or "")
    many = ROWS * 5 if args.quick else MANY_ROWS
    # Each in a process of its own, so that one doesn't find the other's memory.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        results = pool.map(run, [ROWS, many], chunksize=1)
    first, second = results
    summary = {
        "seconds_100k": first["seconds"],
        "microseconds_per_call": first["seconds"] / first["calls"] * 1e6,
        "extra_memory_mb": first["peak_mb"] - first["before_mb"],
        "memory_growth": second["end_mb"] / second["first_mb"],
    }
    harness.report(args, "overhead", results, summary)
    groups = [f"{row['rows']:,} rows" for row in results]
    moments = {"before": "before_mb", "at 20 %": "first_mb", "at the end": "end_mb"}
    series = {label: [row[key] for row in results] for label, key in moments.items()}
    harness.bars(harness.plot_path(args), "Memory of the process", groups, series, "MB")


def run(rows: int) -> dict[str, Any]:
    """Run the query over so many rows and watch the process's memory."""
    warm_up()
    gc.collect()
    before = peak = memory_mb()
    at: dict[int, float] = {}
    done = 0
    with replay(answer, max_running=256, kv_tokens=1_000_000) as log:
        log.backend.calls = Forgotten()
        lazy = (
            source(rows)
            .sem_filter("{text} is good")
            .sem_map("Sum up {text}", "summary", max_tokens=16)
        )
        started = time.perf_counter()
        for frame in lazy.collect_batches(chunk_size=BATCH, maintain_order=True):
            done += frame.height
            now = memory_mb()
            peak = max(peak, now)
            at[done] = now
        seconds = time.perf_counter() - started
    assert done == rows, done
    first = next(mb for count, mb in at.items() if count >= FIRST_SHARE * rows)
    return {
        "rows": rows,
        "calls": log.backend.calls.count_all,
        "seconds": seconds,
        "before_mb": before,
        "first_mb": first,
        "end_mb": at[done],
        "peak_mb": peak,
    }


class Forgotten(list[Any]):
    """A log that only counts: what was asked would fill memory."""

    count_all = 0

    def append(self, _: Any) -> None:
        """Count."""
        self.count_all += 1


def warm_up() -> None:
    """Import and start what any query needs, so that it isn't counted as this query's memory."""
    with replay(answer):
        pl.DataFrame({"text": ["warm up"]}).sem_filter("{text} is good").collect()


def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:  # noqa: ARG001
    return True if operator == "sem_filter" else "fine"


def source(rows: int) -> pl.LazyFrame:
    """Return a lazy frame whose rows are made when they are wanted."""

    def make(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, size: int | None
    ) -> Iterator[pl.DataFrame]:
        batch = size or BATCH
        wanted = rows if n_rows is None else min(rows, n_rows)
        for start in range(0, wanted, batch):
            numbers = range(start, min(start + batch, wanted))
            frame = pl.DataFrame(
                {"id": numbers, "text": [f"row {number} says something" for number in numbers]}
            )
            frame = frame if predicate is None else frame.filter(predicate)
            yield frame if columns is None else frame.select(columns)

    return register_io_source(make, schema={"id": pl.Int64, "text": pl.String})


def memory_mb() -> float:
    """Return what the process holds in memory, in megabytes."""
    return int(STATM.read_text().split()[1]) * PAGE_BYTES / 1e6


if __name__ == "__main__":
    main()
