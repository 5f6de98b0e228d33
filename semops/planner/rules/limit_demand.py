"""A LIMIT goes below operators that keep every row, so that only wanted rows are asked about.

Above an operator that drops or multiplies rows it stays where it is; the runner then admits tuples only
on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semops.planner.ir import Copy, Limit, Project, Semantic, Source
from semops.planner.traversal import with_input

if TYPE_CHECKING:
    from semops.planner.ir import Node


def limit_demand(node: Node) -> Node:
    """Return the plan with each limit as low as it may stand."""
    if isinstance(node, Source):
        return node
    below = limit_demand(node.input)
    if not isinstance(node, Limit):
        return with_input(node, below)
    return _sink(below, node.rows)


def _sink(node: Node, rows: int) -> Node:
    keeps_rows = isinstance(node, (Project, Copy)) or (
        isinstance(node, Semantic) and not node.operator.filters
    )
    if keeps_rows:
        assert not isinstance(node, Source)  # noqa: S101 - for the type checker
        return with_input(node, _sink(node.input, rows))
    if isinstance(node, Source):
        return Source(node.relation.head(rows))
    if isinstance(node, Limit):
        return Limit(node.input, min(rows, node.rows))
    return Limit(node, rows)
