"""When a verdict counts: margins, mass, calibration; rows with NULL, and rows that are too long."""

from __future__ import annotations

import math
import warnings

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semops
from semops.engine.plan import Answer, Finish
from semops.errors import ConfigError
from semops.operators import Deciding, SemFilter
from semops.runtime.calibrate import mean_log_odds
from semops.template import parse
from semops.testing import Reply, replay
from semops.verdicts import read_answer

CHANCES = [0.1, 0.4, 0.49, 0.51, 0.6, 0.95]
FRAME = pl.DataFrame({"text": [str(chance) for chance in CHANCES]})
FREE = {"", "N/A", "…"}


def chance(operator, instruction, row):
    return 0.5 if row["text"] in FREE else float(row["text"])


def test_min_margin_makes_close_verdicts_null() -> None:
    with replay(chance), pytest.warns(semops.SemopsWarning, match="4 under min_margin"):
        out = FRAME.sem_filter("{text} is so", name="v", probability="p", min_margin=0.41).collect()
    assert out["v"].to_list() == [False, None, None, None, None, True]
    assert out["p"].null_count() == 0
    errors = semops.last_profile().errors()
    assert set(errors["reason"]) == {"low_margin"}
    assert errors["detail"][0].endswith("min_margin 0.41")


def test_min_mass_makes_verdicts_null_that_the_model_does_not_want_to_give() -> None:
    operator = SemFilter(parse("{text} is so"), deciding=Deciding(min_mass=0.5))
    sure, unsure = (
        Answer("", Finish.STOP, logprobs={1: math.log(share), 2: math.log(share / 4)})
        for share in (0.8, 0.2)
    )
    assert read_answer(operator, sure, (1, 2)).value is True
    found = read_answer(operator, unsure, (1, 2))
    assert (found.value, found.reason) == (None, "low_mass")
    assert found.probability == pytest.approx(0.8)


@given(st.floats(0.01, 0.99), st.floats(-5, 5), st.floats(0, 3))
def test_a_verdict_is_right_or_null(share: float, shift: float, least: float) -> None:
    operator = SemFilter(parse("{text} is so"), deciding=Deciding(min_margin=least))
    margin = math.log(share) - math.log(1 - share)
    answer = Answer("", Finish.STOP, logprobs={1: math.log(share), 2: math.log(1 - share)})
    found = read_answer(operator, answer, (1, 2), shift)
    if found.value is None:
        assert found.reason in {"low_margin", "undecided"}
        assert abs(margin - shift) < max(least, 1e-12)
    else:
        assert found.value == (margin > shift)
        assert abs(margin - shift) >= least


def leaning(operator, instruction, row):
    return 0.7 if row["text"] in FREE else float(row["text"])


def test_calibration_takes_off_what_the_model_says_to_nothing() -> None:
    query = FRAME.sem_filter("{text} is so", name="v", calibrate=True)
    with replay(leaning) as log:
        first = query.collect()
        assert len(log.calls) == len(FREE) + 6
        profile = semops.last_profile()
        query.collect()
        assert len(log.calls) == len(FREE) + 12  # known by then
    assert first["v"].to_list() == [False, False, False, False, False, True]
    decisions = profile.decisions["sem_filter:v"]
    assert decisions.shift == pytest.approx(math.log(0.7 / 0.3))
    assert (decisions.yes, decisions.yes_before, decisions.calibration_calls) == (1, 3, 3)
    assert profile.operators["sem_filter:v"].calls == 6
    assert "calibrated by -0.85 nats, 3 yes before" in str(profile)


def test_calibration_that_fails_is_told_and_guesses_nothing() -> None:
    def fails(operator, instruction, row):
        return Reply(failure="no luck") if row["text"] in FREE else True

    with replay(fails), pytest.raises(semops.EngineError, match="can't be calibrated"):
        FRAME.sem_filter("{text} is so", calibrate=True).collect()


def test_a_join_is_calibrated_too() -> None:
    right = pl.DataFrame({"other": ["x", "y"]})

    def pairs(operator, instruction, row):
        return 0.9 if row["text"] in FREE else {"x": 0.8, "y": 0.95}[row["other"]]

    with replay(pairs):
        out = FRAME.sem_join(right, "{text} fits {other}", calibrate=True).collect()
    assert set(out["other"]) == {"y"}


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=5))
def test_the_mean_of_log_odds_lies_between_them(margins: list[float]) -> None:
    assert min(margins) - 1e-9 <= mean_log_odds(margins) <= max(margins) + 1e-9


NULLS = pl.DataFrame({"text": ["a", None, "c"], "n": [1, 2, None]})


