"""The ``demand`` controller: one pool, with room kept for the children that are to come.

A child is admitted wherever it fits, since its prefix is already paid for. A task of an earlier stage
leaves room for one task of each later stage, and for the children that wait or that running tasks of its
stage are expected to have, over-committed by :data:`OVERCOMMIT`. Fixed budgets a stage would leave the
memory of a starving stage idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.engine.ledger import Ledger
    from semops.engine.task import QueryState, Task

OVERCOMMIT = 1.5
"""How much expected demand may exceed the budget: not all children come at once."""


class Demanded:
    """The controller of one query.

    Parameters
    ----------
    query
        Its tasks and running means.
    ledger
        The reservations of all queries.
    parameters
        None are taken.
    """

    budgets: tuple[int, ...] = ()

    def __init__(self, query: QueryState, ledger: Ledger, parameters: str = "") -> None:
        del parameters
        self._query = query
        self._ledger = ledger

    def admits(self, task: Task, need: int) -> bool:
        """Return whether a task fits now, and what is to come after it too."""
        query, ledger = self._query, self._ledger
        total = ledger.used + need
        if total > ledger.budget:
            return False
        stages = len(query.pipeline.stages)
        if task.stage == stages - 1:
            return True
        later = range(task.stage + 1, stages)
        floors = sum(ledger.rounded(int(query.child_need[stage])) for stage in later)
        if total + floors > ledger.budget:
            return False
        if not query.live:
            return True
        return total + self._expected_children(task.stage) <= OVERCOMMIT * ledger.budget

    def grows(self, task: Task, more: int) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return True: what it holds already would be lost."""
        return True

    def rebalance(self, total: int) -> None:
        """Do nothing: there is one pool."""

    def _expected_children(self, stage: int) -> float:
        """Return the KV that children known or expected will ask for, in tokens."""
        query = self._query
        fan_out = query.pipeline.products[stage].right_rows
        need = query.child_need[stage + 1]
        coming = (query.active_in[stage] + 1) * query.pass_rate * fan_out
        return need * (query.waiting_in(stage + 1) + coming)
