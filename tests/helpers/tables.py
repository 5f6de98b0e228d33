"""A front end without rows, for tests of the planner: tables and row-wise work that only have names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from semops.operators import SemFilter, SemJoin, SemMap, label
from semops.planner.ir import (
    Absorbed,
    Copy,
    Filter,
    Join,
    Limit,
    Node,
    Predicate,
    Project,
    Relational,
    Semantic,
    Source,
)
from semops.planner.traversal import chain
from semops.template import bind_join, parse


@dataclass(frozen=True)
class Table:
    """A relation that remembers what it was asked for."""

    columns: tuple[str, ...]
    done: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(["table", *self.done])

    def filter(self, predicates: Sequence[Predicate]) -> Table:
        wheres = tuple(f"where {p.text}" for p in predicates)
        return replace(self, done=(*self.done, *wheres))

    def select(self, columns: Sequence[str]) -> Table:
        return Table(tuple(columns), (*self.done, f"select {','.join(columns)}"))

    def head(self, rows: int) -> Table:
        return replace(self, done=(*self.done, f"head {rows}"))


@dataclass(frozen=True)
class Computed:
    """Row-wise work that adds a column; takes conditions on other columns through it."""

    inputs: tuple[str, ...]
    new: str
    columns: tuple[str, ...]
    text: str = "compute"
    opaque: bool = False

    def absorb(self, predicates: Sequence[Predicate], columns: Sequence[str]) -> Absorbed | None:
        if self.opaque and (predicates or tuple(columns) != self.columns):
            return None
        below = tuple(p for p in predicates if self.new not in p.columns)
        inside = [p.text for p in predicates if self.new in p.columns]
        between = replace(self, columns=tuple(columns), text=" & ".join([self.text, *inside]))
        return Absorbed(between, below, self.inputs, None)


TABLE = Source(Table(("text", "title", "year")))


def where(text: str, *columns: str) -> Predicate:
    return Predicate(frozenset(columns), text, None)


def sem_filter(below: Node, instruction: str = "{text} is kind", **options: str) -> Semantic:
    return Semantic(below, SemFilter(parse(instruction), **options))


def sem_map(below: Node, instruction: str = "Sum up {text}", name: str = "summary") -> Semantic:
    return Semantic(below, SemMap(parse(instruction), name))


def sem_join(below: Node, right: Table, instruction: str) -> Join:
    left = ("text", "title", "year")
    template = bind_join(parse(instruction), left, right.columns)
    return Join(below, right, SemJoin(template, tuple((c, c) for c in right.columns)))


def show(node: Node) -> list[str]:
    """Return a plan as words, the source first."""
    return [_word(part) for part in chain(node)][::-1]


def _word(node: Node) -> str:
    match node:
        case Source(relation):
            return relation.text
        case Filter(_, predicate):
            return f"where {predicate.text}"
        case Project(_, columns):
            return f"select {','.join(columns)}"
        case Limit(_, rows):
            return f"head {rows}"
        case Relational(_, between):
            return between.text
        case Semantic(_, operator):
            return label(operator)
        case Copy(_, source, name):
            return f"copy {source} {name}"
        case Join(_, right, _):
            return f"join {right.text}"
