"""Cheap predicates go below semantic operators, so that no model is asked about rows that fall anyway.

A predicate stays above an operator that writes one of its columns, and above a LIMIT, which counts
rows before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from collections.abc import Sequence

    from semops.planner.ir import Node, Predicate


def push_predicates(node: Node) -> Node:
    """Return the plan with each cheap predicate as low as it may stand."""
    return _push(node, ())


def _push(node: Node, carried: tuple[Predicate, ...]) -> Node:
    match node:
        case Filter(below, predicate):
            return _push(below, (predicate, *carried))
        case Project(below, columns):
            return Project(_push(below, carried), columns)
        case Limit(below, rows):
            return _above(Limit(_push(below, ()), rows), carried)
        case Semantic(below, operator):
            down, stay = _split(carried, set(operator.writes))
            return _above(Semantic(_push(below, down), operator), stay)
        case Copy(below, source, name):
            down, stay = _split(carried, {name})
            return _above(Copy(_push(below, down), source, name), stay)
        case Join(below, right, operator):
            left, rest = _split(carried, set(right.columns))
            to_right = tuple(p for p in rest if p.columns <= set(right.columns))
            both = tuple(p for p in rest if p not in to_right)
            right = right.filter(to_right) if to_right else right
            return _above(Join(_push(below, left), right, operator), both)
        case Relational():
            return _through_between(node, carried)
        case Source(relation):
            return Source(relation.filter(carried)) if carried else node


def _through_between(node: Relational, carried: tuple[Predicate, ...]) -> Node:
    absorbed = node.between.absorb(carried, node.between.columns)
    stay: tuple[Predicate, ...] = ()
    if absorbed is None:
        stay = carried
        absorbed = node.between.absorb((), node.between.columns)
    if absorbed is None:
        return _above(Relational(_push(node.input, ()), node.between), stay)
    below = node.input
    if absorbed.limit is not None:
        below = Limit(below, absorbed.limit)
    below = _push(below, absorbed.below)
    if absorbed.columns != columns_of(below):
        below = Project(below, absorbed.columns)
    return _above(Relational(below, absorbed.between), stay)


def _above(node: Node, predicates: Sequence[Predicate]) -> Node:
    for predicate in predicates:
        node = Filter(node, predicate)
    return node


def _split(
    carried: tuple[Predicate, ...], writes: set[str]
) -> tuple[tuple[Predicate, ...], tuple[Predicate, ...]]:
    """Split into those that read none of the written columns, and the rest."""
    down = tuple(p for p in carried if not p.columns & writes)
    stay = tuple(p for p in carried if p.columns & writes)
    return down, stay
