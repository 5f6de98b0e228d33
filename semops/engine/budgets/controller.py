"""What an admission controller offers; each query has one of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.task import Task


class Sample(NamedTuple):
    """The state of a query's budgets after a round in which something changed."""

    time_s: float
    budgets: tuple[int, ...]
    """Budget of each stage, in tokens; empty where stages have none of their own."""
    used: tuple[int, ...]
    """Tokens reserved by the tasks of each stage."""
    waiting: tuple[int, ...]
    """Tasks of each stage that wait for admission, children yet to be created included."""


class Controller(Protocol):
    """Decides which task may take KV memory."""

    @property
    def budgets(self) -> Sequence[int]:
        """Budget of each stage, in tokens; empty where there are none."""

    def admits(self, task: Task, need: int) -> bool:
        """Return whether a task may start now, reserving ``need`` tokens."""

    def grows(self, task: Task, more: int) -> bool:
        """Return whether an admitted task may reserve ``more`` tokens than it holds."""

    def rebalance(self, total: int) -> None:
        """Move budget between stages; called before each round.

        Parameters
        ----------
        total
            The query's share of the memory, in tokens.
        """
