"""Answer lengths before the answer: a running quantile, a regression, and a classifier of one bit.

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
MIN_OBSERVATIONS = 32
"""Before so many answers there is only a guess."""
FIRST_GUESS = 128
"""Answer of a map that has not answered yet, in tokens, where its cap is no smaller."""
GAIN = 0.8
"""A regression counts only while its error is below this share of the constant's."""
ERROR_WEIGHT = 0.02
"""Weight of a new answer in the running errors."""
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
    return np.column_stack((np.ones_like(sizes), logs, sizes / 1_000, np.log(np.maximum(caps, 1))))


class StandIn(NamedTuple):
    """What stands for the length of a class: linear in the features, within what was seen."""

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
    >>> lengths.learned, [round(n, -1) for n in lengths.predict([200, 1_200])]
    (True, [20.0, 120.0])
    """

    cap: int
    """Longest answer, in tokens."""
    quantile: float = 0.5
    """Which quantile of the answers the constant is."""
    proxies: str = "practical"
    """What stands for a short and a long answer: ``practical`` takes the mean of the class by prompt length,
    ``theory`` powers of the cap."""
    constant: float = field(init=False)
    """The running quantile, in tokens."""
    constant_error: float = 0.0
    """Running mean error of the constant, in tokens."""
    learned_error: float = 0.0
    """And of the regression."""
    _answers: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """(prompt, cap, output) tokens."""
    _seen: int = 0
    _fresh: int = 0
    _slopes: Floats | None = None
    """Of the logarithm of the length."""
    _split: Floats | None = None
    """Of the log-odds of a long answer."""
    _threshold: float = field(init=False)
    _short: StandIn = field(init=False)
    _long: StandIn = field(init=False)

    def __post_init__(self) -> None:
        self.constant = float(min(self.cap, FIRST_GUESS))
        self._threshold, short, long = one_bit_lengths(self.cap)
        self._short, self._long = _always(short), _always(long)

    @property
    def learned(self) -> bool:
        """Whether the regression is in use."""
        return self._slopes is not None and self.learned_error < GAIN * self.constant_error

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
        fresh = slice(max(len(outputs) - self._fresh, 0), None)
        self._fresh = 0
        if self._slopes is not None:  # both are judged on answers that neither has seen
            self._judge(x[fresh] @ self._slopes, outputs[fresh])
        self.constant = float(np.quantile(outputs, self.quantile))
        if len(outputs) < MIN_OBSERVATIONS:
            return
        if self._slopes is None:
            self._judge_by_halves(x, outputs)
        self._slopes = _regression(x, outputs)
        self._fit_bit(x, outputs)

    def predict(self, prompts: Sequence[int], caps: Sequence[int] | None = None) -> list[float]:
        """Return the predicted answer lengths of requests, in tokens."""
        caps = [self.cap] * len(prompts) if caps is None else caps
        if self._slopes is None or not self.learned:
            return [min(self.constant, cap) for cap in caps]
        found = np.exp(features(prompts, caps) @ self._slopes)
        return np.clip(found, 1.0, np.maximum(caps, 1)).tolist()  # type: ignore[no-any-return]

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
        short, other = (
            np.clip(x @ stand_in.weights, stand_in.low, stand_in.high)
            for stand_in in (self._short, self._long)
        )
        return np.where(long, other, short).tolist()  # type: ignore[no-any-return]

    def _judge(self, logs: Floats, outputs: Floats) -> None:
        keep = (1 - ERROR_WEIGHT) ** len(outputs)
        learned = np.clip(np.exp(logs), 1, self.cap)
        self.constant_error += (1 - keep) * (
            float(np.mean(np.abs(outputs - self.constant))) - self.constant_error
        )
        self.learned_error += (1 - keep) * (
            float(np.mean(np.abs(outputs - learned))) - self.learned_error
        )

    def _judge_by_halves(self, x: Floats, outputs: Floats) -> None:
        """Compare both on the later half of the answers, fitted to the earlier one."""
        half = len(outputs) // 2
        learned = np.clip(np.exp(x[half:] @ _regression(x[:half], outputs[:half])), 1, self.cap)
        constant = float(np.quantile(outputs[:half], self.quantile))
        self.constant_error = float(np.mean(np.abs(outputs[half:] - constant)))
        self.learned_error = float(np.mean(np.abs(outputs[half:] - learned)))

    def _fit_bit(self, x: Floats, outputs: Floats) -> None:
        """Fit the class by logistic regression, and what stands for each class."""
        practical = self.proxies == "practical"
        threshold = float(np.median(outputs)) if practical else self._threshold
        long = outputs > threshold
        if practical and not long.any():  # more than half of the answers are the longest there are
            long = outputs >= threshold
        if long.all() or not long.any():
            self._split = np.array([1.0 if long.all() else -1.0, 0.0, 0.0, 0.0])
        else:
            self._split = _logistic(x, long.astype(np.float64))
        if practical:
            self._long = _stand_in(x[long], outputs[long])
            self._short = self._long if long.all() else _stand_in(x[~long], outputs[~long])


def _always(length: float) -> StandIn:
    return StandIn(np.array([length, 0.0, 0.0, 0.0]), length, length)


def _stand_in(x: Floats, outputs: Floats) -> StandIn:
    """Fit the mean length of a class, by prompt length."""
    moments = x.T @ x + RIDGE * np.eye(x.shape[1])
    weights: Floats = np.asarray(np.linalg.solve(moments, x.T @ outputs), dtype=np.float64)
    return StandIn(weights, float(outputs.min()), float(outputs.max()))


def _regression(x: Floats, outputs: Floats) -> Floats:
    """Return the weights of a regression of the logarithm of the length, with a small ridge."""
    moments = x.T @ x + RIDGE * np.eye(x.shape[1])
    return np.linalg.solve(moments, x.T @ np.log(np.maximum(outputs, 1)))


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
        """By name and cap."""
        self.seconds = 0.0
        """Spent on predicting and learning."""
        self.predictions = 0
        self._proxies = proxies
        self._oracle = oracle
        self._noted: set[tuple[str, int]] = set()

    def of(self, name: str, cap: int) -> OperatorLengths:
        """Return what is known of an operator."""
        key = (name, cap)
        if key not in self.operators:
            self.operators[key] = OperatorLengths(cap, proxies=self._proxies)
        return self.operators[key]

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
