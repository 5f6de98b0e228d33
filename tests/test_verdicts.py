"""What an answer means: nothing is guessed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semops.engine.plan import Answer, Finish
from semops.operators import SemFilter, SemMap
from semops.template import parse
from semops.verdicts import TIE, read_answer

FILTER = SemFilter(parse("{text} is kind"))
MAP = SemMap(parse("Shorten {text}"), "short")
KEEP = SemMap(parse("Shorten {text}"), "short", on_cutoff="keep")
YES, NO = 1, 2


def verdict(logprobs: dict[int, float]) -> tuple[object, str]:
    value = read_answer(FILTER, Answer("True", Finish.STOP, logprobs=logprobs), (YES, NO))
    return value.value, value.reason


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        ({YES: -0.1, NO: -3.0}, (True, "")),
        ({YES: -3.0, NO: -0.1}, (False, "")),
        ({YES: -1.0, NO: -1.0}, (None, "undecided")),
        ({YES: -1.0}, (True, "")),
        ({NO: -1.0}, (False, "")),
        ({}, (None, "undecided")),
        ({YES: math.nan, NO: -1.0}, (None, "undecided")),
        ({YES: -math.inf, NO: -math.inf}, (None, "undecided")),
        ({YES: -2_000.0, NO: -0.1}, (False, "")),
        ({YES: -0.1, NO: -2_000.0}, (True, "")),
    ],
)
def test_a_verdict_is_the_more_likely_answer_and_null_where_neither_is(
    logprobs: dict[int, float], expected: tuple[object, str]
) -> None:
    assert verdict(logprobs) == expected


@given(st.floats(-50, 0), st.floats(-50, 0))
def test_the_probability_is_that_of_yes_among_the_two(yes: float, no: float) -> None:
    answer = Answer("", Finish.STOP, logprobs={YES: yes, NO: no})
    value = read_answer(FILTER, answer, (YES, NO))
    if value.value is None:
        assert abs(yes - no) < TIE
        assert value.probability is None
        return
    assert value.probability == pytest.approx(math.exp(yes) / (math.exp(yes) + math.exp(no)))
    assert value.value is (yes > no)


def test_the_text_of_a_predicate_does_not_count() -> None:
    answer = Answer("False", Finish.STOP, logprobs={YES: -0.1, NO: -2.0})
    assert read_answer(FILTER, answer, (YES, NO)).value is True


def test_a_text_is_stripped_of_space_around_it() -> None:
    assert read_answer(MAP, Answer(" a b \n", Finish.STOP), None).value == "a b"
    assert read_answer(MAP, Answer("", Finish.STOP), None).value == ""


def test_a_text_that_was_cut_off_is_null_unless_wanted() -> None:
    cut = Answer(" half of ", Finish.LENGTH)
    value = read_answer(MAP, cut, None)
    assert (value.value, value.reason, value.detail) == (None, "cut_off", " half of ")
    kept = read_answer(KEEP, cut, None)
    assert (kept.value, kept.reason) == ("half of", "kept_cut_off")


@pytest.mark.parametrize("operator", [FILTER, MAP, KEEP])
@pytest.mark.parametrize(
    ("detail", "reason", "shown"),
    [
        ("out of luck", "backend", "out of luck"),
        ("over_context: 9 tokens", "over_context", "9 tokens"),
        ("KeyError: 'over_context: x'", "backend", "KeyError: 'over_context: x'"),
        ("", "backend", ""),
    ],
)
def test_a_failure_is_null_with_its_reason(
    operator: SemFilter | SemMap, detail: str, reason: str, shown: str
) -> None:
    value = read_answer(operator, Answer("x", Finish.ERROR, detail=detail), (YES, NO))
    assert (value.value, value.reason, value.detail, value.probability) == (
        None,
        reason,
        shown,
        None,
    )
