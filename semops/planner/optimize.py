"""The optimizer: a tuple of rewrite rules and a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from semops.planner.rules.limit_demand import limit_demand
from semops.planner.rules.prune_columns import prune_columns
from semops.planner.rules.push_predicates import push_predicates
from semops.planner.rules.share_answers import share_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semops.planner.ir import Node

    Rule = Callable[[Node], Node]

RULES: Final[tuple[Rule, ...]] = (push_predicates, share_answers, prune_columns, limit_demand)
"""Predicates first: they decide which columns are read. Limits last, when nothing moves any more."""


def optimize(plan: Node, rules: Sequence[Rule] = RULES) -> Node:
    """Return an equivalent plan that asks the model less.

    Parameters
    ----------
    plan
        A logical plan.
    rules
        Rewrites, applied once each, in order.
    """
    for rule in rules:
        plan = rule(plan)
    return plan
