"""Load: whether more queries come than the engine sustains, so that the queue of queries grows.

A query that waits for its own rows can't overload anything: it asks for the next when one is done. Many
queries that come by themselves can. Their rate is compared with what capacity says of requests like those
that ended last.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from semops.engine.capacity import Capacity, EngineSize, Shape, capacity, replicas_for

if TYPE_CHECKING:
    from semops.engine.backend import Capabilities
    from semops.engine.step_time import StepMeter

WINDOW_S = 60.0
"""How long arrivals count, in seconds."""
MIN_QUERIES = 8
"""Fewer arrivals say nothing about a rate."""
MIN_UNFINISHED = 4
SHAPES = 256

logger = logging.getLogger("semops.engine.load")


class LoadMonitor:
    """Rates of queries and shapes of their requests.

    Parameters
    ----------
    size
        The engine.
    mode
        Admission mode.
    """

    __slots__ = ("_arrivals", "_mode", "_per_query", "_shapes", "overloaded", "size")

    def __init__(self, size: EngineSize, mode: str) -> None:
        self.size = size
        self._mode = mode
        self._arrivals: deque[float] = deque()
        self._per_query: deque[int] = deque(maxlen=SHAPES)
        self._shapes: deque[Shape] = deque(maxlen=SHAPES)
        self.overloaded = False
        """Whether load was above capacity when it was last looked at."""

    def answered(self, shape: Shape) -> None:
        """Take an answered request in."""
        self._shapes.append(shape)

    def ended(self, requests: int) -> None:
        """Take an ended query in."""
        if requests:
            self._per_query.append(requests)

    def found(self, meter: StepMeter) -> Capacity | None:
        """Return what the engine sustains of requests like the last, or None while that isn't known."""
        step = meter.model() or meter.estimate()
        if step is None or not self._shapes:
            return None
        seconds = step if not isinstance(step, tuple) else step.mean
        return capacity(list(self._shapes.copy()), self.size, seconds, self._mode)

    def arrived(self, now_s: float, unfinished: int, meter: StepMeter) -> bool:
        """Note that a query came; return whether load has risen above what is sustained, and warn.

        Parameters
        ----------
        now_s
            The time, in seconds.
        unfinished
            Queries that have not ended, this one included.
        meter
            Step times.
        """
        self._arrivals.append(now_s)
        while self._arrivals[0] < now_s - WINDOW_S:
            self._arrivals.popleft()
        before, self.overloaded = self.overloaded, False
        span_s = now_s - self._arrivals[0]
        if len(self._arrivals) < MIN_QUERIES or unfinished < MIN_UNFINISHED or not span_s:
            return False
        if not self._per_query or (can := self.found(meter)) is None:
            return False
        requests = sum(self._per_query) / len(self._per_query)
        rate = (len(self._arrivals) - 1) / span_s * requests
        self.overloaded = rate > can.stable_rate
        if self.overloaded and not before:
            logger.warning(
                "load is %.2f requests/s, and this engine sustains %.2f (%s-bound): queries wait in a "
                "queue that grows. Send less, or use %d engines.",
                rate,
                can.stable_rate,
                can.limits.binding,
                replicas_for(rate, can),
            )
        return self.overloaded and not before


def size_of(capabilities: Capabilities, budget_tokens: float | None = None) -> EngineSize:
    """Return the size of a running engine.

    Parameters
    ----------
    capabilities
        Of its backend.
    budget_tokens
        What the ledger gives out, where that is less than all memory.

    Examples
    --------
    >>> from semops.engine.backends.simulator import Simulated, SimulatorBackend
    >>> size_of(
    ...     SimulatorBackend(lambda request: Simulated(), kv_tokens=1_600).capabilities
    ... ).kv_tokens
    1600
    """
    return EngineSize(
        kv_tokens=capabilities.kv_tokens if budget_tokens is None else budget_tokens,
        chunk_tokens=capabilities.chunk_tokens,
        max_running=capabilities.max_running,
        block_tokens=capabilities.block_tokens,
        overlap=True,
        step_tokens=capabilities.chunk_tokens,
    )
