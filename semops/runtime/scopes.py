"""Which ``collect`` a semantic query belongs to.

Polars calls a source on a thread of its own and doesn't say for whom. A scope remembers the frame that
is being collected; a source finds its scope by looking for itself in the frame's plan. From the scope it
learns whether a LIMIT stands above it, and shares answers with other pulls of the same run (a self-join
pulls its frame twice). When the collect is over, whatever it left running gives its memory back.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from semops.engine.answers import AnswerMemo
from semops.engine.demand import UNKNOWN, Wanted
from semops.planner.polars_reader import collect_with, source_of
from semops.planner.polars_rowwise import between_is_rowwise
from semops.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    seen: dict[int, Wanted] | None = None
    """What the plan wants of each of its semantic sources, by the source's id; None until looked."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wanted(self, source: SemanticSource) -> Wanted | None:
        """Return what the plan wants of a source, or None where it isn't in the plan."""
        with self.lock:
            if self.seen is None:
                self.seen = _look_for_limits(self.frame)
        return self.seen.get(id(source))

    def finish(self) -> Profile | None:
        """Have what the collect left running give back its memory; return what its queries did.

        Polars pulls some more from a source that it is done with, so a query is not ended here. And a
        run that has no scope (a sink, a stream) may pull the same source and be taken for part of this
        one: whoever pulls again gets the rest of the rows.
        """
        ended = []
        with _lock:
            for query in self.queries:
                query.owners -= 1
                if (query.over or not query.owners) and not query.reported:
                    query.reported = True
                    ended.append(query)
        profile = Profile()
        for query in ended:
            query.abandon()
            profile.merge(query.finish())
        return profile if ended else None


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


def find(source: SemanticSource) -> tuple[list[Scope], Wanted]:
    """Return the scopes that a source may run in, and what is wanted of it there.

    Where several threads collect the same frame, either scope is as good for sharing answers; what
    their limits want can't be told apart then, and the query is left alone until the last has ended.
    """
    with _lock:
        candidates = list(reversed(_scopes))
    found = [(scope, scope.wanted(source)) for scope in candidates]
    inside = [(scope, wanted) for scope, wanted in found if wanted is not None]
    return [scope for scope, _ in inside], inside[0][1] if len(inside) == 1 else UNKNOWN


def join(query: Query, scopes: Sequence[Scope]) -> bool:
    """Make a query part of the scopes that have not ended; return whether there is any."""
    with _lock:
        running = [scope for scope in scopes if scope in _scopes]
        query.owners = len(running)
        for scope in running:
            scope.queries.append(query)
    return bool(running)


def collect_part(frame: pl.LazyFrame) -> pl.DataFrame:
    """Collect a part of a semantic query; semantic sources in it stay in the query's scope."""
    return collect_with(frame, lambda *_: None)


EVERYTHING = Wanted(everything=True)


def _look_for_limits(frame: pl.LazyFrame, top: Wanted = EVERYTHING) -> dict[int, Wanted]:
    """Return what a frame's optimised plan wants of each semantic source in it.

    What a source computes from belongs to the same run, so its inputs are looked through too.
    """
    wanted: dict[int, Wanted] = {}
    found: dict[int, SemanticSource] = {}

    def note(source: int, above: Wanted) -> None:
        wanted[source] = _either(wanted.get(source, above), above)

    def visit(traverser: Any, above: Wanted) -> None:
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
                note(id(source), above)
        elif kind == "Slice" and node is not None:
            above = _limited(above, node.offset, node.len)
        elif not (kind and between_is_rowwise(traverser, kind)):
            above = Wanted(None, everything=above.everything and bool(kind))
        for below in traverser.get_inputs():
            traverser.set_node(below)
            visit(traverser, above)
        traverser.set_node(number)

    def inspect(traverser: Any, _duration: object = None) -> None:
        visit(traverser, top)
        empty = pl.DataFrame(schema=traverser.get_schema())
        traverser.set_udf(lambda *_: empty)  # so that nothing runs

    collect_with(frame, inspect)
    for source in found.values():
        # An operator pulls its input on demand, and a join the whole of its right side.
        pulled = Wanted(everything=wanted[id(source)].everything)
        for part, part_top in ((source.upstream, pulled), (source.right, EVERYTHING)):
            for number, above in ({} if part is None else _look_for_limits(part, part_top)).items():
                note(number, above)
    return wanted


def _limited(above: Wanted, offset: int, length: int) -> Wanted:
    """Return what a slice makes of what is wanted above it."""
    if offset < 0:  # from the end: all rows must be seen
        return Wanted(everything=True)
    rows = offset + length
    return Wanted(rows if above.rows is None else min(above.rows, rows))


def _either(first: Wanted, second: Wanted) -> Wanted:
    """Return what two uses of one source want of it."""
    if first.rows is not None and second.rows is not None:
        return Wanted(max(first.rows, second.rows))
    return Wanted(None, first.everything or second.everything)
