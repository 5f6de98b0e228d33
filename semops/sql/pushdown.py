"""What DuckDB pushes into a stage: its conditions run below the semantic operators, unread answers aren't asked.

With :mod:`semops.sql.lazy_source` the only module that touches a private part of DuckDB. Without that part a stage
is scanned as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

try:
    from duckdb._sources.polars import LazyFrameSource
    from duckdb._sources.to_polars import to_polars
except ImportError:  # another version of DuckDB
    LazyFrameSource = None  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semops.sql.stage_table import StageTable


def source_of(table: StageTable) -> Any:
    """Return what DuckDB scans for a stage."""
    return table if LazyFrameSource is None else _StageSource(table)


def over_columns(condition: pl.Expr, schema: pl.Schema) -> pl.Expr | None:
    """Return a condition over positions as one over names, or None where Polars doesn't push it to a source.

    Examples
    --------
    >>> str(over_columns(pl.nth(1) > 2, pl.Schema({"a": pl.Int64, "b": pl.Int64})))
    '[(col("b")) > (2)]'
    """
    seen: list[pl.Expr | None] = []

    def source(
        _columns: list[str] | None, predicate: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        seen.append(predicate)
        yield pl.DataFrame(schema=schema)

    register_io_source(source, schema=schema).filter(condition).collect()
    return seen[0]


if LazyFrameSource is not None:

    class _StageSource(LazyFrameSource):
        """DuckDB's source for a frame, its rows taken from a stage."""

        def __init__(self, table: StageTable) -> None:
            super().__init__(pl.LazyFrame(schema=table.schema))
            self._table = table

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            """Return a stream of the whole stage; what makes DuckDB take it for a table."""
            return self._table.__arrow_c_stream__(requested_schema)

        def accepts(self, predicate: Any) -> bool:
            """Return whether a condition can go below; above a limit it can't."""
            free = self._table.stage.limit is None and super().accepts(predicate)
            return free and self._condition(predicate) is not None

        def stream(self, columns: Sequence[int] | None, filters: Sequence[Any]) -> tuple[Any, bool]:
            conditions = [self._condition(predicate) for predicate in filters]
            found = [condition for condition in conditions if condition is not None]
            return self._table.stream(columns, found), bool(columns)

        def _condition(self, predicate: Any) -> pl.Expr | None:
            # By position: what DuckDB calls c0 has another name in the chain.
            names = [column for column, _ in self._table.stage.outputs]
            types = self._table.schema.dtypes()
            chain = pl.Schema(dict(zip(names, types, strict=True)))
            return over_columns(to_polars(predicate, self._table.schema), chain)
