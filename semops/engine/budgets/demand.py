"""The ``demand`` controller: one pool, with room kept for the children that are to come.

A child is admitted wherever it fits, since its prefix is already paid for. A task of an earlier stage
leaves room for one task of each later stage, and for the children that running tasks are expected to
have, over-committed by :data:`OVERCOMMIT`. Fixed budgets a stage would leave the memory of a starving
stage idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.engine.ledger import Ledger
    from semops.engine.task import QueryState, Task

OVERCOMMIT = 1.5
"""How much expected demand may exceed the budget. Not all children come at once; 1.0 was up to 25 %
slower and 1 to 3 within 5 % of each other in simulation."""


def admits(task: Task, need: int, ledger: Ledger) -> bool:
    """Return whether a task fits now.

    Parameters
    ----------
    task
        A waiting task.
    need
        What it would reserve, in tokens.
    ledger
        The reservations so far.
    """
    total = ledger.used + need
    if total > ledger.budget:
        return False
    query = task.query
    stages = len(query.pipeline.stages)
    if task.stage == stages - 1:
        return True
    later = range(task.stage + 1, stages)
    floors = sum(ledger.rounded(int(query.child_need[stage])) for stage in later)
    if total + floors > ledger.budget:
        return False
    if not query.live:
        return True
    return total + _expected_children(query, task.stage) <= OVERCOMMIT * ledger.budget


def _expected_children(query: QueryState, stage: int) -> float:
    """Return the KV that children known or expected will ask for, in tokens."""
    fan_out = query.pipeline.products[stage].right_rows
    need = query.child_need[stage + 1]
    known = sum(parent.children_left for parent in query.parents[stage])
    running = query.active if stage == 0 else 0
    return need * (known + (running + 1) * query.pass_rate * fan_out)
