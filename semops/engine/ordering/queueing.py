"""The queue that the theory is about: one worker, one token a step, memory that grows. No engine, no clock.

It uses the policies and admission modes of the scheduler, so what is proven or measured here is about the
same code. A step serves all running requests: each computes a chunk of its prompt or decodes a token.
Admission is in strict order: a head that doesn't fit stops it, unless it is there since it waited too long.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from semops.engine.ordering.fitting import (
    GUARDED,
    PASSING,
    Holding,
    Mode,
    may_pass,
    remaining_steps,
)
from semops.engine.ordering.policies import AGED, Policy
from semops.engine.ordering.volume import Job
from semops.errors import CapacityError


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the model."""

    prompt_tokens: int
    """``s``."""
    output_tokens: int
    """``o``, its true length."""
    at_step: int = 0
    """The step before which it comes."""
    predicted_tokens: float | None = None
    """What the policy is told of ``o``; None: the truth."""
    bound_tokens: int | None = None
    """What the ledger reserves for the answer; None: the truth."""


@dataclass(slots=True)
class Outcome:
    """What became of the requests."""

    starts: list[int]
    """The step in which each was first admitted; -1 for one that never was."""
    ends: list[int]
    """The step after which each was done; -1 for one that is not."""
    queue: list[int] = field(default_factory=list)
    """How many waited, after the admissions of each step."""
    memory_steps: int = 0
    """Tokens held, summed over the steps."""
    preemptions: int = 0
    steps: int = 0

    def latencies(self, arrivals: Sequence[Arrival]) -> list[int]:
        """Return the steps from arrival to end of each request that ended."""
        return [e - a.at_step for e, a in zip(self.ends, arrivals, strict=True) if e >= 0]


@dataclass(slots=True, eq=False)
class _Request:
    """A request on its way; a preempted one starts over with what it decoded as part of its prompt."""

    number: int
    key: float
    prompt: int
    output: int
    predicted: float
    bound: int
    chunks: int = 0
    start: int = 0
    done: int = 0
    """Tokens decoded before its last start."""


class _Worker:
    """The state of one run."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        memory: int,
        policy: Policy,
        mode: Mode,
        chunk: int | None,
        max_wait: float,
        seats: float,
    ) -> None:
        self.memory, self.mode, self.chunk, self.max_wait = memory, mode, chunk, max_wait
        self.arrivals = arrivals
        self.seats = seats
        self.waiting: list[tuple[float, int, _Request]] = []
        self.oldest: deque[_Request] = deque()
        self.active: list[_Request] = []
        self.outcome = Outcome([-1] * len(arrivals), [-1] * len(arrivals))
        self._retry = True
        """Whether a head that didn't fit may fit now."""
        self._policy = policy
        self._tried = (-1, 0, 0)
        """The blocked head, running and waiting requests when others were last let past it."""

    def add(self, number: int) -> None:
        """Queue a request."""
        a = self.arrivals[number]
        predicted = float(a.output_tokens if a.predicted_tokens is None else a.predicted_tokens)
        key = self._policy.key(Job(number, a.prompt_tokens, predicted))
        bound = a.output_tokens if a.bound_tokens is None else a.bound_tokens
        request = _Request(number, key, a.prompt_tokens, a.output_tokens, predicted, bound)
        self._push(request)
        self.oldest.append(request)

    def admit(self, now: int) -> None:
        """Start waiting requests while the next one fits."""
        while self.waiting and len(self.active) < self.seats:
            request, waits_long = self._head(now)
            if not self._retry and not waits_long:
                return
            candidate = self._holding(request, now, start=now)
            active = [self._holding(other, now, other.start) for other in self.active]
            if active and not self.mode.fits(active, candidate, self.memory):
                # Only a look ahead changes while nothing ends.
                self._retry = self.mode.foresees
                if waits_long:
                    self._fill(now, request, active)
                return
            self._start(request, now)

    def _start(self, request: _Request, now: int) -> None:
        self._take(request)
        request.start = now
        request.chunks = math.ceil(request.prompt / self.chunk) if self.chunk else 0
        self.active.append(request)
        if self.outcome.starts[request.number] < 0:
            self.outcome.starts[request.number] = now
        self._retry = True

    def _fill(self, now: int, head: _Request, active: list[Holding]) -> None:
        """Start requests beside a blocked one that has waited too long, where that delays no older one."""
        tried = (head.number, len(self.active), len(self.waiting))
        if tried == self._tried:
            return
        waiting = (r for r in self.oldest if self.outcome.starts[r.number] < 0)
        guarded = {r.number: self._holding(r, now, start=now) for r in islice(waiting, GUARDED)}
        for _, number, request in heapq.nsmallest(PASSING + 1, self.waiting):
            candidate = self._holding(request, now, start=now)
            others = [wants for other, wants in guarded.items() if other != number]
            if request is not head and may_pass(self.mode, active, others, candidate, self.memory):
                self._start(request, now)
                active.append(candidate)
                guarded.pop(number, None)
        self._tried = (head.number, len(self.active), len(self.waiting))

    def step(self, now: int) -> None:
        """Serve all that is active for one step."""
        held = [self._held(request, now + 1) for request in self.active]
        total = sum(held)
        while total > self.memory:
            victim = max(range(len(held)), key=self._order)
            total -= held.pop(victim)
            self._preempt(self.active.pop(victim), now)
        self.outcome.memory_steps += total
        self.outcome.steps += 1
        left = []
        for request in self.active:
            if now + 1 - request.start >= request.chunks + request.output:
                self.outcome.ends[request.number] = now + 1
                self._retry = True
            else:
                left.append(request)
        self.active = left

    def _head(self, now: int) -> tuple[_Request, bool]:
        """Return the request that goes next, and whether it does since it waited too long."""
        while self.oldest and self.outcome.starts[self.oldest[0].number] >= 0:
            self.oldest.popleft()
        if self.oldest:
            oldest = self.oldest[0]
            if now - self.arrivals[oldest.number].at_step > self.max_wait:
                return oldest, True
        return self.waiting[0][2], False

    def _take(self, request: _Request) -> None:
        if request is not self.waiting[0][2]:
            self.waiting = [e for e in self.waiting if e[2] is not request]
            self.waiting.append((AGED, request.number, request))
            heapq.heapify(self.waiting)
        heapq.heappop(self.waiting)

    def _push(self, request: _Request) -> None:
        if self.waiting and (request.key, request.number) < self.waiting[0][:2]:
            self._retry = True
        heapq.heappush(self.waiting, (request.key, request.number, request))
        self._retry |= len(self.waiting) == 1

    def _order(self, place: int) -> tuple[float, int]:
        request = self.active[place]
        return request.key, request.number

    def _held(self, request: _Request, now: int) -> int:
        """Return the tokens held in the step that ends at ``now``."""
        age = now - request.start
        if age <= request.chunks:
            return min(age * (self.chunk or 0), request.prompt)
        return request.prompt + age - request.chunks

    def _holding(self, request: _Request, now: int, start: int) -> Holding:
        chunks = math.ceil(request.prompt / self.chunk) if self.chunk else 0
        decoded = now - start - chunks  # negative amid the prompt: it grows into it
        done = max(decoded, 0)
        left = remaining_steps(request.predicted, request.done + done) - min(decoded, 0)
        reserved = request.prompt + max(request.bound - request.done, 1)
        return Holding(request.prompt + decoded, left, reserved)

    def _preempt(self, request: _Request, now: int) -> None:
        decoded = max(now - request.start - request.chunks, 0)
        request.prompt += decoded
        request.output -= decoded
        request.done += decoded
        self.outcome.preemptions += 1
        self._push(request)


