"""Putting finished tuples back into row order while later ones are still running."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.runtime.rows import Tuple


class Slot:
    """The place of a tuple in the result, and of its children."""

    __slots__ = ("children", "closed", "result")

    def __init__(self) -> None:
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
        self.ready = 0
        """Results that are held."""

    def open(self, parent: Slot | None = None) -> Slot:
        """Add a place after all others, or after a parent's other children."""
        slot = Slot()
        with self._lock:
            (parent or self._root).children.append(slot)
        return slot

    def close(self, slot: Slot, result: Tuple | None) -> None:
        """Fill a place, or note that it stays empty."""
        with self._lock:
            slot.result = result
            slot.closed = True
            self.ready += result is not None

    def drain(self) -> list[Tuple]:
        """Return the results that can be given out, in order."""
        out: list[Tuple] = []
        with self._lock:
            _drain(self._root.children, out)
            self.ready -= len(out)
        return out


def _drain(slots: deque[Slot], out: list[Tuple]) -> None:
    while slots:
        slot = slots[0]
        _drain(slot.children, out)
        if slot.children or not slot.closed:
            return
        if slot.result is not None:
            out.append(slot.result)
        slots.popleft()
