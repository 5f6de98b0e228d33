"""Token bounds: how long an answer may get before its request is sent again with more room.

A reservation of the full cap would leave most of the KV memory idle; one that is too small costs
retries. The 99th percentile of what was seen balances the two (Kalypso's online estimation).
"""

from __future__ import annotations

from collections import deque

WINDOW = 512
"""Observations kept."""
MIN_OBSERVATIONS = 32
"""Before this many, the cap or :data:`START` bounds."""
START = 256
"""First bound of a longer cap, in tokens."""
QUANTILE = 0.99


class BoundEstimator:
    """Bound of one step's answers, learned from answers seen.

    Parameters
    ----------
    cap
        Hard cap, in tokens.
    one_token
        True where the answer is always one token.

    Examples
    --------
    >>> bound = BoundEstimator(cap=400)
    >>> bound.first(prompt_tokens=100)
    256
    >>> for _ in range(40):
    ...     bound.observe(output_tokens=10, prompt_tokens=100)
    >>> bound.first(prompt_tokens=100)
    10
    >>> bound.grown(10, attempt=1, prompt_tokens=100), bound.grown(20, attempt=3, prompt_tokens=100)
    (20, 400)
    """

    __slots__ = ("_absolute", "_fresh", "_ratios", "cap", "one_token", "p99", "p99_ratio")

    def __init__(self, cap: int, one_token: bool = False) -> None:  # noqa: FBT001, FBT002
        self.cap = max(cap, 1)
        self.one_token = one_token
        self._absolute: deque[int] = deque(maxlen=WINDOW)
        self._ratios: deque[float] = deque(maxlen=WINDOW)
        self._fresh = 0
        self.p99 = 0
        self.p99_ratio = 0.0

    def observe(self, output_tokens: int, prompt_tokens: int) -> None:
        """Take an answer's length into the estimate (one that was cut off, at its bound)."""
        if self.one_token:
            return
        self._absolute.append(output_tokens)
        self._ratios.append(output_tokens / max(prompt_tokens, 1))
        self._fresh += 1
        count = len(self._absolute)
        # Sorting 512 numbers at each answer would cost more than it gives.
        if count >= MIN_OBSERVATIONS and (self._fresh >= MIN_OBSERVATIONS // 2 or not self.p99):
            rank = min(int(count * QUANTILE), count - 1)
            self.p99 = sorted(self._absolute)[rank]
            self.p99_ratio = sorted(self._ratios)[rank]
            self._fresh = 0

    def first(self, prompt_tokens: int) -> int:
        """Return the bound of a first attempt, in tokens."""
        if self.one_token:
            return 1
        if not self.p99:
            return min(self.cap, START)
        by_ratio = int(self.p99_ratio * prompt_tokens) + 1
        return max(1, min(self.cap, self.p99, by_ratio))

    def grown(self, bound: int, attempt: int, prompt_tokens: int) -> int:
        """Return the next bound after a cut-off: doubled, from the third attempt on the cap."""
        if attempt >= 3:
            return self.cap
        return min(self.cap, max(2 * bound, self.first(prompt_tokens)))


class CapBound(BoundEstimator):
    """A bound that is the cap, for admission modes that reserve it or nothing; it never causes a retry.

    Examples
    --------
    >>> CapBound(cap=400).first(prompt_tokens=100)
    400
    """

    __slots__ = ()

    def first(self, prompt_tokens: int) -> int:  # noqa: ARG002 - as the class that it replaces
        """Return the cap."""
        return self.cap
