"""Tuples on their way through a pipeline, and frames made of them again.

A tuple keeps a reference to the batch that it came from, so its columns keep their types and are never
turned into Python objects, except those that a prompt reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from semops.serialize import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from semops.runtime.order import Slot


class Batch:
    """A frame of base rows, with the columns that prompts read as Python lists.

    Parameters
    ----------
    frame
        The rows.
    read
        Columns that a prompt or a copy may read.
    """

    __slots__ = ("columns", "frame", "lists")

    def __init__(self, frame: pl.DataFrame, read: Sequence[str]) -> None:
        self.frame = frame
        self.columns = frozenset(frame.columns)
        self.lists: Final[Mapping[str, list[Any]]] = {
            name: values_of(frame.get_column(name)) for name in read if name in self.columns
        }


class Tuple:
    """One tuple: rows of batches, and the semantic columns that it got so far."""

    __slots__ = ("blocks", "number", "outputs", "parent", "parts", "segments", "slot")

    def __init__(
        self,
        parts: tuple[tuple[Batch, int], ...],
        slot: Slot,
        number: int,
        outputs: dict[str, Any] | None = None,
        parent: Tuple | None = None,
    ) -> None:
        self.parts = parts
        self.slot = slot
        self.number = number
        """Number of the base row that it comes from."""
        self.outputs: dict[str, Any] = outputs if outputs is not None else {}
        self.parent = parent
        self.segments: dict[tuple[str, bool], tuple[int, ...]] = {}
        """Token ids of a field, by (column, whether it comes first)."""
        self.blocks: dict[tuple[Any, ...], tuple[int, ...]] = {}
        """Token ids of whole row blocks, by (style, columns)."""

    def value(self, column: str) -> Any:
        """Return the value of a column that prompts read."""
        if column in self.outputs:
            return self.outputs[column]
        for batch, index in self.parts:
            if column in batch.lists:
                return batch.lists[column][index]
        raise KeyError(column)

    def reset(self, batch: Batch) -> None:
        """Become a row made of this tuple: of what it held before, nothing is seen any more."""
        self.parts = ((batch, 0),)
        self.outputs = {}
        self.parent = None  # its texts need not be the parent's, whatever their names
        self.segments.clear()
        self.blocks.clear()

    def has(self, column: str) -> bool:
        """Return whether the tuple has a column yet."""
        return column in self.outputs or any(column in batch.columns for batch, _ in self.parts)


def assemble(
    tuples: Sequence[Tuple], columns: Sequence[str], dtypes: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Return tuples as a frame.

    Parameters
    ----------
    tuples
        Tuples of one pipeline, in the order wanted.
    columns
        The frame's columns.
    dtypes
        Types of the semantic columns.
    """
    if not columns:
        return pl.DataFrame(height=len(tuples))
    semantic = set().union(*(item.outputs for item in tuples)) if tuples else set()
    wanted = [name for name in columns if name not in semantic]
    frames = []
    for position in range(len(tuples[0].parts)):
        part = _gather([item.parts[position] for item in tuples], wanted)
        frames.append(part)
        wanted = [name for name in wanted if name not in part.columns]
    frame = pl.concat(frames, how="horizontal") if len(frames) > 1 else frames[0]
    if semantic:
        frame = frame.with_columns(
            pl.Series(name, [item.outputs[name] for item in tuples], dtype=dtypes[name])
            for name in columns
            if name in semantic
        )
    return frame.select(columns)


def _gather(rows: Sequence[tuple[Batch, int]], wanted: Sequence[str]) -> pl.DataFrame:
    """Return rows of batches as one frame; rows of one batch that lie together are taken at once."""
    pieces: list[pl.DataFrame] = []
    start = 0
    while start < len(rows):
        batch = rows[start][0]
        end = start
        while end < len(rows) and rows[end][0] is batch:
            end += 1
        names = [name for name in wanted if name in batch.columns]
        indices = [index for _, index in rows[start:end]]
        pieces.append(
            batch.frame.select(names)[indices] if names else pl.DataFrame(height=end - start)
        )
        start = end
    return pieces[0] if len(pieces) == 1 else pl.concat(pieces)
