"""Timing an engine that has run nothing yet: a few requests of mixed lengths, so that a time model can be fitted."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from semops.engine.demand import Demand
from semops.engine.token_program import TokenOperator, TokenProgram

if TYPE_CHECKING:
    from semops.engine.loop import EngineThread
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import Task

ROUNDS = 8
"""Most times that they are run, until there are enough steps."""
REQUESTS = 24
LONGEST = 256
"""Longest prompt, in tokens."""
ANSWERS = (4, 40)
"""Shortest and longest answer, in tokens."""
FIRST_ID, IDS = 300, 500
"""Token ids that every vocabulary has."""
POLL_S = 0.1


def time_steps(engine: EngineThread, seed: int = 0) -> None:
    """Run some requests, unless the engine's steps are known already or can't be.

    It takes some seconds on a CPU. Prompts are made of random token ids.

    Raises
    ------
    EngineError
        If the engine fails.
    """
    scheduler = engine.scheduler
    for round_ in range(ROUNDS):
        if scheduler.meter.model() is not None or scheduler.backend.last_step() is None:
            return
        _run(engine, random.Random(seed + round_))


def _run(engine: EngineThread, dice: random.Random) -> None:
    room = engine.capabilities.context_tokens
    longest = max(min(LONGEST, room - ANSWERS[1] - 1), 1)
    rows = [
        {
            "tokens": [FIRST_ID + dice.randrange(IDS) for _ in range(dice.randint(1, longest))],
            "answer": dice.randint(*ANSWERS),
        }
        for _ in range(REQUESTS)
    ]
    program = TokenProgram(
        [[TokenOperator("probe", (), ANSWERS[1], exact=lambda rows: int(rows[0]["answer"]))]]
    )
    over = threading.Event()
    errors: list[BaseException | None] = []

    def end(error: BaseException | None) -> None:
        errors.append(error)
        over.set()

    def begin(scheduler: Scheduler) -> None:
        demand = Demand(clock=scheduler.clock, everything=True)
        demand.begin_pull()
        query = scheduler.add_query(program.pipeline(), program, demand, _no_local, end)
        for number, row in enumerate(rows):
            scheduler.add_tuple(query, program.root(row, number))
        scheduler.close_input(query)

    engine.post(begin)
    while not over.wait(POLL_S):
        if not engine.alive:
            engine.join()
            if not over.is_set():
                raise engine.reason()
    if errors[0] is not None:
        raise errors[0]


def _no_local(task: Task) -> None:
    raise NotImplementedError
