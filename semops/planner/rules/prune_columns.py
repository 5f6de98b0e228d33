"""Columns that nobody reads are not carried, and a semantic column that nobody reads is not computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semops.operators import SemFilter, SemJoin, reads
from semops.planner.ir import (
    Copy,
    Filter,
    Join,
    Limit,
    Project,
    Relational,
    Semantic,
    Source,
    columns_of,
)

if TYPE_CHECKING:
    from semops.planner.ir import Node


def prune_columns(node: Node) -> Node:
    """Return the plan with unused columns and unused semantic maps removed."""
    wanted = columns_of(node)
    pruned = _prune(node, frozenset(wanted))
    return pruned if columns_of(pruned) == wanted else Project(pruned, wanted)


def _prune(node: Node, wanted: frozenset[str]) -> Node:
    match node:
        case Filter(below, predicate):
            return Filter(_prune(below, wanted | predicate.columns), predicate)
        case Project(below, columns):
            kept = tuple(c for c in columns if c in wanted)
            inner = _prune(below, frozenset(kept))
            return inner if columns_of(inner) == kept else Project(inner, kept)
        case Limit(below, rows):
            return Limit(_prune(below, wanted), rows)
        case Semantic(below, operator):
            written = frozenset(operator.writes)
            drops_rows = isinstance(operator, SemFilter) and operator.filters
            if not drops_rows and not written & wanted:
                return _prune(below, wanted)
            return Semantic(_prune(below, (wanted - written) | set(reads(operator))), operator)
        case Copy(below, source, name):
            if name not in wanted:
                return _prune(below, wanted)
            return Copy(_prune(below, (wanted - {name}) | {source}), source, name)
        case Join(below, right, operator):
            return _prune_join(below, right, operator, wanted)
        case Relational(below, between):
            kept = tuple(c for c in between.columns if c in wanted)
            absorbed = between.absorb((), kept)
            if absorbed is None:
                return Relational(_prune(below, frozenset(columns_of(below))), between)
            inner = _prune(below, frozenset(absorbed.columns))
            if columns_of(inner) != absorbed.columns:
                inner = Project(inner, absorbed.columns)
            return Relational(inner, absorbed.between)
        case Source(relation):
            kept = tuple(c for c in relation.columns if c in wanted)
            return node if kept == relation.columns else Source(relation.select(kept))


def _prune_join(below: Node, right: object, operator: SemJoin, wanted: frozenset[str]) -> Node:
    node = Join(below, right, operator)  # type: ignore[arg-type]
    needed = wanted | set(reads(operator))
    kept = tuple(c for c in node.right.columns if c in needed)
    pruned = node.right if kept == node.right.columns else node.right.select(kept)
    left = frozenset(needed - set(node.right.columns))
    return Join(_prune(below, left), pruned, operator)
