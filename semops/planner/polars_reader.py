"""Reads Polars plans: finds the chain of semantic operators below a frame.

A semantic operator is an IO source inside a real Polars plan. Polars optimises what lies above and
between; this module looks at the optimised plan (nothing runs) to see whether what lies between two
semantic operators is row-wise, so that both can work on one tuple at a time. Wherever it is not sure,
the lower operator becomes part of the table at the bottom, which is always right and shares less.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import polars as pl

from semops.errors import PlanError
from semops.operators import SemJoin
from semops.planner.ir import (
    Absorbed,
    Filter,
    Join,
    Limit,
    Predicate,
    Project,
    Relational,
    Semantic,
    Source,
    columns_of,
)
from semops.planner.polars_rowwise import between_is_rowwise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semops.operators import Operator
    from semops.planner.ir import Node


class SemanticSource(Protocol):
    """What a front end's IO source offers to the reader."""

    upstream: pl.LazyFrame
    upstream_columns: tuple[str, ...]
    operator: Operator
    right: pl.LazyFrame | None

    def schema(self) -> pl.Schema:
        """Return the schema of the source's output."""


class Pushed(NamedTuple):
    """What Polars hands to a source."""

    columns: list[str] | None
    predicate: pl.Expr | None
    rows: int | None


_thread = threading.local()


def capture(pushed: Pushed) -> bool:
    """Note what Polars pushes to a source while this thread only looks at a plan.

    Returns
    -------
    bool
        True while looking: the source must then yield no rows.
    """
    seen: list[Pushed] | None = getattr(_thread, "seen", None)
    if seen is None:
        return False
    seen.append(pushed)
    return True


NOTHING_PUSHED = Pushed(None, None, None)


def read(source: SemanticSource, pushed: Pushed = NOTHING_PUSHED) -> Node:
    """Return the logical plan of a semantic source and all semantic sources fused below it.

    Parameters
    ----------
    source
        The outermost semantic source.
    pushed
        What Polars wants of it.
    """
    leaf = _look(source.upstream)
    columns = source.upstream_columns
    node: Node
    if leaf is None:
        node = Source(PolarsRelation(source.upstream, columns))
    elif leaf.direct:
        node = read(leaf.source, leaf.pushed)
        node = node if columns_of(node) == columns else Project(node, columns)
    else:
        between = PolarsBetween(source.upstream, columns, leaf.source)
        node = Relational(read(leaf.source), between)
    if isinstance(source.operator, SemJoin):
        assert source.right is not None  # noqa: S101 - a join has a right side
        right = source.right.rename(dict(source.operator.right_names))
        node = Join(node, PolarsRelation(right, source.operator.writes), source.operator)
    else:
        node = Semantic(node, source.operator)
    return _with_pushed(node, pushed)


def _with_pushed(node: Node, pushed: Pushed) -> Node:
    # A source's n_rows counts rows before the predicate that comes with it.
    if pushed.rows is not None:
        node = Limit(node, pushed.rows)
    for predicate in _predicates(pushed.predicate):
        node = Filter(node, predicate)
    if pushed.columns is not None:
        node = Project(node, tuple(pushed.columns))
    return node


def _predicates(expression: pl.Expr | None) -> tuple[Predicate, ...]:
    if expression is None:
        return ()
    return tuple(
        Predicate(frozenset(part.meta.root_names()), str(part), part)
        for part in _conjuncts(expression)
    )


def _conjuncts(expression: pl.Expr) -> Iterator[pl.Expr]:
    """Split an expression at its outermost ANDs."""
    parts = expression.meta.pop()
    if len(parts) == 2 and (parts[1] & parts[0]).meta == expression:
        yield from _conjuncts(parts[1])
        yield from _conjuncts(parts[0])
    else:
        yield expression


