"""Explicit pinning: keep a retained prefix out of eviction's reach.

Admission alone (*virtual* pinning) keeps prefixes cached as long as every reader comes soon. Blocks
of finished suffixes are newer in the LRU than the prefix of a parent whose children wait, so where the
backend can, the prefix is pinned while a task is between two steps or waits for its children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semops.engine.task import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.backend import Backend
    from semops.engine.task import Task


class Pins:
    """Pins held for tasks.

    Parameters
    ----------
    backend
        Where blocks are pinned.
    enabled
        False for virtual pinning: every method does nothing then.
    """

    __slots__ = ("_backend", "_held", "enabled", "failure")

    def __init__(self, backend: Backend, *, enabled: bool) -> None:
        self._backend = backend
        self._held: dict[int, int] = {}
        """Tokens pinned, by task key."""
        self.enabled = enabled
        self.failure: Exception | None = None
        """Why the backend could not do it. Whoever gives memory back must get to its end all the same."""

    def hold(self, task: Task, token_ids: Sequence[int]) -> None:
        """Pin what is cached of a prefix."""
        if self.enabled and len(token_ids):
            try:
                self._backend.unpin(task.key)
                self._held[task.key] = self._backend.pin(task.key, token_ids)
            except Exception as error:  # noqa: BLE001 - raised by the scheduler's next turn
                self.failure = error

    def drop(self, task: Task) -> None:
        """Unpin a task's prefix."""
        if self._held.pop(task.key, None) is not None:
            try:
                self._backend.unpin(task.key)
            except Exception as error:  # noqa: BLE001 - as above
                self.failure = error

    def extend_parent(self, child: Task) -> None:
        """Pin the rest of a parent's prefix once its first child has computed it."""
        parent = child.parent
        if not self.enabled or parent is None or parent.state is not State.RETAINED:
            return
        prefix = parent.query.program.prefix(parent.item, parent.stage)
        block = self._backend.capabilities.block_tokens
        if self._held.get(parent.key, 0) < len(prefix) // block * block:
            self.hold(parent, prefix)

    def forget(self) -> None:
        """Forget all pins without telling the backend."""
        self._held.clear()

    def drop_all(self) -> int:
        """Drop every pin of the backend, also those that others made; return how many."""
        self._held.clear()
        return self._backend.unpin_all()
