"""The ``static`` controller: a fixed share of the memory for each stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from semops.errors import ConfigError

if TYPE_CHECKING:
    from semops.engine.ledger import Ledger
    from semops.engine.task import QueryState, Task


class Static:
    """The controller of one query.

    Parameters
    ----------
    query
        Its tasks.
    ledger
        The reservations of all queries.
    parameters
        Shares of the stages, first stage first, such as ``1:9``; equal where left out.

    Raises
    ------
    ConfigError
        If there is not one positive number for each stage.
    """

    def __init__(self, query: QueryState, ledger: Ledger, parameters: str = "") -> None:
        stages = len(query.pipeline.stages)
        shares = numbers(parameters, "static") or [1.0] * stages
        if len(shares) != stages:
            # One setting serves all queries; one with other stages gets equal shares.
            shares = [1.0] * stages
        self._query = query
        self._ledger = ledger
        self._shares = [share / sum(shares) for share in shares]
        self.budgets: list[int] = []
        self.rebalance(ledger.budget)

    def admits(self, task: Task, need: int) -> bool:
        """Return whether a task fits into its stage's share."""
        fits = self._ledger.used + need <= self._ledger.budget
        return fits and self._query.stage_used[task.stage] + need <= self.budgets[task.stage]

    def grows(self, task: Task, more: int) -> bool:
        """Return whether what a task needs more fits into its stage's share."""
        return self._query.stage_used[task.stage] + more <= self.budgets[task.stage]

    def rebalance(self, total: int) -> None:
        """Follow the query's share of the memory; the split stays."""
        self.budgets = [int(total * share) for share in self._shares[:-1]]
        self.budgets.append(total - sum(self.budgets))


def numbers(parameters: str, name: str) -> list[float]:
    """Return the positive numbers in ``1:9``.

    Raises
    ------
    ConfigError
        If one is not a positive number.

    Examples
    --------
    >>> numbers("1:9", "static")
    [1.0, 9.0]
    """
    try:
        found = [float(part) for part in parameters.split(":")] if parameters else []
    except ValueError:
        found = [-1.0]
    if not all(0 < number < math.inf for number in found):
        raise ConfigError(
            f"controller='{name}:{parameters}' needs positive numbers between colons, for example "
            f"'{name}:1:9'."
        )
    return found
