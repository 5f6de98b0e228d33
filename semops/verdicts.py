"""From answers to values: nothing is guessed; what can't be decided is NULL with a reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from semops.engine.plan import Finish
from semops.operators import ALWAYS, SemMap
from semops.schemas import read, settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.engine.plan import Answer
    from semops.operators import Deciding, Operator


TIE = 1e-9
"""Log odds that are rounding noise, in nats."""


class Value(NamedTuple):
    """What an answer means."""

    value: Any
    """The answer; None where it can't be decided."""
    reason: str = ""
    """Why it is None: ``cut_off``, ``undecided``, ``low_margin``, ``low_mass``, ``invalid``,
    ``over_context``, ``backend``."""
    detail: str = ""
    """Partial text or error message, for the profile."""
    probability: float | None = None
    """Probability of the yes answer among the two, for predicates."""
    margin: float | None = None
    """Log odds of yes before calibration, in nats, for predicates."""
    mass: float = 0.0
    """Probability of the two answers together, before masking, in [0, 1]."""


def read_answer(
    operator: Operator, answer: Answer, choices: tuple[int, ...], shift: float = 0.0
) -> Value:
    """Return the value of an answer.

    Parameters
    ----------
    operator
        What asked.
    answer
        What came.
    choices
        Tokens of a predicate's yes and no.
    shift
        Log odds that calibration takes off, in nats.

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
        return _verdict(answer.logprobs, choices, shift, operator.deciding)
    if answer.finish is Finish.LENGTH:
        if operator.on_cutoff == "keep":
            return Value(answer.text.strip(), "kept_cut_off")
        value = settled(operator.shape, answer.text)
        if value is not None:
            return Value(value)
        return Value(None, "cut_off", answer.text)
    if operator.shape is None:
        return Value(answer.text.strip())
    found = read(operator.shape, answer.text)
    if found.problem:
        return Value(None, "invalid", f"{found.problem}, in {answer.text}")
    return Value(None, "cut_off", answer.text) if found.cut else Value(found.value)


def probability_of(margin: float) -> float:
    """Return the probability of yes from its log odds.

    Examples
    --------
    >>> probability_of(0.0)
    0.5
    """
    # exp of a difference that overflows means certainty; math.exp would raise.
    return 0.0 if margin < -700 else 1.0 / (1.0 + math.exp(-margin))


def _verdict(
    logprobs: Mapping[int, float],
    choices: tuple[int, ...],
    shift: float,
    deciding: Deciding = ALWAYS,
) -> Value:
    yes, no = (logprobs.get(choice, -math.inf) for choice in choices)
    raw = yes - no
    margin = raw - shift
    if math.isnan(margin) or abs(margin) < TIE:
        calibrated = f", of which calibration takes {shift}" if shift else ""
        return Value(None, "undecided", f"log probabilities {yes} and {no}{calibrated}")
    probability = probability_of(margin)
    mass = math.exp(yes) + math.exp(no)
    if abs(margin) < deciding.min_margin:
        detail = f"log odds {margin:.3g}, min_margin {deciding.min_margin:g}"
        return Value(None, "low_margin", detail, probability, raw, mass)
    if mass < deciding.min_mass:
        detail = f"probability of both answers {mass:.3g}, min_mass {deciding.min_mass:g}"
        return Value(None, "low_mass", detail, probability, raw, mass)
    return Value(margin > 0, "", "", probability, raw, mass)
