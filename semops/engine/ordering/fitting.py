"""Admission modes: may a request start now, given what is running? Pure tests on growing memory.

A request that runs holds one token more after each step and gives everything back at its end. The modes
differ in how far they look:

========== ========================================================= ====================================
mode       admits while                                              safe
========== ========================================================= ====================================
peak       the largest sizes together fit                            yes
ledger     the reservations (a quantile of the answers) together fit with caps on the answers
lookahead  at each coming end of a request all that still runs fits  while lengths are right
optimistic what is held now and the prompt fit into 99 %             no, the engine preempts
========== ========================================================= ====================================
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

PASSING = 8
"""How many later requests are looked at while one that has waited too long doesn't fit."""
GUARDED = 4
"""How many waiting requests, in order of arrival, those may not delay. With one, requests further back wait
longer than first come, first served lets them; with 16, half of what passing gains is lost."""
OPTIMISM = 0.99
"""Share of the memory that optimistic admission fills."""


class Holding(NamedTuple):
    """What a running request holds, and a candidate would."""

    tokens: float
    """Held now; of a candidate, its prompt."""
    remaining: float
    """Steps until its end, in each of which it grows by a token."""
    reserved: float = 0.0
    """What the ledger reserves for it, in tokens."""


class Mode(NamedTuple):
    """An admission mode."""

    name: str
    usage: Callable[[Iterable[Holding]], float]
    """Gives the memory that requests need together, as the mode sees it, in tokens."""
    share: float = 1.0
    """How much of the memory it fills."""
    foresees: bool = False
    """Whether a candidate that doesn't fit may fit later although nothing has ended."""

    def fits(self, active: Iterable[Holding], candidate: Holding, memory: float) -> bool:
        """Return whether a request may start beside others, with the memory in tokens."""
        return self.usage((*active, candidate)) <= self.share * memory


def peak_usage(holdings: Iterable[Holding]) -> float:
    """Return the sum of all peaks.

    Examples
    --------
    >>> peak_usage([Holding(50, 10), Holding(30, 30)])
    120
    """
    return sum(holding.tokens + holding.remaining for holding in holdings)


def lookahead_usage(holdings: Iterable[Holding]) -> float:
    """Return the most that is held at any coming end of a request; between two of them usage only grows.

    Examples
    --------
    >>> lookahead_usage([Holding(50, 10), Holding(30, 30)])  # 60 + 40, then 60
    100.0
    """
    most = held = 0.0
    ends = sorted(holdings, key=lambda holding: holding.remaining, reverse=True)
    for count, holding in enumerate(ends, 1):
        held += holding.tokens
        most = max(most, held + count * holding.remaining)
    return most


def optimistic_usage(holdings: Iterable[Holding]) -> float:
    """Return what is held now.

    Examples
    --------
    >>> optimistic_usage([Holding(50, 500), Holding(30, 500)])
    80
    """
    return sum(holding.tokens for holding in holdings)


def ledger_usage(holdings: Iterable[Holding]) -> float:
    """Return the sum of all reservations.

    Examples
    --------
    >>> ledger_usage([Holding(50, 500, reserved=60), Holding(30, 500, reserved=40)])
    100
    """
    return sum(holding.reserved for holding in holdings)


MODES: Final[dict[str, Mode]] = {
    mode.name: mode
    for mode in (
        Mode("ledger", ledger_usage),
        Mode("peak", peak_usage),
        Mode("lookahead", lookahead_usage, foresees=True),
        Mode("optimistic", optimistic_usage, OPTIMISM),
    )
}


def later(holdings: Iterable[Holding], steps: float) -> list[Holding]:
    """Return what is held after some steps if nothing starts.

    Examples
    --------
    >>> later([Holding(50, 10), Holding(30, 30)], steps=10)
    [Holding(tokens=40, remaining=20, reserved=0.0)]
    """
    return [
        Holding(h.tokens + steps, h.remaining - steps, h.reserved)
        for h in holdings
        if h.remaining > steps
    ]


def earliest_start(mode: Mode, active: Sequence[Holding], head: Holding, memory: float) -> float:
    """Return after how many steps a blocked request fits if nothing else starts: at which end of another.

    Examples
    --------
    >>> active = [Holding(50, 10), Holding(30, 30)]
    >>> earliest_start(MODES["peak"], active, Holding(60, 10), memory=140)
    10
    """
    ends = sorted(holding.remaining for holding in active)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if mode.fits(later(active, ends[middle]), head, memory):
            high = middle
        else:
            low = middle + 1
    return ends[low]


def planned_starts(
    mode: Mode, active: Sequence[Holding], waiting: Iterable[Holding], memory: float
) -> list[float]:
    """Return after how many steps each waiting request starts if they go strictly in this order.

    Examples
    --------
    >>> active, waiting = [Holding(50, 10), Holding(30, 30)], [Holding(60, 10), Holding(10, 20)]
    >>> planned_starts(MODES["peak"], active, waiting, memory=140)
    [10.0, 20.0]
    """
    starts, now, running = [], 0.0, list(active)
    for holding in waiting:
        if running and not mode.fits(running, holding, memory):
            wait = earliest_start(mode, running, holding, memory)
            running = later(running, wait)
            now += wait
        starts.append(now)
        running.append(holding)
    return starts


def may_pass(
    mode: Mode,
    active: Sequence[Holding],
    waiting: Sequence[Holding],
    candidate: Holding,
    memory: float,
) -> bool:
    """Return whether a request fits now, and may start before waiting ones without delaying any.

    Parameters
    ----------
    mode, active, waiting, memory
        As in :func:`planned_starts`; the candidate is not among those that wait.
    candidate
        The request that would pass.

    Examples
    --------
    >>> active, head = [Holding(50, 10), Holding(30, 30)], Holding(60, 10)
    >>> [may_pass(MODES["peak"], active, [head], Holding(5, n), memory=140) for n in (10, 12, 20)]
    [True, False, False]
    """
    if not mode.fits(active, candidate, memory):
        return False
    before = planned_starts(mode, active, waiting, memory)
    after = planned_starts(mode, [*active, candidate], waiting, memory)
    return all(map(operator.le, after, before))


def remaining_steps(predicted: float, done: float) -> float:
    """Return for how many more tokens a request is expected to run.

    One that outlives its prediction is given half of it more, then twice that, and so on.

    Examples
    --------
    >>> [remaining_steps(predicted=8, done=done) for done in (0, 7, 8, 12)]
    [8, 1, 4.0, 8.0]
    """
    total, more = predicted, max(1.0, predicted / 2)
    while total <= done:
        total += more
        more *= 2
    return total - done