def test_nulls_are_asked_about_where_that_is_wanted() -> None:
    with replay(lambda _o, _i, row: f"{row['text']} {row['n']}") as log:
        out = NULLS.sem_map("Join {text} and {n}", "out", nulls="text").collect()
        plain = NULLS.sem_map("Join {text} and {n}", "out").collect()
    assert out["out"].to_list() == ["a 1", "None 2", "c None"]
    assert plain["out"].to_list() == ["a 1", None, None]
    assert len(log.calls) == 4
    with semops.options(nulls="text"):
        query = NULLS.sem_filter("{text} is so")
    with replay(lambda *_: True) as log:
        assert query.collect().height == 3


LONG = pl.DataFrame({"title": ["t", "t"], "text": ["word " * 40, "word " * 4_000]})


def test_a_row_that_is_too_long_is_cut_where_that_is_wanted() -> None:
    with replay(lambda *_: "fine", context_tokens=256) as log:
        with pytest.warns(semops.SemopsWarning, match="1 longer than the context"):
            out = LONG.sem_map("Sum up {title} {text}", "out", max_tokens=16).collect()
        assert out["out"].to_list() == ["fine", None]
        out = LONG.sem_map(
            "Sum up {title} {text}", "out", max_tokens=16, overflow="truncate"
        ).collect()
        assert out["out"].to_list() == ["fine", "fine"]
    assert len(log.calls) == 3
    counts = semops.last_profile().operators["sem_map:out"]
    assert counts.nulls == {"truncated": 1}
    assert counts.prompt_tokens <= 2 * 256


@pytest.mark.parametrize("words", [0, 1, 50, 200, 230, 300, 2_000])
@pytest.mark.parametrize("right_words", [1, 150, 3_000])
def test_pairs_that_are_too_long_are_cut(words: int, right_words: int) -> None:
    left = pl.DataFrame({"text": ["word " * words, "x"]})
    right = pl.DataFrame({"other": ["other " * right_words, "y", "z"]})
    query = left.sem_filter("{text} is so", overflow="truncate").sem_join(
        right, "{text} fits {other}", overflow="truncate"
    )
    for pinning in ("auto", "virtual"):
        with replay(lambda *_: True, context_tokens=256, kv_tokens=512, pinning=pinning) as log:
            assert query.collect().height == 6
            assert log.engine.scheduler.ledger.used == 0


def test_an_instruction_that_alone_is_too_long_is_told() -> None:
    long = FRAME.sem_map("Say " + "so " * 400 + "{text}", "out", overflow="truncate")
    with replay(lambda *_: "x", context_tokens=256) as log, pytest.warns(semops.SemopsWarning):
        assert long.collect()["out"].null_count() == 6
    assert not log.calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_margin": -1}, "min_margin=-1 must be a number of at least 0"),
        ({"min_margin": math.nan}, "min_margin=nan must be a number"),
        ({"min_mass": 1.5}, "min_mass=1.5 must be a number of at least 0 and at most 1"),
        ({"min_mass": "x"}, "min_mass='x' must be a number"),
        ({"calibrate": "yes"}, "calibrate='yes' must be True or False"),
        ({"nulls": "drop"}, "nulls='drop' is not allowed; choose one of 'null', 'text'"),
        ({"overflow": "cut"}, "overflow='cut' is not allowed; choose one of 'error', 'truncate'"),
    ],
)
def test_wrong_options_are_told_at_once(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        FRAME.sem_filter("{text} is so", **options)


def test_a_wrong_temperature_is_told() -> None:
    with pytest.raises(ConfigError, match="temperature=-1 must be a number of at least 0"):
        FRAME.sem_map("Say {text}", temperature=-1)


@pytest.mark.parametrize("share", [0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9])
def test_a_verdict_that_calibration_takes_off_whole_is_undecided(share) -> None:
    query = FRAME.sem_filter("{text} is so", name="v", calibrate=True)
    with replay(lambda *_: share), pytest.warns(semops.SemopsWarning, match="6 undecided"):
        assert query.collect()["v"].null_count() == 6


def test_a_row_of_which_nothing_is_left_is_not_asked_about() -> None:
    frame = pl.DataFrame({"text": ["I hate it, truly " * 9, "I love it, truly " * 9]})
    for instruction in ("Say " + "so " * 200 + "{text}", "Say " + "so " * 228 + "{text}"):
        query = frame.sem_map(instruction, "out", max_tokens=16, overflow="truncate")
        with (
            replay(lambda _o, _i, row: row["text"], context_tokens=256) as log,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", semops.SemopsWarning)
            out = query.collect()
        reasons = semops.last_profile().errors()["reason"].to_list()
        if log.calls:
            assert len(log.calls) == 2
            assert set(reasons) == {"truncated"}
        else:
            assert reasons == ["over_context"] * 2
            assert out["out"].null_count() == 2
