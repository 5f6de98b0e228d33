"""Demand: how many tuples may be in flight for what the consumer has asked so far.

Semantic operators are expensive, and Polars does not say how many rows it will pull. So a query
starts with a few tuples and doubles its window each time a window's worth of tuples was used, as
TCP's slow start does; a LIMIT seen in the plan narrows the window to what is still wanted, and where the
plan shows that everything will be pulled, the window is wide from the start.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

START = 4
"""First window, in tuples."""
READ_AHEAD = 4_096
"""Widest window: tuples past what the consumer has taken."""
PATIENCE_S = 0.3
"""A consumer that got all the rows it was said to want may pull once more before it stops. Only one
that goes on pulling for so long wants more than the plan said, in seconds."""


class Wanted(NamedTuple):
    """What the plan above a query says about how many rows will be pulled."""

    rows: int | None = None
    """Rows that a LIMIT asks for. A hint: it narrows the window, it never ends the query."""
    everything: bool = False
    """Whether nothing above can stop early."""


UNKNOWN = Wanted()


class Demand:
    """What the consumer wants; written by the consumer's thread, read by the engine's.

    Parameters
    ----------
    rows_wanted
        Rows that a LIMIT above the query asks for, or None.
    clock
        Returns seconds.
    everything
        Whether all rows will be pulled.

    Examples
    --------
    >>> demand = Demand()
    >>> demand.begin_pull()
    >>> demand.allows(active=3, ready_before=0), demand.allows(active=4, ready_before=0)
    (True, False)
    >>> demand.done = 40
    >>> demand.allows(active=19, ready_before=0)
    True
    """

    __slots__ = (
        "_clock",
        "_hungry_since_s",
        "_last_pull_s",
        "done",
        "everything",
        "pulling",
        "rows_wanted",
        "taken",
    )

    def __init__(
        self,
        rows_wanted: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        everything: bool = False,
    ) -> None:
        self.everything = everything and rows_wanted is None
        self.rows_wanted = rows_wanted
        self.taken = 0
        """Result rows that the consumer took."""
        self.done = 0
        """Tuples that ended, whether they gave a row or not."""
        self.pulling = False
        self._clock = clock
        self._last_pull_s = clock()
        self._hungry_since_s: float | None = None

    def allows(self, active: int, ready_before: int) -> bool:
        """Return whether a tuple may be admitted.

        The oldest tuple that has not ended may always go on once nothing is active, so rows that wait
        for it can't block it.

        Parameters
        ----------
        active
            Tuples admitted and not ended.
        ready_before
            Result rows before the tuple's own that are finished and not taken yet.
        """
        window = READ_AHEAD if self.everything else self._window()
        if self.rows_wanted is None:
            return active + ready_before < window
        missing = self.rows_wanted - self.taken - ready_before
        if missing > 0:
            return active < min(window, max(missing, START))
        if ready_before == 0 and self._hungry_s() > PATIENCE_S:
            self.rows_wanted = None  # the plan said less than the consumer takes
        return False

    def supply(self) -> int:
        """Return how many tuples should wait for admission."""
        return READ_AHEAD if self.everything else max(START, self.done, self.taken)

    def took(self, rows: int) -> None:
        """Note that the consumer took result rows."""
        self.taken += rows
        self._hungry_since_s = None

    def begin_pull(self) -> None:
        """Note that the consumer waits for rows."""
        if self._hungry_since_s is None:
            self._hungry_since_s = self._clock()
        self.pulling = True

    def end_pull(self) -> None:
        """Note that the consumer does something else."""
        if self.pulling:
            self.pulling = False
            self._last_pull_s = self._clock()

    def abandon(self) -> None:
        """Note that nobody is known to want more; whoever pulls again still gets it."""
        self.pulling = False
        self._last_pull_s = -math.inf

    @property
    def abandoned(self) -> bool:
        """Whether nobody has pulled since :meth:`abandon`."""
        return self._last_pull_s == -math.inf and not self.pulling

    def idle_s(self) -> float:
        """Return for how long nobody has pulled, in seconds."""
        return 0.0 if self.pulling else self._clock() - self._last_pull_s

    def _window(self) -> int:
        return min(max(START, self.taken, self.done // 2), READ_AHEAD)

    def _hungry_s(self) -> float:
        since = self._hungry_since_s
        return 0.0 if since is None else self._clock() - since
