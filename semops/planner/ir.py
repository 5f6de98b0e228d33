"""The logical plan: frozen nodes, one input each, read from the top down.

What a front end's own plan does between semantic operators stays opaque to the planner: a
:class:`Relation` is the table at the bottom, a :class:`Between` is row-wise work on the way up. Both
are protocols that a plan reader implements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.operators import SemFilter, SemJoin, SemMap


@dataclass(frozen=True, slots=True)
class Predicate:
    """A cheap condition of the front end's."""

    columns: frozenset[str]
    """What it reads."""
    text: str
    """How plans show it."""
    payload: Any
    """The front end's own expression."""


class Relation(Protocol):
    """A table that the front end can produce."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names, in order."""

    @property
    def text(self) -> str:
        """How plans show it."""

    def filter(self, predicates: Sequence[Predicate]) -> Relation:
        """Return the table with only the rows where all conditions hold."""

    def select(self, columns: Sequence[str]) -> Relation:
        """Return the table with only these columns, in this order."""

    def head(self, rows: int) -> Relation:
        """Return the first rows of the table."""


class Absorbed(NamedTuple):
    """What :meth:`Between.absorb` gives back."""

    between: Between
    below: tuple[Predicate, ...]
    """Conditions that now stand below it."""
    columns: tuple[str, ...]
    """What it reads."""
    limit: int | None
    """How many rows it wants, before the conditions below."""


class Between(Protocol):
    """Row-wise work between two semantic operators: it makes at most one row of a row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of its output, in order."""

    @property
    def text(self) -> str:
        """How plans show it."""

    def absorb(self, predicates: Sequence[Predicate], columns: Sequence[str]) -> Absorbed | None:
        """Take conditions and a column selection that stood above it.

        Returns None where that would make it something else than row-wise work.
        """


@dataclass(frozen=True, slots=True)
class Source:
    """The table at the bottom."""

    relation: Relation


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows where a cheap condition holds."""

    input: Node
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Project:
    """Keeps columns, in this order."""

    input: Node
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """Keeps the first rows."""

    input: Node
    rows: int


@dataclass(frozen=True, slots=True)
class Relational:
    """Row-wise work of the front end's between two semantic operators."""

    input: Node
    between: Between


@dataclass(frozen=True, slots=True)
class Semantic:
    """A semantic filter or map."""

    input: Node
    operator: SemFilter | SemMap


@dataclass(frozen=True, slots=True)
class Copy:
    """A column that another one already holds."""

    input: Node
    source: str
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    """A semantic join with a static right side, whose columns have their names in the result."""

    input: Node
    right: Relation
    operator: SemJoin


Node = Source | Filter | Project | Limit | Relational | Semantic | Copy | Join


def columns_of(node: Node) -> tuple[str, ...]:
    """Return the columns of a node's output, in order."""
    match node:
        case Source(relation):
            return relation.columns
        case Filter(below, _) | Limit(below, _):
            return columns_of(below)
        case Project(_, columns):
            return columns
        case Relational(_, between):
            return between.columns
        case Semantic(below, operator):
            return (*columns_of(below), *operator.writes)
        case Copy(below, _, name):
            return (*columns_of(below), name)
        case Join(below, right, _):
            return (*columns_of(below), *right.columns)
