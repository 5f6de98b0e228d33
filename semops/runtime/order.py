"""Putting finished tuples back into row order while later ones are still running."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.runtime.rows import Tuple


class Slot:
    """The place of a tuple in the result, and of its children."""

    __slots__ = ("children", "closed", "parent", "result")

    def __init__(self, parent: Slot | None = None) -> None:
        self.parent = parent
        self.children: deque[Slot] = deque()
        self.closed = False
        """Whether neither a result nor a child will come any more."""
        self.result: Tuple | None = None


class OrderBuffer:
    """Results by place; gives back those before which nothing is open.

    Examples
    --------
    >>> buffer = OrderBuffer()
    >>> first, second = buffer.open(), buffer.open()
    >>> buffer.close(second, "b")
    >>> buffer.drain()
    []
    >>> buffer.close(first, None)
    >>> buffer.drain()
    ['b']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._root = Slot()
        self._held = 0
        """Results that are held, those included that were drained but not counted."""
        self._drained = 0

    def open(self, parent: Slot | None = None) -> Slot:
        """Add a place after all others, or after a parent's other children."""
        slot = Slot(parent or self._root)
        with self._lock:
            (parent or self._root).children.append(slot)
        return slot

    def close(self, slot: Slot, result: Tuple | None) -> None:
        """Fill a place, or note that it stays empty."""
        with self._lock:
            slot.result = result
            slot.closed = True
            self._held += result is not None

    def drain(self) -> list[Tuple]:
        """Return the results that can be given out, in order; they count until :meth:`took`."""
        out: list[Tuple] = []
        with self._lock:
            _drain(self._root.children, out)
            self._drained += len(out)
        return out

    def took(self) -> None:
        """Note that the demand knows what was drained."""
        with self._lock:
            self._held -= self._drained
            self._drained = 0

    def held_before(self, slot: Slot) -> int:
        """Return how many results that nobody counts as taken come before an open place."""
        with self._lock:
            if not self._held:
                return 0
            count = self._drained
            while slot.parent is not None:
                for earlier in slot.parent.children:
                    if earlier is slot:
                        break
                    count += _held(earlier)
                slot = slot.parent
            return count


def _held(slot: Slot) -> int:
    return (slot.result is not None) + sum(map(_held, slot.children))


def _drain(slots: deque[Slot], out: list[Tuple]) -> None:
    while slots:
        slot = slots[0]
        _drain(slot.children, out)
        if slot.children or not slot.closed:
            return
        if slot.result is not None:
            out.append(slot.result)
        slots.popleft()
