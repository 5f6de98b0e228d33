"""Which prompts share a prefix, and what is said where they don't."""

from __future__ import annotations

import pytest

from semops.operators import Asking, SemFilter, SemMap
from semops.planner.layout import sharing
from semops.template import parse


def asks(instruction: str, style: str = "chat") -> SemFilter:
    return SemFilter(parse(instruction), asking=Asking(style=style))


@pytest.mark.parametrize(
    ("first", "second", "columns", "whole"),
    [
        ("{a} is", "{a} too", ("a",), True),
        ("{a} is", "{a} and {b}", ("a",), True),
        ("{a} and {b}", "{a} and {c}", ("a",), False),
        ("{a} and {b}", "{b} and {a}", (), False),
        ("{a} and {b} and {a}", "{a} and {b}", ("a", "b"), True),
    ],
)
def test_columns_are_shared_as_far_as_they_agree_from_the_start(
    first: str, second: str, columns: tuple[str, ...], whole: bool
) -> None:
    found = sharing(asks(first), asks(second))
    assert (found.columns, found.whole) == (columns, whole)


def test_the_reason_names_the_columns_that_differ() -> None:
    assert sharing(asks("{a} and {b}"), asks("{a} and {c}")).reason == (
        "shares 'a' with sem_filter; then 'c' comes here, 'b' there"
    )


def test_styles_share_nothing() -> None:
    found = sharing(asks("{a} is"), asks("{a} is", "raw"))
    assert (found.columns, found.reason) == (
        (),
        "shares nothing with sem_filter: other prompt style",
    )


def test_the_kind_of_operator_does_not_matter() -> None:
    assert sharing(asks("{a} is"), SemMap(parse("Sum up {a}"), "s")).whole
