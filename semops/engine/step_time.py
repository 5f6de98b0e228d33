"""How long an engine step takes, estimated while the engine runs.

``b`` of the capacity model is the mean over *saturated* steps: those in which memory, seats or the tokens of
a step are nearly used up. Warm-up and drain are left out by that. Where the backend says what a step
computed, a time model is fitted too, so that ``b`` of another load can be predicted.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from semops.engine import calibration
from semops.engine.time_model import TimeModel
from semops.engine.trace import StepRecord

SATURATED = 0.9
"""Share of memory or seats above which a step is saturated."""
KEPT = 2_000
"""Steps kept."""
ENOUGH = 500
"""Saturated steps that make a good estimate; fewer give one, and say so."""
DRIFT = 0.1
"""Where the last steps differ by more than this share, the older ones are forgotten."""
RECENT = 100


class StepTime(NamedTuple):
    """The time of a saturated step, in seconds."""

    mean: float
    median: float
    trimmed_5: float
    """Mean without the longest and shortest 5 %."""
    trimmed_10: float
    steps: int
    """Of how many steps."""

    @property
    def certain(self) -> bool:
        """Whether there were enough."""
        return self.steps >= ENOUGH


class StepMeter:
    """Collects step times.

    Examples
    --------
    >>> meter = StepMeter()
    >>> for seconds in (0.02, 0.04):
    ...     meter.observe(seconds, used=0.95)
    >>> meter.observe(9.0, used=0.1)  # warming up
    >>> meter.estimate().mean
    0.03
    """

    __slots__ = ("_model", "_model_at", "_records", "_saturated", "steps")

    def __init__(self) -> None:
        self._saturated: deque[float] = deque(maxlen=KEPT)
        self._records: deque[StepRecord] = deque(maxlen=KEPT)
        self._model: TimeModel | None = None
        self._model_at = 0
        self.steps = 0
        """Steps that computed something."""

    def observe(
        self, seconds: float, used: float, work: tuple[int, int, int] | None = None
    ) -> None:
        """Take a step in.

        Parameters
        ----------
        seconds
            How long it took.
        used
            The larger of the shares of memory and of seats that were in use.
        work
            Prefill, decode and context tokens, where the backend says them.
        """
        if work is not None:
            if not (work[0] or work[1]):
                return
            self._records.append(StepRecord(*work, seconds))
        self.steps += 1
        if used >= SATURATED:
            self._saturated.append(seconds)
            if len(self._saturated) >= 2 * RECENT and len(self._saturated) % RECENT == 0:
                self._forget_after_drift()

    def estimate(self) -> StepTime | None:
        """Return ``b`` of the load that ran, or None before a saturated step."""
        times = sorted(self._saturated.copy())
        if not times:
            return None
        middle = times[len(times) // 2]
        five, ten = (_trimmed(times, share) for share in (0.05, 0.1))
        return StepTime(sum(times) / len(times), middle, five, ten, len(times))

    def model(self) -> TimeModel | None:
        """Return the time model of all steps, or None while there are too few."""
        if len(self._records) < 4 * calibration.MIN_STEPS:
            return None
        if self._model is None or self.steps - self._model_at >= RECENT:
            self._model, self._model_at = calibration.fit(list(self._records.copy())), self.steps
        return self._model

    def _forget_after_drift(self) -> None:
        times = list(self._saturated)
        recent, older = times[-RECENT:], times[:-RECENT]
        before = sum(older) / len(older)
        if abs(sum(recent) / RECENT - before) > DRIFT * before:
            self._saturated = deque(recent, maxlen=KEPT)


def _trimmed(times: list[float], share: float) -> float:
    cut = int(len(times) * share)
    kept = times[cut : len(times) - cut]
    return sum(kept) / len(kept)
