"""Requests of given lengths on an engine, through the scheduler: all at once, or one after the other."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

from semops.engine.backends.simulator import SimulatorBackend
from semops.engine.demand import Demand
from semops.engine.lengths import LengthBook
from semops.engine.scheduler import Scheduler
from semops.engine.time_model import TimeModel
from semops.engine.token_program import (
    TokenOperator,
    TokenProgram,
    TokenTuple,
    answering,
    no_local,
)

IDS = range(300, 8_000)
"""Token ids that every vocabulary has."""


@dataclass(slots=True)
class Ended:
    """What became of the requests, by their number."""

    at_step: dict[int, int] = field(default_factory=dict)
    at_s: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    """On the scheduler's clock."""
    steps: int = 0
    queue: list[tuple[float, int]] = field(default_factory=list)
    """Time, and how many had come and were not admitted."""
    predicting_s: float = 0.0


class Requests(TokenProgram):
    """Maps of one request each, whose answers have a given length; notes when each ends."""

    def __init__(self, cap: int, ended: Callable[[int], None]) -> None:
        super().__init__(
            [[TokenOperator("map", (), cap, exact=lambda rows: int(rows[0]["answer"]))]]
        )
        self._ended = ended

    def emit(self, item: TokenTuple) -> None:
        self._ended(item.rows[0]["number"])


def rows(lengths: Sequence[tuple[int, int]], seed: int) -> list[dict[str, Any]]:
    """Return rows with prompts of random tokens, no two of which share a prefix."""
    dice = random.Random(seed)
    return [
        {"number": n, "tokens": dice.choices(IDS, k=prompt), "answer": answer}
        for n, (prompt, answer) in enumerate(lengths)
    ]


def simulator(model: TimeModel, **size: Any) -> SimulatorBackend:
    """Return a simulated engine for such rows."""
    return SimulatorBackend(answering(lambda _, found: int(found[0]["answer"])), model, **size)


def oracle(name: str, item: TokenTuple) -> int:
    """Return the true length of an answer."""
    del name
    return int(item.rows[0]["answer"])


def scheduler_on(
    backend: Any,
    policy: str = "svf",
    mode: str = "ledger",
    *,
    exact: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Scheduler:
    """Return a scheduler; ``exact`` lets ``svf`` know the true lengths, as ``oracle_sjf`` does."""
    if isinstance(backend, SimulatorBackend):
        clock = backend.clock
    book = LengthBook(oracle=oracle)
    scheduler = Scheduler(backend, policy=policy, mode=mode, lengths=book, clock=clock)
    if exact and policy != "fcfs":
        scheduler.ordering = scheduler.ordering._replace(lengths="oracle")
    return scheduler


def serve(
    scheduler: Scheduler,
    data: Sequence[dict[str, Any]],
    *,
    times: Sequence[float] | None = None,
    until_s: float | None = None,
    step_s: float | None = None,
    exact_bounds: bool = True,
    bounds: dict[int, int] | None = None,
) -> Ended:
    """Run requests as one query whose rows may come in any order.

    Parameters
    ----------
    scheduler
        On any backend.
    data
        From :func:`rows`.
    times
        When each comes, in seconds from now; None: all at once.
    until_s
        Stop after so long, in seconds.
    step_s
        Let time pass by so much a step, whatever a step takes; None: by the scheduler's clock.
    exact_bounds
        Whether the ledger reserves the longest answer to prompts of that length; else what it learns.
    bounds
        The longest answers; None: those of ``data``.
    """
    found = Ended()
    start_s, first_step = scheduler.clock(), scheduler.steps

    def note(number: int) -> None:
        found.at_step[number] = scheduler.steps - first_step
        found.at_s[number] = scheduler.clock() - start_s

    program = Requests(max(row["answer"] for row in data), note)
    demand = Demand(clock=scheduler.clock, everything=True)
    demand.begin_pull()
    over: list[BaseException | None] = []
    query = scheduler.add_query(
        program.pipeline(), program, demand, no_local, over.append, ordered=False
    )
    if exact_bounds:
        if bounds is None:
            bounds = longest_answers((len(row["tokens"]), row["answer"]) for row in data)
        query.bounds.update({k: _Known(b.cap, bounds) for k, b in query.bounds.items()})
    come = idle = 0
    while not over:
        now_s = scheduler.clock() - start_s
        if step_s is not None:
            now_s = (scheduler.steps - first_step + idle) * step_s
        while come < len(data) and (times is None or times[come] <= now_s):
            scheduler.add_tuple(query, program.root(data[come], come))
            come += 1
        if come == len(data):
            scheduler.close_input(query)
        busy = scheduler.turn()
        idle += not busy
        found.queue.append((now_s, len(query.waiting[0]) + len(query.arrivals)))
        if until_s is not None and now_s >= until_s:
            scheduler.end_query(query, None)
        if not busy and isinstance(scheduler.backend, SimulatorBackend) and times is not None:
            scheduler.backend.now_s += 1e-3
    if over[0] is not None:
        raise over[0]
    found.seconds = scheduler.clock() - start_s
    found.steps = scheduler.steps - first_step
    found.predicting_s = scheduler.lengths.seconds
    return found


def rate(times: Iterable[float], skip: float = 0.25) -> float:
    """Return the requests that ended in a second (or a step), without the first and the last."""
    times = sorted(times)
    low, high = int(len(times) * skip), int(len(times) * (1 - skip))
    return (high - low) / (times[high] - times[low])


def longest_answers(lengths: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the longest answer to a prompt of each length: what the ledger then reserves."""
    found: dict[int, int] = {}
    for prompt, answer in lengths:
        found[prompt] = max(found.get(prompt, 0), answer)
    return found


class _Known:
    """A bound that is known."""

    one_token = False

    def __init__(self, cap: int, by_prompt: dict[int, int]) -> None:
        self.cap = cap
        self._by_prompt = by_prompt

    def first(self, prompt_tokens: int) -> int:
        return self._by_prompt.get(prompt_tokens, self.cap)

    def grown(self, bound: int, attempt: int, prompt_tokens: int) -> int:
        del attempt, prompt_tokens
        return min(2 * bound, self.cap)

    def observe(self, output_tokens: int, prompt_tokens: int) -> None:
        del output_tokens, prompt_tokens