def serve(
    arrivals: Sequence[Arrival],
    memory: int,
    policy: Policy,
    mode: Mode,
    *,
    chunk: int | None = None,
    max_wait: float = math.inf,
    seats: float = math.inf,
    steps: int | None = None,
) -> Outcome:
    """Serve requests until all are done, or for a number of steps.

    Parameters
    ----------
    arrivals
        In the order of their steps.
    memory
        ``M``, in tokens.
    policy, mode
        From :mod:`semops.engine.ordering`.
    chunk
        Prompt tokens of a request computed in a step; None: prompts are there at once, as in the theory
        of bursts.
    max_wait
        Steps after which a waiting request goes first. While it doesn't fit, later ones may still start,
        smallest first, where that doesn't delay it.
    seats
        Most requests that run together.
    steps
        Stop after so many; None: when all are done.

    Raises
    ------
    CapacityError
        If a request alone needs more than the memory.

    Examples
    --------
    >>> from semops.engine.ordering import admission_mode, ordering
    >>> burst = [Arrival(60, 10), Arrival(10, 20), Arrival(50, 2)]
    >>> serve(burst, 100, ordering("svf"), admission_mode("peak")).ends
    [12, 20, 2]
    """
    for arrival in arrivals:
        peak = arrival.prompt_tokens + arrival.output_tokens
        if peak > memory:
            raise CapacityError(
                f"a request of {arrival.prompt_tokens} prompt and {arrival.output_tokens} answer tokens "
                f"needs {peak}, the memory holds {memory}. Leave it out, or give more memory."
            )
    worker = _Worker(arrivals, memory, policy, mode, chunk, max_wait, seats)
    come = now = 0
    while (come < len(arrivals) or worker.waiting or worker.active) and now != steps:
        if not worker.waiting and not worker.active and steps is None:
            now = max(now, arrivals[come].at_step)
        while come < len(arrivals) and arrivals[come].at_step <= now:
            worker.add(come)
            come += 1
        worker.admit(now)
        worker.outcome.queue.append(len(worker.waiting))
        worker.step(now)
        now += 1
    return worker.outcome
