"""Equal operators over equal columns are asked once.

A second equal map becomes a copy of the first one's column, a second equal filter goes away. Equal
(operator, tuple) pairs within one operator are found by the engine, which compares prompts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semops.operators import SemFilter, SemMap, reads
from semops.planner.ir import Copy, Join, Project, Relational, Semantic, Source, columns_of
from semops.planner.traversal import chain, with_input

if TYPE_CHECKING:
    from semops.planner.ir import Node


def share_answers(node: Node) -> Node:
    """Return the plan with repeated operators removed."""
    if isinstance(node, Source):
        return node
    node = with_input(node, share_answers(node.input))
    if not isinstance(node, Semantic):
        return node
    kept = set(columns_of(node.input))
    for other in chain(node.input):
        if isinstance(other, (Relational, Join)):
            return node  # columns may have changed their meaning there
        if isinstance(other, Project):
            kept.intersection_update(other.columns)
        if not kept.issuperset(reads(node.operator)):
            return node  # what it reads was made above a projection
        if isinstance(other, Semantic) and kept.issuperset(other.operator.writes):
            shared = _shared(node, other)
            if shared is not None:
                return shared
    return node


def _shared(node: Semantic, earlier: Semantic) -> Node | None:
    mine, theirs = node.operator, earlier.operator
    if isinstance(mine, SemMap) and isinstance(theirs, SemMap):
        same = replace(mine, name="") == replace(theirs, name="")
        return Copy(node.input, theirs.name, mine.name) if same else None
    both_filter = isinstance(mine, SemFilter) and mine.filters and mine == theirs
    return node.input if both_filter and not mine.writes else None
