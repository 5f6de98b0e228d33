"""Putting finished tuples back into row order while later ones are still running."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.runtime.rows import Tuple


class Slot:
    """The place of a tuple in the result, and of its children."""

    __slots__ = ("children", "closed", "opened", "path", "result")

    def __init__(self, path: tuple[int, ...] = ()) -> None:
        self.path = path
        """Number of the place under its parent, after the parent's own path."""
        self.opened = 0
        """How many children it ever had."""
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
        self._held: list[tuple[int, ...]] = []
        """Paths of the results that are held, in order."""
        self.ordered = True
        """Whether results wait for those before them."""
        self._drained = 0
        """Results drained that :meth:`took` was not called for yet."""

    def open(self, parent: Slot | None = None) -> Slot:
        """Add a place after all others, or after a parent's other children."""
        above = parent or self._root
        with self._lock:
            slot = Slot((*above.path, above.opened))
            above.opened += 1
            above.children.append(slot)
        return slot

    def close(self, slot: Slot, result: Tuple | None) -> None:
        """Fill a place, or note that it stays empty."""
        with self._lock:
            slot.result = result
            slot.closed = True
            if result is not None:
                insort(self._held, slot.path)

    def drain(self) -> list[Tuple]:
        """Return the results that can be given out, in order; they count until :meth:`took`."""
        out: list[Tuple] = []
        with self._lock:
            _drain(self._root.children, out, self.ordered)
            if self.ordered:
                del self._held[: len(out)]  # what is given out comes before all that is still held
            else:
                self._held.clear()
            self._drained += len(out)
        return out

    def took(self) -> None:
        """Note that the demand knows what was drained."""
        with self._lock:
            self._drained = 0

    def held_before(self, slot: Slot) -> int:
        """Return how many results that nobody counts as taken come before a place."""
        with self._lock:
            if not self.ordered:
                return self._drained + len(self._held)
            return self._drained + bisect_left(self._held, slot.path)


def _drain(slots: deque[Slot], out: list[Tuple], ordered: bool) -> None:  # noqa: FBT001
    """Move results out, up to the first place that is open, or past it where order was given up."""
    left: list[Slot] = []
    while slots:
        slot = slots[0]
        _drain(slot.children, out, ordered)
        if slot.children or not slot.closed:
            if ordered:
                return
            left.append(slot)
        elif slot.result is not None:
            out.append(slot.result)
        slots.popleft()
    slots.extend(left)
