"""Semantic LazyFrames that a statement names in FROM, streamed to DuckDB.

DuckDB by itself collects a LazyFrame before it looks at the first row, so a LIMIT would not stop its
semantic operators. It touches a private part of DuckDB; without that part the frame is handed over as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from semops import session
from semops.engine.answers import AnswerMemo
from semops.engine.demand import UNKNOWN
from semops.planner.polars_reader import direct, read
from semops.polars_source import shown, start
from semops.runtime.leaving import tracked
from semops.sql.failures import kept
from semops.sql.gather import gathered

try:
    from duckdb._sources.polars import LazyFrameSource
    from duckdb._sources.to_polars import to_polars
except ImportError:  # another version of DuckDB
    LazyFrameSource = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCH_ROWS = 16
"""Rows of a batch. Small: each of them was asked about."""


def streamed(value: Any) -> Any:
    """Return what DuckDB should scan in the place of a variable.

    Examples
    --------
    >>> streamed(7)
    7
    """
    if LazyFrameSource is None or not isinstance(value, pl.LazyFrame):
        return value
    return _Streamed(value) if "PYTHON[sem_" in value.explain(optimized=False) else value


def is_streamed(value: object) -> bool:
    """Return whether a value is a semantic frame in DuckDB's hands."""
    return LazyFrameSource is not None and isinstance(value, _Streamed)


if LazyFrameSource is not None:

    class _Streamed(LazyFrameSource):
        """DuckDB's source for a LazyFrame, which takes conditions and columns below, as a stream."""

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            """Return a stream of the whole frame; what makes DuckDB take it for a table."""
            return self.stream(None, ())[0]

        def stream(self, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[Any, bool]:
            schema = self._empty_frame().schema
            plan = self.obj
            for predicate in filters:
                plan = plan.filter(to_polars(predicate, schema))
            if columns:
                plan = plan.select([pl.nth(index) for index in columns])
            arrow = (
                self._empty_frame()
                .lazy()
                .select([pl.nth(index) for index in columns] if columns else pl.all())
                .collect()
                .to_arrow()
                .schema
            )
            reader = pa.RecordBatchReader.from_batches(arrow, _batches(plan, arrow))
            return reader.__arrow_c_stream__(), bool(columns)


def _batches(plan: pl.LazyFrame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with kept():
        for frame in gathered(_frames(plan)):
            yield from frame.select(schema.names).to_arrow().cast(schema).to_batches()


def _frames(plan: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield a frame's rows; without Polars where it has no work left, so that stopping is at once."""
    found = direct(plan)
    if found is None:
        yield from plan.collect_batches(
            chunk_size=BATCH_ROWS, maintain_order=True, lazy=True, engine="streaming"
        )
        return
    query = start(read(*found), AnswerMemo(), UNKNOWN)
    frames = tracked(shown(query))
    try:
        yield from frames
    finally:
        frames.close()  # type: ignore[attr-defined]
        session.record(query.finish())
