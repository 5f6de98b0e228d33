"""From answers to values: nothing is guessed; what can't be decided is NULL with a reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from semops.engine.plan import Finish
from semops.operators import SemMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.engine.plan import Answer
    from semops.operators import Operator


class Value(NamedTuple):
    """What an answer means."""

    value: str | bool | None
    """The answer; None where it can't be decided."""
    reason: str = ""
    """Why it is None: ``cut_off``, ``undecided``, ``over_context``, ``backend``."""
    detail: str = ""
    """Partial text or error message, for the profile."""
    probability: float | None = None
    """Probability of the yes answer among the two, for predicates."""


def read_answer(operator: Operator, answer: Answer, choices: tuple[int, ...]) -> Value:
    """Return the value of an answer.

    Examples
    --------
    >>> from semops.engine.plan import Answer
    >>> from semops.operators import SemFilter
    >>> from semops.template import parse
    >>> answer = Answer("True", Finish.STOP, logprobs={1: -0.1, 2: -2.5})
    >>> read_answer(SemFilter(parse("{text} is kind")), answer, (1, 2)).value
    True
    """
    if answer.finish is Finish.ERROR:
        reason, colon, detail = answer.detail.partition(": ")
        if reason == "over_context" and colon:
            return Value(None, "over_context", detail)
        return Value(None, "backend", answer.detail)
    if not isinstance(operator, SemMap):
        return _verdict(answer.logprobs, choices)
    if answer.finish is Finish.LENGTH:
        if operator.on_cutoff == "keep":
            return Value(answer.text.strip(), "kept_cut_off")
        return Value(None, "cut_off", answer.text)
    return Value(answer.text.strip())


def _verdict(logprobs: Mapping[int, float], choices: tuple[int, ...]) -> Value:
    yes, no = (logprobs.get(choice, -math.inf) for choice in choices)
    if math.isnan(yes) or math.isnan(no) or yes == no:
        return Value(None, "undecided", f"log probabilities {yes} and {no}")
    # exp of a difference that overflows means certainty; math.exp would raise.
    margin = yes - no
    probability = 0.0 if margin < -700 else 1.0 / (1.0 + math.exp(-margin))
    return Value(yes > no, probability=probability)
