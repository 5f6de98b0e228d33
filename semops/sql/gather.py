"""Rows of a running semantic query on their way to DuckDB: interrupted when asked, gathered into batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from semops.runtime.leaving import tracked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semops.runtime.query import Query

NOTICE_S = 0.05
"""How long DuckDB gets to notice an interrupt by itself, in seconds."""
GATHER_ROWS = 1_024
GATHER_S = 0.02
"""Rows that finish within this time go to DuckDB together, in seconds."""


@dataclass(eq=False, slots=True)
class Running:
    """The semantic queries that run for a connection."""

    queries: set[Query] = field(default_factory=set)
    interrupts: int = 0

    def interrupt(self) -> None:
        """Have all of them end with an error."""
        self.interrupts += 1


def interruptible(
    query: Query, frames: Iterator[pl.DataFrame], running: Running
) -> Iterator[pl.DataFrame]:
    """Yield a query's frames, among them empty ones while it waits; end with an error when interrupted."""
    before = running.interrupts
    running.queries.add(query)
    inner = tracked(frames)
    try:
        for frame in inner:
            if running.interrupts != before:
                time.sleep(NOTICE_S)
                raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
            yield frame
    finally:
        running.queries.discard(query)
        inner.close()  # type: ignore[attr-defined]


def gathered(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Put frames of few rows together, as long as that delays none for long.

    At most as many rows wait as went on before: a LIMIT above that takes three must not pay for a thousand.
    """
    passed = 0
    held: list[pl.DataFrame] = []
    rows = 0
    since_s = 0.0
    for frame in frames:
        if frame.height:
            since_s = since_s if held else time.monotonic()
            held.append(frame)
            rows += frame.height
        late = not frame.height or time.monotonic() - since_s > GATHER_S
        if held and (late or rows >= min(passed, GATHER_ROWS)):
            yield pl.concat(held) if len(held) > 1 else held[0]
            passed += rows
            held, rows = [], 0
    if held:
        yield pl.concat(held)
