"""The ledger of KV memory: every reservation of every query, in tokens.

Admission against one ledger is what keeps a prefix cached until its last reader: reservations never
exceed the budget, so the engine's LRU never has to take a block that somebody waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semops.engine.task import QueryState, Task

HEADROOM = 0.95
"""Share of the KV memory that is given out; the rest absorbs block rounding."""


class Ledger:
    """Reservations against a budget.

    Parameters
    ----------
    kv_tokens
        Physical KV memory, in tokens.
    block_tokens
        Tokens of a block; reservations are rounded up to whole blocks.

    Examples
    --------
    >>> ledger = Ledger(kv_tokens=3_200, block_tokens=32)
    >>> ledger.budget, ledger.rounded(33)
    (3040, 64)
    """

    __slots__ = ("block_tokens", "budget", "physical", "used")

    def __init__(self, kv_tokens: int, block_tokens: int) -> None:
        self.physical = kv_tokens
        self.block_tokens = block_tokens
        self.budget = max(int(kv_tokens * HEADROOM) // block_tokens * block_tokens, block_tokens)
        self.used = 0

    def rounded(self, tokens: int) -> int:
        """Round tokens up to whole blocks."""
        return -(-tokens // self.block_tokens) * self.block_tokens

    def set_reserved(self, task: Task, tokens: int) -> None:
        """Change what a task holds to ``tokens`` (rounded up to blocks)."""
        tokens = self.rounded(tokens)
        delta = tokens - task.reserved
        task.reserved = tokens
        task.query.used += delta
        task.query.stage_used[task.stage] += delta
        self.used += delta

    def check_integrity(self, queries: Iterable[QueryState]) -> None:
        """Check that the totals are the sums of what the tasks hold.

        Raises
        ------
        AssertionError
            If a reservation leaked.
        """
        total = 0
        for query in queries:
            held = sum(task.reserved for task in query.live)
            assert held == query.used, (  # noqa: S101
                f"query {query.key}: tasks hold {held}, books say {query.used}"
            )
            total += held
        assert total == self.used, f"queries hold {total}, ledger says {self.used}"  # noqa: S101
