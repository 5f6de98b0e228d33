"""Answer lengths before the answer: a running quantile, a mean by prompt length, and a classifier of one bit.

All are per operator and learn on line. They work between two engine steps and in batches: answers are noted
at once and learned from together, requests that came since the last step are predicted together. The time
that they take is counted.

References
----------
Kong et al., arXiv 2606.22327: one bit (*short* or *long*) is nearly as good for ordering as the length.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from semops.engine.ordering.policies import Lengths, one_bit_lengths

WINDOW = 512
"""Answers kept."""
OPERATORS = 256
"""Operators kept; an engine may outlive many queries."""
MIN_OBSERVATIONS = 32
"""Before so many answers there is only a guess."""
FIRST_GUESS = 128
"""Answer of a map that has not answered yet, in tokens, where its cap is no smaller."""
SHORTEST = 0.02
"""Quantile of the answers seen below which no mean is predicted; where a line goes on below it, it is wrong."""
RIDGE = 1e-2
NEWTON_STEPS = 6

Floats = np.ndarray[Any, np.dtype[np.float64]]


def features(prompts: Sequence[int], caps: Sequence[int]) -> Floats:
    """Return what is known of requests before they run, one row each.

    Examples
    --------
    >>> features([0, 1_000], [1, 1])[:, 2].tolist()
    [0.0, 1.0]
    """
    sizes = np.asarray(prompts, dtype=np.float64)
    logs = np.log1p(sizes)
    bend = logs**2 / 10
    return np.column_stack(
        (np.ones_like(sizes), logs, sizes / 1_000, bend, np.log(np.maximum(caps, 1)))
    )


class MeanLength(NamedTuple):
    """The mean length of some answers: linear in the features, within what was seen."""

    weights: Floats
    low: float
    high: float


@dataclass(slots=True)
class OperatorLengths:
    """What is known of the answer lengths of one operator.

    Examples
    --------
    >>> lengths = OperatorLengths(cap=400)
    >>> lengths.predict([100, 2_000])
    [128.0, 128.0]
    >>> for prompt in range(100, 1_700, 10):
    ...     lengths.observe(prompt, prompt // 10)
    >>> lengths.learn()
    >>> [round(n, -1) for n in lengths.predict([200, 1_200])]
    [20.0, 120.0]
    """

    cap: int
    """Longest answer, in tokens."""
    quantile: float = 0.5
    """Which quantile of the answers stands for all while they are few."""
    proxies: str = "practical"
    """What stands for a short and a long answer: ``practical`` takes the mean of the class by prompt length,
    ``theory`` powers of the cap."""
    constant: float = field(init=False)
    """The running quantile, in tokens."""
    _answers: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """(prompt, cap, output) tokens."""
    _seen: int = 0
    _fresh: int = 0
    _mean: MeanLength | None = None
    """Of all answers."""
    _split: Floats | None = None
    """Of the log-odds of a long answer."""
    _threshold: float = field(init=False)
    _short: MeanLength = field(init=False)
    _long: MeanLength = field(init=False)

    def __post_init__(self) -> None:
        self.constant = float(min(self.cap, FIRST_GUESS))
        self._threshold, short, long = one_bit_lengths(self.cap)
        self._short, self._long = _always(short), _always(long)

    def observe(self, prompt_tokens: int, output_tokens: int, cap: int | None = None) -> None:
        """Note an answer's length; :meth:`learn` takes it into the estimates."""
        self._answers.append((prompt_tokens, self.cap if cap is None else cap, output_tokens))
        self._seen += 1
        self._fresh += 1

    @property
    def due(self) -> bool:
        """Whether enough was noted since the last :meth:`learn`; rarer as more is known."""
        return self._fresh >= min(max(MIN_OBSERVATIONS, self._seen // 2), WINDOW // 2)

    def learn(self) -> None:
        """Take what was noted into the estimates, in one go."""
        if not self._answers:
            return
        rows = np.asarray(self._answers, dtype=np.float64)
        x, outputs = features(rows[:, 0].tolist(), rows[:, 1].tolist()), rows[:, 2]
        self._fresh = 0
        self.constant = float(np.quantile(outputs, self.quantile))
        if len(outputs) < MIN_OBSERVATIONS:
            return
        self._mean = _mean_length(x, outputs)
        self._fit_bit(x, outputs)

    def predict(self, prompts: Sequence[int], caps: Sequence[int] | None = None) -> list[float]:
        """Return the expected answer lengths of requests, in tokens.

        It is the mean at this prompt length, not the median, since a request's volume is nearly linear in
        the length of its answer.
        """
        caps = [self.cap] * len(prompts) if caps is None else caps
        if self._mean is None:
            return [min(self.constant, cap) for cap in caps]
        found = _at(self._mean, features(prompts, caps))
        lengths: list[float] = np.clip(found, 1.0, np.maximum(caps, 1)).tolist()
        return lengths

    def one_bit(self, prompts: Sequence[int], caps: Sequence[int] | None = None) -> list[float]:
        """Return what stands for the lengths where only *short* or *long* is predicted, in tokens."""
        caps = [self.cap] * len(prompts) if caps is None else caps
        if self._split is None:  # a map is long until it has shown otherwise
            return self.standing_for([True] * len(prompts), prompts, caps)
        return self.standing_for(features(prompts, caps) @ self._split > 0, prompts, caps)

    def standing_for(
        self, long: Sequence[bool] | Any, prompts: Sequence[int], caps: Sequence[int] | None = None
    ) -> list[float]:
        """Return what stands for the lengths of requests of which one bit is known, in tokens.

        The mean of the class at this prompt length: where prompt and answer share a limit, long prompts of
        either class have shorter answers.
        """
        x = features(prompts, [self.cap] * len(prompts) if caps is None else caps)
        lengths: list[float] = np.where(long, _at(self._long, x), _at(self._short, x)).tolist()
        return lengths

    def _fit_bit(self, x: Floats, outputs: Floats) -> None:
        """Fit the class by logistic regression, and what stands for each class."""
        practical = self.proxies == "practical"
        threshold = float(np.median(outputs)) if practical else self._threshold
        long = outputs > threshold
        if practical and not long.any():  # more than half of the answers are the longest there are
            long = outputs >= threshold
        if long.all() or not long.any():
            self._split = np.eye(x.shape[1])[0] * (1.0 if long.all() else -1.0)
        else:
            self._split = _logistic(x, long.astype(np.float64))
        if practical:
            self._long = _mean_length(x[long], outputs[long])
            self._short = self._long if long.all() else _mean_length(x[~long], outputs[~long])


def _always(length: float) -> MeanLength:
    return MeanLength(np.zeros(features([], []).shape[1]), length, length)


def _mean_length(x: Floats, outputs: Floats) -> MeanLength:
    """Fit the mean length by prompt length, with a small ridge."""
    moments = x.T @ x + RIDGE * np.eye(x.shape[1])
    weights: Floats = np.asarray(np.linalg.solve(moments, x.T @ outputs), dtype=np.float64)
    return MeanLength(weights, float(np.quantile(outputs, SHORTEST)), float(outputs.max()))


def _at(mean: MeanLength, x: Floats) -> Floats:
    return np.clip(x @ mean.weights, mean.low, mean.high)


def _logistic(x: Floats, y: Floats) -> Floats:
    """Return the weights of a logistic regression with a small ridge, by Newton's method."""
    weights = np.zeros(x.shape[1])
    for _ in range(NEWTON_STEPS):
        share = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (share - y) + RIDGE * weights
        curve = (x * (share * (1 - share))[:, None]).T @ x + RIDGE * np.eye(x.shape[1])
        weights = weights - np.linalg.solve(curve, slope)
    return weights


class LengthBook:
    """The answer lengths of all operators of an engine, and the time that predicting takes.

    Parameters
    ----------
    proxies
        As in :class:`OperatorLengths`.
    oracle
        Gives the true length to an operator's name and a tuple, where a simulation knows it.
    """

    def __init__(
        self, proxies: str = "practical", oracle: Callable[[str, Any], int] | None = None
    ) -> None:
        self.operators: dict[tuple[str, int], OperatorLengths] = {}
        """By name and cap, those used longest ago first."""
        self.seconds = 0.0
        """Spent on predicting and learning."""
        self.predictions = 0
        self._proxies = proxies
        self._oracle = oracle
        self._noted: set[tuple[str, int]] = set()

    def of(self, name: str, cap: int) -> OperatorLengths:
        """Return what is known of an operator."""
        key = (name, cap)
        known = self.operators.pop(key, None) or OperatorLengths(cap, proxies=self._proxies)
        if len(self.operators) >= OPERATORS:
            forgotten = next(iter(self.operators))
            del self.operators[forgotten]
            self._noted.discard(forgotten)
        self.operators[key] = known
        return known

    def observe(self, name: str, cap: int, prompt_tokens: int, output_tokens: int) -> None:
        """Note an answer."""
        self.of(name, cap).observe(prompt_tokens, output_tokens)
        self._noted.add((name, cap))

    def learn(self) -> None:
        """Learn from what was noted, where that is enough; called between two engine steps."""
        if not self._noted:
            return
        started_s = time.perf_counter()
        for key in list(self._noted):
            if self.operators[key].due:
                self.operators[key].learn()
                self._noted.discard(key)
        self.seconds += time.perf_counter() - started_s

    def lengths(
        self, name: str, cap: int, prompts: Sequence[int], kind: Lengths, items: Sequence[Any] = ()
    ) -> list[float]:
        """Return the answer lengths that a policy sees, for requests of one operator, in tokens.

        ``items`` are their tuples, which only an oracle needs.

        Raises
        ------
        ValueError
            If a policy wants true lengths and there is no oracle.
        """
        if cap <= 1 or kind == "none":
            return [1.0] * len(prompts)
        if kind == "oracle":
            if self._oracle is None:
                raise ValueError(
                    "true lengths are known in simulation only: give the book an oracle."
                )
            return [float(self._oracle(name, item)) for item in items]
        started_s = time.perf_counter()
        operator = self.of(name, cap)
        found = operator.one_bit(prompts) if kind == "one_bit" else operator.predict(prompts)
        self.predictions += len(prompts)
        self.seconds += time.perf_counter() - started_s
        return found
