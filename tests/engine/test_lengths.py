"""Length predictors: what they learn from answers."""

from __future__ import annotations

import random

import pytest

from semops.engine.lengths import OPERATORS, WINDOW, LengthBook, OperatorLengths


def taught(length, count: int = 400, seed: int = 0, **options) -> OperatorLengths:
    """Predictors after answers of ``length(prompt, dice)`` tokens, learned from as they come."""
    dice = random.Random(seed)
    found = OperatorLengths(cap=1_000, **options)
    for _ in range(count):
        prompt = dice.randint(50, 3_000)
        found.observe(prompt, max(1, int(length(prompt, dice))))
        if found.due:
            found.learn()
    found.learn()
    return found


def test_the_constant_is_a_running_quantile() -> None:
    found = taught(lambda prompt, dice: dice.randint(1, 101), count=WINDOW * 3)
    assert found.constant == pytest.approx(51, abs=6)
    upper = taught(lambda prompt, dice: dice.randint(1, 101), count=WINDOW * 3, quantile=0.9)
    assert upper.constant == pytest.approx(91, abs=5)


def test_the_prompt_may_tell_the_length() -> None:
    found = taught(lambda prompt, dice: prompt / 8 * dice.uniform(0.8, 1.2))
    short, long = found.predict([200, 2_400])
    assert short == pytest.approx(25, rel=0.3)
    assert long == pytest.approx(300, rel=0.3)


def test_long_prompts_may_mean_short_answers() -> None:
    """Prompt and answer share a limit: with one length for all, the smallest volume would be the shortest prompt."""
    found = taught(lambda prompt, dice: (3_100 - prompt) / 8 * dice.uniform(0.5, 1.5))
    volumes = [prompt * found.predict([prompt])[0] for prompt in (300, 1_500, 2_900)]
    assert volumes[0] < volumes[1] > volumes[2]


def test_where_the_prompt_tells_nothing_all_are_expected_to_be_of_mean_length() -> None:
    found = taught(lambda prompt, dice: dice.choice([10, 10, 10, 210]))
    assert found.predict([200, 1_500, 2_900]) == [pytest.approx(60, abs=25)] * 3


def test_it_learns_anew_when_answers_change() -> None:
    found = taught(lambda prompt, dice: prompt / 8)
    dice = random.Random(1)
    for _ in range(3 * WINDOW):
        found.observe(dice.randint(50, 3_000), dice.randint(10, 200))
        if found.due:
            found.learn()
    assert found.predict([200, 1_500, 2_900]) == [pytest.approx(105, abs=20)] * 3


def test_one_bit_tells_short_from_long() -> None:
    found = taught(lambda prompt, dice: 400 if prompt > 1_500 else 20)
    short, long = found.one_bit([100, 2_900])
    assert (short, long) == (pytest.approx(20), pytest.approx(400))
    theory = taught(lambda prompt, dice: 400 if prompt > 1_500 else 20, proxies="theory")
    assert theory.one_bit([100, 2_900]) == [1_000**0.25, 1_000**0.75]


def test_before_it_has_seen_anything_a_map_is_long() -> None:
    found = OperatorLengths(cap=256)
    assert found.one_bit([10]) == [64.0]
    assert found.predict([10]) == [128.0]
    found.observe(10, 4)
    found.learn()  # one answer: a constant already, no classes yet
    assert found.predict([10]) == [4.0]
    assert found.one_bit([10]) == [64.0]


def test_answers_all_alike_make_one_class() -> None:
    found = taught(lambda prompt, dice: 7)
    assert found.one_bit([50, 3_000]) == [7.0, 7.0]
    assert found.predict([50, 3_000]) == [7.0, 7.0]


def test_predictions_stay_within_the_cap() -> None:
    found = taught(lambda prompt, dice: prompt / 3)
    assert max(found.predict([10, 100_000, 1_000_000])) <= 1_000
    assert found.predict([2_000], caps=[50])[0] <= 50


def test_a_book_keeps_operators_apart_and_counts_its_time() -> None:
    book = LengthBook(oracle=lambda name, item: item)
    for number in range(64):
        book.observe("a", 100, 10 + number, 5)
        book.observe("b", 100, 10 + number, 50)
    book.learn()
    assert book.lengths("a", 100, [20], "predicted") == [5.0]
    assert book.lengths("b", 100, [20], "predicted") == [50.0]
    assert book.lengths("filter", 1, [20, 30], "predicted") == [1.0, 1.0]
    assert book.lengths("a", 100, [20], "oracle", [77]) == [77.0]
    assert book.predictions == 2
    assert book.seconds > 0
    with pytest.raises(ValueError, match="simulation only"):
        LengthBook().lengths("a", 100, [20], "oracle", [1])


def test_a_book_forgets_the_operators_used_longest_ago() -> None:
    book = LengthBook()
    for number in range(3 * OPERATORS):
        book.observe(f"map {number}", 100, 10, 5)
        book.observe("used throughout", 100, 10, 5)
        book.learn()
    assert len(book.operators) == OPERATORS
    assert ("used throughout", 100) in book.operators
    assert (f"map {3 * OPERATORS - 1}", 100) in book.operators
    assert ("map 0", 100) not in book.operators
