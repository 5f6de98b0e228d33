"""Timing an engine that has run nothing yet: a few requests of mixed lengths, so that a time model can be fitted."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from semops.engine.token_program import TokenOperator, TokenProgram
from semops.engine.token_run import run_on

if TYPE_CHECKING:
    from semops.engine.loop import EngineThread

ROUNDS = 8
"""Most times that they are run, until there are enough steps."""
REQUESTS = 24
LONGEST = 256
"""Longest prompt, in tokens."""
ANSWERS = (4, 40)
"""Shortest and longest answer, in tokens."""
FIRST_ID, IDS = 300, 500
"""Token ids that every vocabulary has."""


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
    run_on(engine, program, rows)
