"""Local work on finished rows, in batches: what stands above the last semantic operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from semops.planner.ir import (
    Copy,
    Filter,
    Join,
    Limit,
    Project,
    Relational,
    Semantic,
    columns_of,
)
from semops.runtime.columns import dtypes_of

if TYPE_CHECKING:
    from semops.planner.lower import Local, PhysicalPipeline


class Tail:
    """Applies local nodes to the frames of one query, in order.

    Parameters
    ----------
    nodes
        The nodes, the lowest first.
    """

    def __init__(self, nodes: tuple[Local, ...]) -> None:
        self._nodes = nodes
        self._left = [node.rows if isinstance(node, Limit) else 0 for node in nodes]

    @property
    def limit_of_results(self) -> int | None:
        """Rows that a limit takes before anything else can drop them, or None."""
        for node in self._nodes:
            if isinstance(node, Limit):
                return node.rows
            if not isinstance(node, (Project, Copy)):
                return None
        return None

    @property
    def satisfied(self) -> bool:
        """Whether a limit is reached, so that no further row can come out."""
        return any(
            isinstance(node, Limit) and left <= 0
            for node, left in zip(self._nodes, self._left, strict=True)
        )

    def input_columns(self, pipeline: PhysicalPipeline) -> tuple[str, ...]:
        """Return the columns that the first node reads."""
        return columns_of(self._nodes[0].input) if self._nodes else pipeline.columns

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return what comes out for a frame of finished rows."""
        for number, node in enumerate(self._nodes):
            if isinstance(node, Limit):
                frame = frame.head(self._left[number])
                self._left[number] -= frame.height
            else:
                frame = applied(node, frame)
        return frame


def applied(node: Local, frame: pl.DataFrame) -> pl.DataFrame:
    """Return what a local node makes of whole rows."""
    match node:
        case Filter(_, predicate):
            return frame.filter(predicate.payload)
        case Project(_, columns):
            return frame.select(columns)
        case Copy(_, source, name):
            return frame.with_columns(pl.col(source).alias(name))
        case Limit(_, rows):
            return frame.head(rows)
        case Relational(_, between):
            return between.run(frame)  # type: ignore[attr-defined, no-any-return]


def empty_result(pipeline: PhysicalPipeline, base: pl.LazyFrame) -> pl.DataFrame:
    """Return a pipeline's result without rows, for its schema."""
    frame = pl.DataFrame(schema=base.clone().collect_schema())  # others may use the frame
    rights = iter(pipeline.rights)
    steps = [step for stage in pipeline.stages for step in stage.steps]
    for step in (*steps, *pipeline.tail):
        match step:
            case Semantic(_, operator):
                added = dtypes_of(operator).items()
                frame = frame.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in added)
            case Join():
                right = next(rights).frame.clone().collect_schema()  # type: ignore[attr-defined]
                frame = pl.concat([frame, pl.DataFrame(schema=right)], how="horizontal")
            case _:
                frame = applied(step, frame)
    return frame.select(pipeline.columns)
