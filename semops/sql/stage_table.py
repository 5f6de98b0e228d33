"""A stage as a table that DuckDB can scan: an Arrow stream, started anew by each scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import polars as pl
import pyarrow as pa

from semops import session
from semops.engine.answers import AnswerMemo
from semops.engine.demand import Wanted
from semops.errors import warn
from semops.planner.explain import explain
from semops.planner.ir import Filter, Predicate, Project
from semops.planner.polars_reader import outermost, read
from semops.planner.sql_stage import Ask, Bind, Keep, Pair
from semops.polars_source import physical, shown, start
from semops.sql.failures import kept
from semops.sql.gather import Running, gathered, interruptible
from semops.sql.operators import asked, paired

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semops.planner.ir import Node
    from semops.planner.sql_stage import Stage, Step
    from semops.sql.scan import Scan


class Memos:
    """Answers that several queries share, by engine."""

    def __init__(self) -> None:
        self._by_engine: WeakKeyDictionary[Any, AnswerMemo] = WeakKeyDictionary()

    def current(self) -> AnswerMemo:
        """Return the answers of the engine in force, which is started if need be."""
        return self._by_engine.setdefault(session.engine(), AnswerMemo())


class StageTable:
    """What DuckDB scans in the place of a stage.

    Parameters
    ----------
    stage
        What to run.
    scans
        The base query, then the right side's.
    memos
        Answers of the same statement.
    running
        The queries of the connection.
    """

    def __init__(self, stage: Stage, scans: Sequence[Scan], memos: Memos, running: Running) -> None:
        self.stage = stage
        self.scans = tuple(scans)
        self.memos = memos
        self._running = running
        self._node, self.schema = _logical(stage, [scan.lazy() for scan in scans])
        """What it gives to DuckDB, as Polars has it."""
        self._arrow = pl.DataFrame(schema=self.schema).to_arrow().schema

    def load(self) -> None:
        """Run the base queries now that only the connection itself can run."""
        frames = [scan.collect().lazy() if scan.own else scan.lazy() for scan in self.scans]
        self._node, _ = _logical(self.stage, frames)

    def explain(self) -> str:
        """Return how the chain will run."""
        return explain(physical(Project(self._node, tuple(c for c, _ in self.stage.outputs))))

    def __arrow_c_schema__(self) -> object:
        """Return the schema, as Arrow's interface wants it."""
        return self._arrow.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream, as Arrow's interface wants it; nothing runs before it is pulled."""
        return self.stream(None, (), requested_schema)

    def stream(
        self,
        columns: Sequence[int] | None,
        conditions: Sequence[pl.Expr],
        requested_schema: object | None = None,
    ) -> object:
        """Return a new stream of some rows.

        Parameters
        ----------
        columns
            Positions of those that are read; None for all. Without any they are there and NULL.
        conditions
            What holds of all rows, over the chain's columns.
        requested_schema
            As Arrow's interface has it.
        """
        outputs = self.stage.outputs
        fields = self._arrow
        if columns:
            outputs = tuple(outputs[index] for index in columns)
            fields = pa.schema([fields.field(index) for index in columns])
        node = self._node
        for condition in conditions:
            roots = frozenset(condition.meta.root_names())
            node = Filter(node, Predicate(roots, str(condition), condition))
        given = outputs if columns is None or columns else ()
        # Rows without columns can't be counted; a column of the query below costs nothing.
        read = tuple(column for column, _ in given) or self.stage.base.columns[:1]
        rows = self._batches(Project(node, read), given, fields)
        stream = pa.RecordBatchReader.from_batches(fields, rows)
        return stream.__arrow_c_stream__(requested_schema)

    def _batches(
        self, node: Node, given: Sequence[tuple[str, str]], fields: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        stage = self.stage
        left = stage.limit
        # As a hint the limit leaves the chain in one piece: its answers may take turns.
        wanted = Wanted(left, everything=stage.drained and left is None)
        # The first rows are those of the order asked for, whatever else may come as it finishes.
        ordered = None if left is None else True
        query = start(node, self.memos.current(), wanted, ordered=ordered)
        try:
            with kept():
                for rows in gathered(interruptible(query, shown(query), self._running)):
                    frame = rows if left is None else rows.head(left)
                    yield from _named(frame, given, fields).to_batches()
                    if left is not None:
                        left -= frame.height
                        if left <= 0:
                            break
        finally:
            profile = query.finish()
            session.record(profile)
            for scan in self.scans:
                scan.stop()
            # Here, since DuckDB closes the stream of a LIMIT before its end.
            warn(profile.warning())


def _named(frame: pl.DataFrame, given: Sequence[tuple[str, str]], fields: pa.Schema) -> pa.Table:
    if not given:
        nulls = [pa.nulls(frame.height, field.type) for field in fields]
        return pa.Table.from_arrays(nulls, schema=fields)
    named = pl.DataFrame([frame.get_column(column).alias(name) for column, name in given])
    return named.to_arrow().cast(fields)


def _logical(stage: Stage, frames: list[pl.LazyFrame]) -> tuple[Node, pl.Schema]:
    """Return the logical plan of a stage over its base frames, and the schema of what DuckDB reads."""
    right = None
    if stage.right is not None:
        right = _applied(frames[1], stage.right.steps, None)
    steps = list(stage.steps)
    keeps: list[pl.Expr] = []
    while isinstance(last := steps[-1], Keep):
        keeps.append(last.predicate)
        steps.pop()
    base = frames[0]
    if stage.limit is not None and not _drops(stage):
        base = base.head(stage.limit)
    lazy = _applied(base, steps, right)
    schema = lazy.collect_schema()
    source, pushed = outermost(lazy)
    node = read(source, pushed)
    for predicate in reversed(keeps):
        roots = frozenset(predicate.meta.root_names())
        node = Filter(node, Predicate(roots, str(predicate), predicate))
    return node, pl.Schema({name: schema[column] for column, name in stage.outputs})


def _drops(stage: Stage) -> bool:
    return any(
        isinstance(step, (Pair, Keep)) or (isinstance(step, Ask) and step.column is None)
        for step in stage.steps
    )


def _applied(
    frame: pl.LazyFrame, steps: Sequence[Step], right: pl.LazyFrame | None
) -> pl.LazyFrame:
    for step in steps:
        match step:
            case Ask(call, column):
                frame = asked(frame, call.operator, call.instruction, dict(call.options), column)
            case Pair(call):
                assert right is not None  # noqa: S101 - a pair has two sides
                frame = paired(frame, right, call.instruction, dict(call.options))
            case Bind(column, expression):
                frame = frame.with_columns(expression.alias(column))
            case Keep(predicate):
                frame = frame.filter(predicate)
    return frame
