"""Ordering policies: which of the waiting requests goes first. Pure functions from a job to a number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from semops.engine.ordering.volume import Job, effective_volume

Lengths = Literal["none", "predicted", "one_bit", "oracle"]
"""Where a policy's answer lengths come from; ``oracle`` are the true ones, known in simulation only."""

AGED = -1.0
"""Key of a request that has waited too long; smaller than any volume or length."""
PATIENCE = 20.0
"""Without a ``max_wait`` of the caller's, so many median latencies are too long."""


class Policy(NamedTuple):
    """A policy: smaller keys go first, equal ones in order of arrival."""

    name: str
    key: Callable[[Job], float]
    lengths: Lengths


def by_arrival(job: Job) -> float:
    """First come, first served.

    Examples
    --------
    >>> by_arrival(Job(arrival=7, prompt_tokens=100))
    7.0
    """
    return float(job.arrival)


def by_length(job: Job) -> float:
    """Shortest answer first.

    Examples
    --------
    >>> by_length(Job(arrival=7, prompt_tokens=100, output_tokens=12.0))
    12.0
    """
    return float(job.output_tokens)


def aged(key: float, waited_s: float, max_wait_s: float) -> float:
    """Return a key that puts a request first once it has waited longer than ``max_wait_s``.

    Examples
    --------
    >>> aged(500.0, waited_s=3.0, max_wait_s=10.0), aged(500.0, waited_s=11.0, max_wait_s=10.0)
    (500.0, -1.0)
    """
    return AGED if waited_s > max_wait_s else key


def one_bit_lengths(longest: int) -> tuple[float, float, float]:
    """Return the theory's threshold and stand-ins: ``sqrt(T)``, ``T**(1/4)``, ``T**(3/4)``.

    Parameters
    ----------
    longest
        ``T``, the longest answer, in tokens.

    Returns
    -------
    tuple
        Answers of more tokens than the first number are *long*; the second stands for the length of a
        short one, the third for that of a long one.

    Examples
    --------
    >>> tuple(round(value, 6) for value in one_bit_lengths(256))
    (16.0, 4.0, 64.0)
    """
    return math.sqrt(longest), longest**0.25, longest**0.75


POLICIES = (
    Policy("fcfs", by_arrival, "none"),
    Policy("sjf", by_length, "predicted"),
    Policy("oracle_sjf", by_length, "oracle"),
    Policy("svf", effective_volume, "predicted"),
    Policy("svf_onebit", effective_volume, "one_bit"),
)
