"""Which ``collect`` a semantic query belongs to.

Polars calls a source on a thread of its own and doesn't say for whom. A scope remembers the frame that
is being collected; a source finds its scope by looking for itself in the frame's plan. From the scope it
learns whether a LIMIT stands above it, and shares answers with other pulls of the same run (a self-join
pulls its frame twice). When the collect is over, so is whatever it left running.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from semops.engine.answers import AnswerMemo
from semops.planner.polars_reader import collect_with, source_of
from semops.planner.polars_rowwise import between_is_rowwise
from semops.profile import Profile

if TYPE_CHECKING:
    from semops.planner.polars_reader import SemanticSource
    from semops.runtime.query import Query

_lock = threading.Lock()
_scopes: list[Scope] = []


@dataclass(eq=False)
class Scope:
    """One running collect."""

    frame: pl.LazyFrame
    memo: AnswerMemo = field(default_factory=AnswerMemo)
    queries: list[Query] = field(default_factory=list)
    """The semantic queries that ran in it."""
    seen: dict[int, int | None] | None = None
    """Rows wanted of each semantic source of the plan, by the source's id; None until looked."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wanted(self, source: SemanticSource) -> tuple[bool, int | None]:
        """Return whether a source is in the plan, and how many of its rows a LIMIT wants."""
        with self.lock:
            if self.seen is None:
                self.seen = _look_for_limits(self.frame)
        return id(source) in self.seen, self.seen.get(id(source))

    def finish(self) -> Profile:
        """End what the collect left running; return what all its queries did."""
        profile = Profile()
        for query in self.queries:
            query.cancel()
            profile.merge(query.finish())
        return profile


def enter(frame: pl.LazyFrame) -> Scope:
    """Open a scope for a collect."""
    scope = Scope(frame)
    with _lock:
        _scopes.append(scope)
    return scope


def leave(scope: Scope) -> None:
    """Close a scope."""
    with _lock:
        _scopes.remove(scope)


def find(source: SemanticSource) -> tuple[Scope | None, int | None]:
    """Return the scope that a source runs in, and the rows that a LIMIT there wants of it.

    Where two threads collect the same frame, either scope is as good for sharing answers; what their
    limits want can't be told apart then.
    """
    with _lock:
        candidates = list(reversed(_scopes))
    found = [(scope, *scope.wanted(source)) for scope in candidates]
    inside = [(scope, wanted) for scope, contains, wanted in found if contains]
    if len(inside) == 1:
        return inside[0]
    return (inside[0][0], None) if inside else (None, None)


def collect_part(frame: pl.LazyFrame) -> pl.DataFrame:
    """Collect a part of a semantic query; semantic sources in it stay in the query's scope."""
    return collect_with(frame, lambda *_: None)


def _look_for_limits(frame: pl.LazyFrame) -> dict[int, int | None]:
    """Return the rows wanted of each semantic source in a frame's optimised plan.

    What a source computes from belongs to the same run, so its inputs are looked through too.
    """
    wanted: dict[int, int | None] = {}
    found: dict[int, SemanticSource] = {}

    def note(source: int, limit: int | None) -> None:
        known = wanted.get(source, limit)
        wanted[source] = None if known is None or limit is None else max(known, limit)

    def visit(traverser: Any, limit: int | None) -> None:
        number = traverser.get_node()
        try:
            node = traverser.view_current_node()
            kind = type(node).__name__
        except NotImplementedError:  # a node that Polars does not expose
            node, kind = None, ""
        if kind == "PythonScan":
            source = source_of(node)
            if source is not None:
                found[id(source)] = source
                note(id(source), limit)
        elif kind == "Slice" and node is not None:
            reaches = node.offset + node.len if node.offset >= 0 else None
            limit = reaches if limit is None or reaches is None else min(limit, reaches)
        elif not (kind and between_is_rowwise(traverser, kind)):
            limit = None
        for below in traverser.get_inputs():
            traverser.set_node(below)
            visit(traverser, limit)
        traverser.set_node(number)

    def inspect(traverser: Any, _duration: object = None) -> None:
        visit(traverser, None)
        empty = pl.DataFrame(schema=traverser.get_schema())
        traverser.set_udf(lambda *_: empty)  # so that nothing runs

    collect_with(frame, inspect)
    for source in found.values():
        for part in (source.upstream, source.right):
            for number, limit in ({} if part is None else _look_for_limits(part)).items():
                note(number, limit)
    return wanted
