"""Bounds of answers: learned, grown, never above the cap."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semops.engine.bounds import MIN_OBSERVATIONS, START, WINDOW, BoundEstimator

TOKENS = st.integers(1, 2_000)
SEEN = st.lists(st.tuples(st.integers(0, 2_000), TOKENS), max_size=100)


def learned(cap: int, seen: list[tuple[int, int]]) -> BoundEstimator:
    estimator = BoundEstimator(cap)
    for output, prompt in seen:
        estimator.observe(output, prompt)
    return estimator


@given(TOKENS, SEEN, TOKENS)
def test_a_bound_is_between_one_and_the_cap(
    cap: int, seen: list[tuple[int, int]], prompt: int
) -> None:
    assert 1 <= learned(cap, seen).first(prompt) <= cap


@given(TOKENS, SEEN, TOKENS)
def test_a_bound_grows_to_the_cap_in_three_attempts(
    cap: int, seen: list[tuple[int, int]], prompt: int
) -> None:
    estimator = learned(cap, seen)
    bound = first = estimator.first(prompt)
    attempts = 1
    while bound < cap:
        grown = estimator.grown(bound, attempts, prompt)
        assert min(2 * bound, cap) <= grown <= cap
        bound, attempts = grown, attempts + 1
    assert attempts <= min(math.ceil(math.log2(cap / first)) + 1, 4)


@pytest.mark.parametrize(("cap", "expected"), [(10, 10), (START, START), (5_000, START)])
def test_before_anything_is_seen_the_cap_or_the_start_bounds(cap: int, expected: int) -> None:
    assert learned(cap, [(3, 100)] * (MIN_OBSERVATIONS - 1)).first(100) == expected


def test_the_smaller_of_absolute_and_relative_length_bounds() -> None:
    estimator = learned(1_000, [(20, 100)] * 50)
    assert estimator.first(1_000) == 20
    assert estimator.first(10) == 3


def test_the_99th_percentile_bounds() -> None:
    estimator = learned(1_000, [(10, 100)] * 490 + [(50, 100)] * 22)
    assert estimator.first(100) == 50
    estimator = learned(1_000, [(10, 100)] * 510 + [(50, 100)])
    assert estimator.first(100) == 10


def test_old_answers_are_forgotten() -> None:
    estimator = learned(1_000, [(500, 100)] * WINDOW + [(10, 100)] * WINDOW)
    assert estimator.first(100) == 10


def test_one_token_is_one_token_whatever_is_seen() -> None:
    estimator = BoundEstimator(1, one_token=True)
    estimator.observe(500, 10)
    assert estimator.first(1_000) == 1


def test_empty_answers_leave_room_for_one_token() -> None:
    assert learned(100, [(0, 100)] * 64).first(100) >= 1
