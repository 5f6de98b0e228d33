"""The time model of an engine, fitted to a recorded run."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from semops.engine.time_model import TimeModel
from semops.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.trace import StepRecord

MIN_STEPS = 8
"""Fewer steps say too little."""


def fit(steps: Sequence[StepRecord]) -> TimeModel:
    """Return the time model with the least squared error over recorded steps.

    No coefficient is negative: of all subsets of ``1, P, D, K`` it takes the one whose fit is best among
    those without a negative coefficient. With four that is exact, and needs no iteration.

    Parameters
    ----------
    steps
        Of one engine, as in :attr:`StepTrace.steps <semops.engine.trace.StepTrace.steps>`.

    Raises
    ------
    ConfigError
        If there are too few steps.

    Examples
    --------
    >>> from semops.engine.trace import StepRecord
    >>> truth = TimeModel(base_s=0.02, prefill_s=1e-3, decode_s=2e-3, context_s=0.0)
    >>> steps = [
    ...     StepRecord(p, d, k, truth.seconds(p, d, k))
    ...     for p, d, k in zip(range(0, 500, 25), [3, 9, 1, 5] * 5, [900, 4_000, 70, 20, 600] * 4)
    ... ]
    >>> found = fit(steps)
    >>> round(found.base_s, 9), round(found.prefill_s, 9), round(found.decode_s, 9)
    (0.02, 0.001, 0.002)
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(f"{len(steps)} steps don't fix a time model; record {MIN_STEPS} or more.")
    columns = np.array([(1.0, s.prefill, s.decode, s.context) for s in steps])
    seconds = np.array([s.seconds for s in steps])
    scale = np.maximum(columns.max(axis=0), 1.0)
    columns = columns / scale
    best = np.zeros(4)
    least = float(seconds @ seconds)
    for size in range(1, 5):
        for chosen in combinations(range(4), size):
            solution, *_ = np.linalg.lstsq(columns[:, chosen], seconds, rcond=None)
            if solution.min() < 0:
                continue
            error = float(np.sum((columns[:, chosen] @ solution - seconds) ** 2))
            if error < least:
                least = error
                best = np.zeros(4)
                best[list(chosen)] = solution
    base_s, prefill_s, decode_s, context_s = (float(value) for value in best / scale)
    return TimeModel(base_s, prefill_s, decode_s, context_s)


def relative_error(model: TimeModel, steps: Sequence[StepRecord]) -> float:
    """Return how far the predicted total time is from the measured one, as a share of it.

    Examples
    --------
    >>> from semops.engine.trace import StepRecord
    >>> round(relative_error(TimeModel(1.1, 0.0, 0.0, 0.0), [StepRecord(1, 0, 1, 1.0)] * 3), 6)
    0.1
    """
    measured = sum(step.seconds for step in steps)
    predicted = sum(model.seconds(step.prefill, step.decode, step.context) for step in steps)
    return abs(predicted - measured) / measured