@dataclass(frozen=True, slots=True)
class PolarsRelation:
    """A lazy frame as the table at the bottom."""

    frame: pl.LazyFrame
    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The optimised plan of the table, on one line."""
        return one_line(self.frame)

    def filter(self, predicates: Sequence[Predicate]) -> PolarsRelation:
        """Keep the rows where all conditions hold."""
        kept = self.frame.filter(*(p.payload for p in predicates))
        return PolarsRelation(kept, self.columns)

    def select(self, columns: Sequence[str]) -> PolarsRelation:
        """Keep columns."""
        return PolarsRelation(self.frame.select(columns), tuple(columns))

    def head(self, rows: int) -> PolarsRelation:
        """Keep the first rows."""
        return PolarsRelation(self.frame.head(rows), self.columns)


@dataclass(frozen=True, slots=True)
class PolarsBetween:
    """Row-wise Polars work on top of a semantic source."""

    frame: pl.LazyFrame
    columns: tuple[str, ...]
    leaf: SemanticSource

    @property
    def text(self) -> str:
        """The plan's nodes between the two semantic operators."""
        return one_line(self.frame).rpartition(" < PYTHON[")[0]

    def absorb(self, predicates: Sequence[Predicate], columns: Sequence[str]) -> Absorbed | None:
        """Take conditions and a selection; Polars says what of them stands below."""
        frame = self.frame
        if predicates:
            frame = frame.filter(*(p.payload for p in predicates))
        if tuple(columns) != self.columns:
            frame = frame.select(columns)
        leaf = _look(frame)
        if leaf is None or leaf.source is not self.leaf:
            return None
        wanted = leaf.pushed.columns
        below = tuple(self.leaf.schema()) if wanted is None else tuple(wanted)
        between = PolarsBetween(frame, tuple(columns), self.leaf)
        return Absorbed(between, _predicates(leaf.pushed.predicate), below, leaf.pushed.rows)

    def run(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Do the work on rows that come out of the leaf (its predicates are applied already)."""

        def feed(traverser: Any, _duration: object = None) -> None:
            root = traverser.get_node()
            while type(traverser.view_current_node()).__name__ != "PythonScan":
                traverser.set_node(traverser.get_inputs()[0])
            columns = list(traverser.get_schema())
            traverser.set_udf(lambda *_: rows.select(columns))
            traverser.set_node(root)

        return collect_with(self.frame, feed)


class _Leaf(NamedTuple):
    source: SemanticSource
    pushed: Pushed
    direct: bool
    """Whether all the work that was there is in what Polars pushes."""


def collect_with(frame: pl.LazyFrame, callback: Callable[..., None]) -> pl.DataFrame:
    """Collect a frame after a callback has seen, and perhaps changed, its optimised plan.

    The callback runs on this thread, and so does a linear plan in Polars' in-memory engine.
    """
    # Polars hands plans to its GPU engine through this argument; its type stubs don't name it.
    return frame.collect(engine="in-memory", post_opt_callback=callback)  # type: ignore[call-overload, no-any-return]


def _look(frame: pl.LazyFrame) -> _Leaf | None:
    """Return the semantic source below row-wise nodes, and what Polars pushes to it."""
    path: list[str] = []
    found: list[SemanticSource] = []

    def inspect(traverser: Any, _duration: object = None) -> None:
        root = traverser.get_node()
        source = _descend(traverser, path)
        if source is None:
            traverser.set_node(root)
            empty = pl.DataFrame(schema=traverser.get_schema())
            traverser.set_udf(lambda *_: empty)  # so that nothing runs
        else:
            found.append(source)
            traverser.set_node(root)

    seen: list[Pushed] = []
    _thread.seen = seen
    try:
        collect_with(frame, inspect)
    finally:
        _thread.seen = None
    if not found or len(seen) != 1:
        return None
    pushed: Pushed = seen[0]
    return _Leaf(found[0], pushed, direct=path == ["PythonScan"])


def _descend(traverser: Any, path: list[str]) -> SemanticSource | None:
    """Walk down through row-wise nodes to a semantic source."""
    while True:
        try:
            node = traverser.view_current_node()
        except NotImplementedError:  # a node that Polars does not expose
            return None
        kind = type(node).__name__
        path.append(kind)
        if kind == "PythonScan":
            return source_of(node)
        inputs = traverser.get_inputs()
        if len(inputs) != 1 or not between_is_rowwise(traverser, kind):
            return None
        traverser.set_node(inputs[0])


def source_of(scan: Any) -> SemanticSource | None:
    """Return the semantic source behind a Python scan, or None for another kind of scan."""
    source = getattr(scan.options[0], "io_source", None)
    has_all = all(
        hasattr(source, name)
        for name in ("upstream", "upstream_columns", "operator", "right", "schema")
    )
    return source if has_all else None


def one_line(frame: pl.LazyFrame, limit: int = 160) -> str:
    """Return a frame's plan on one line.

    Examples
    --------
    >>> one_line(pl.LazyFrame({"a": [1]}).filter(pl.col("a") > 0))
    'DF ["a"] where col("a") > 0'
    """
    kept = []
    where = ""
    for raw in frame.explain().splitlines():
        line = raw.strip()
        head, _, rest = line.partition(" ")
        if head in {"SELECTION:", "FILTER"}:
            where = f" where {rest}"
        elif line and head not in {"FROM", "PROJECT", "INFO:", "PROJECT*"}:
            kept.append(line.partition(";")[0])
    text = " < ".join(kept) + where
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def direct(frame: pl.LazyFrame) -> tuple[Any, Pushed] | None:
    """Return the semantic source that gives a frame's rows as they are, and what Polars pushes to it.

    Returns None where Polars does work above it that is not in what it pushes.
    """
    leaf = _look(frame)
    return (leaf.source, leaf.pushed) if leaf is not None and leaf.direct else None


def outermost(frame: pl.LazyFrame) -> tuple[Any, Pushed]:
    """Return the semantic source below a frame's row-wise nodes, and what Polars pushes to it.

    Raises
    ------
    PlanError
        If there is none.
    """
    leaf = _look(frame)
    if leaf is None:
        msg = (
            "no semantic operator is on top of this plan, or Polars does work above it that is not "
            "row-wise. Explain the part of the plan that ends in the semantic operator."
        )
        raise PlanError(msg)
    return leaf.source, leaf.pushed
