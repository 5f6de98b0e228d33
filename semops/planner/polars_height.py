"""How many rows a Polars frame has, where that is cheap to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from semops.planner.polars_reader import collect_with
from semops.planner.polars_rowwise import between_is_rowwise

if TYPE_CHECKING:
    from collections.abc import Iterator

HELD = "DataFrameScan"


def cheap_height(frame: pl.LazyFrame) -> int | None:
    """Return the number of rows of a frame that lies in memory, row-wise work on it included.

    Whatever would read a file, or run a semantic operator, is not counted: that would be done twice.

    Examples
    --------
    >>> frame = pl.LazyFrame({"a": [1, 2, 3]})
    >>> cheap_height(frame.filter(pl.col("a") > 1)), cheap_height(frame.sort("a"))
    (2, None)
    """
    cheap: list[bool] = []

    def inspect(traverser: Any, _duration: object = None) -> None:
        cheap.append(all(_kinds(traverser)))
        empty = pl.DataFrame(schema=traverser.get_schema())
        traverser.set_udf(lambda *_: empty)  # so that nothing runs

    collect_with(frame, inspect)
    if cheap != [True]:
        return None
    counted = collect_with(frame.select(pl.len()), lambda *_: None)
    return int(counted.item())


def _kinds(traverser: Any) -> Iterator[bool]:
    """Yield for each node of a plan whether counting its rows costs little."""
    try:
        kind = type(traverser.view_current_node()).__name__
    except NotImplementedError:  # a node that Polars does not expose
        kind = ""
    inputs = traverser.get_inputs()
    yield kind == HELD if not inputs else between_is_rowwise(traverser, kind)
    number = traverser.get_node()
    for below in inputs:
        traverser.set_node(below)
        yield from _kinds(traverser)
    traverser.set_node(number)
