"""The ``kalypso`` controller: budgets that move between stages (Kalypso, Algorithm 1).

Each stage starts with the least that one of its tasks needs, the last with all the rest. A stage whose
queue runs empty (*starvation*) gives budget to the stage before it, which fills the queue; a stage whose
queue is long (*saturation*) has budget moved to the last stage, which drains it. Only free budget moves.

References
----------
Son et al., "Kalypso: Relational LLM Serving", arXiv 2607.23815, Algorithm 1 (as reported there: the
thresholds; amount and donors of a move are ours).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semops.engine.budgets.static import numbers
from semops.errors import ConfigError

if TYPE_CHECKING:
    from semops.engine.ledger import Ledger
    from semops.engine.task import QueryState, Task

ALPHA, BETA = 1.0, 0.5
"""Saturated above ``ALPHA * budget / minimum`` waiting tasks, starved below ``BETA`` times it."""


class Kalypso:
    """The controller of one query.

    Parameters
    ----------
    query
        Its queues and tasks.
    ledger
        The reservations of all queries.
    parameters
        ``ALPHA:BETA``; empty for the defaults.

    Raises
    ------
    ConfigError
        If there are not two positive numbers.
    """

    def __init__(self, query: QueryState, ledger: Ledger, parameters: str = "") -> None:
        self._query = query
        self._ledger = ledger
        found = numbers(parameters, "kalypso") or [ALPHA, BETA]
        if len(found) != 2:
            raise ConfigError(
                f"controller='kalypso:{parameters}' needs two numbers, ALPHA and BETA, for example "
                f"'kalypso:1:0.5'."
            )
        self.alpha, self.beta = found
        self._total = ledger.budget
        self.least = [self._cap(need) for need in query.child_need]
        self.budgets = [*self.least[:-1], 0]
        self.budgets[-1] = self._total - sum(self.budgets)

    def admits(self, task: Task, need: int) -> bool:
        """Return whether a task fits into its stage's budget, borrowing for a lone large one."""
        stage = task.stage
        self._raise_least(stage, need)
        if self._ledger.used + need > self._ledger.budget:
            return False
        used = self._query.stage_used[stage]
        if used == 0 and need > self.budgets[stage]:
            self._borrow(stage, need - self.budgets[stage])
        return used + need <= self.budgets[stage]

    def grows(self, task: Task, more: int) -> bool:
        """Return whether what a task needs more fits, with what other stages have free."""
        stage = task.stage
        used = self._query.stage_used[stage]
        if used + more > self.budgets[stage]:
            self._borrow(stage, used + more - self.budgets[stage])
        return used + more <= self.budgets[stage]

    def rebalance(self, total: int) -> None:
        """Move free budget against starvation and saturation, from the last stage to the first."""
        self._follow(total)
        last = len(self.budgets) - 1
        for stage in range(last, 0, -1):
            waiting = self._query.waiting_in(stage)
            width = self.budgets[stage] / max(self.least[stage], 1)
            if waiting < self.beta * width:
                self._move(stage, self._before(stage))
            elif waiting > self.alpha * width:
                self._drain(stage, last)
        if last and self._query.exhausted and not self._query.waiting[0]:
            self._move(0, last, self._free(0))

    def _drain(self, saturated: int, last: int) -> None:
        """Give the last stage budget from the saturated one, else from whichever has most free."""
        wanted = self.least[last]
        if saturated != last and self._spare(saturated) >= wanted:
            self._move(saturated, last)
            return
        donors = [stage for stage in range(last) if self._spare(stage) >= wanted]
        if donors:
            self._move(max(donors, key=self._spare), last)

    def _before(self, stage: int) -> int:
        """Return the nearest stage before one that isn't starved itself."""
        stage -= 1
        while stage > 0:
            width = self.budgets[stage] / max(self.least[stage], 1)
            if self._query.waiting_in(stage) >= self.beta * width:
                break
            stage -= 1
        return stage

    def _move(self, donor: int, receiver: int, amount: int | None = None) -> None:
        """Move budget, at most what the donor can spare."""
        wanted = self.least[receiver] if amount is None else amount
        moved = min(wanted, self._spare(donor))
        self.budgets[donor] -= moved
        self.budgets[receiver] += moved

    def _raise_least(self, stage: int, need: int) -> None:
        """Raise what a stage keeps at least to what its largest task needs, as far as that is free."""
        wanted = self._cap(need)
        if wanted > self.budgets[stage]:
            self._borrow(stage, wanted - self.budgets[stage])
        self.least[stage] = max(self.least[stage], min(wanted, self.budgets[stage]))

    def _borrow(self, stage: int, missing: int) -> None:
        """Take free budget for one large task, if all stages together have it."""
        donors = [s for s in range(len(self.budgets)) if s != stage]
        if sum(map(self._spare, donors)) < missing:
            return
        for donor in sorted(donors, key=self._spare, reverse=True):
            moved = min(missing, self._spare(donor))
            self.budgets[donor] -= moved
            self.budgets[stage] += moved
            missing -= moved

    def _free(self, stage: int) -> int:
        return max(self.budgets[stage] - self._query.stage_used[stage], 0)

    def _spare(self, stage: int) -> int:
        """Return what a stage can give: free, and above the least that one task needs."""
        return max(min(self._free(stage), self.budgets[stage] - self.least[stage]), 0)

    def _cap(self, need: float) -> int:
        """Return a least budget; larger tasks run alone."""
        share = self._total // len(self._query.pipeline.stages)
        return min(self._ledger.rounded(int(need)) or self._ledger.block_tokens, share)

    def _follow(self, total: int) -> None:
        """Take a changed share of the memory into the budgets, the last stage's first.

        Only what is free is given up, so that a smaller share is reached as tasks end.
        """
        last = len(self.budgets) - 1
        if total > self._total:
            self.budgets[last] += total - self._total
        elif total < self._total:
            self.least = [min(least, total // (last + 1)) for least in self.least]
            for stage in range(last, -1, -1):
                self.budgets[stage] -= min(self._spare(stage), sum(self.budgets) - total)
        self._total = sum(self.budgets)
