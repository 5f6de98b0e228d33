"""Walking a plan: it is a chain, so a list of nodes from the top down says it all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from semops.planner.ir import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semops.planner.ir import Node


def chain(node: Node) -> Iterator[Node]:
    """Yield the nodes of a plan from the top to the source."""
    yield node
    while not isinstance(node, Source):
        node = node.input
        yield node


def with_input(node: Node, below: Node) -> Node:
    """Return the node over another input; the same object where nothing changed."""
    if isinstance(node, Source) or node.input is below:
        return node
    return replace(node, input=below)
