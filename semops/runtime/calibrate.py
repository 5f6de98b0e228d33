"""Contextual calibration: what a predicate answers to rows without content is taken off its answers.

A model leans to one of two answers whatever the row says. Asked about empty rows it shows how much, and
that is subtracted from the log odds of each verdict (Zhao et al., *Calibrate Before Use*, 2021, with
their content-free inputs and the mean of their probabilities). It depends on operator and model alone,
never on the table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from semops.engine.plan import Call, Verdict
from semops.engine.token_program import TokenOperator, TokenProgram
from semops.engine.token_run import run_on
from semops.errors import EngineError
from semops.operators import SemMap, reads
from semops.verdicts import probability_of, read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semops.engine.loop import EngineThread
    from semops.engine.plan import Answer
    from semops.engine.token_program import TokenTuple
    from semops.operators import Operator
    from semops.prompts import Prompter

CONTENT_FREE = ("", "N/A", "…")
"""What stands in every column of the rows without content."""


class Calibration(NamedTuple):
    """How far a predicate leans to yes."""

    shift: float
    """Log odds of yes for rows without content, in nats."""
    calls: int
    """Requests that it took, 0 where they were known."""


def calibrate(
    operator: Operator,
    prompter: Prompter,
    engine: EngineThread,
    stopped: Callable[[], bool] = lambda: False,
) -> Calibration:
    """Ask a predicate about rows without content.

    Parameters
    ----------
    operator
        A filter or a join.
    prompter, engine
        Of the query that it belongs to.
    stopped
        Whether that query has been given up.

    Raises
    ------
    EngineError
        If the engine fails, gives no probabilities for one of them, or the query was given up.
    """
    assert not isinstance(operator, SemMap)  # noqa: S101 - maps have no verdict
    choices = prompter.choices(operator)
    rows: list[dict[str, object]] = []
    for text in CONTENT_FREE:
        values = dict.fromkeys(reads(operator), text)
        block, suffix = prompter.prompt(operator, values)
        call = Call(operator.kind, operator.template.text, values)
        rows.append({"tokens": (*block, *suffix), "call": call})
    program = _Asked([[TokenOperator("calibration", (), choices=choices)]])
    counts = run_on(engine, program, rows, engine.content_free, stopped)
    margins = []
    for answer in program.answers:
        value = read_answer(operator, answer, choices)
        margin = 0.0 if value.reason == "undecided" and answer.logprobs else value.margin
        if margin is None:
            raise EngineError(
                f"{operator.kind} can't be calibrated: a row without content got no answer "
                f"({value.detail or value.reason}). Leave calibrate=True out, or try again."
            )
        margins.append(margin)
    return Calibration(mean_log_odds(margins), counts["calibration"].calls)


def mean_log_odds(margins: Sequence[float]) -> float:
    """Return the log odds of the mean probability.

    Examples
    --------
    >>> mean_log_odds([2.0, -2.0])
    0.0
    """
    within = [min(max(margin, -500.0), 500.0) for margin in margins]
    yes = math.fsum(map(probability_of, within))
    no = math.fsum(probability_of(-margin) for margin in within)
    return math.log(yes) - math.log(no)


class _Asked(TokenProgram):
    """Keeps every answer, whatever the verdict."""

    def __init__(self, stages: Sequence[Sequence[TokenOperator]]) -> None:
        super().__init__(stages)
        self.answers: list[Answer] = []

    def accept(self, item: TokenTuple, stage: int, step: int, answer: Answer) -> Verdict:  # noqa: ARG002
        self.answers.append(answer)
        return Verdict.KEEP
