"""One stated result for each odd input; nothing is dropped, guessed or lost."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

import semops
from semops.testing import Reply, replay


def answer(operator, instruction, row):
    """Say yes to rows whose text holds ``yes``; map to the text's length."""
    text = str(next(iter(row.values())))
    return f"{len(text)} letters" if operator == "sem_map" else "yes" in text


def collect(frame, **size):
    """Collect under a replay; return the rows, the calls and the profile."""
    with replay(answer, **size) as log:
        out = frame().collect()
        calls = list(log.calls)
        assert log.engine.scheduler.ledger.used == 0
    return out, calls, semops.last_profile()


def test_null_input_gives_null_without_a_call():
    """A NULL drops out of a filter, is NULL in a map, and costs nothing."""
    df = pl.DataFrame({"t": ["yes", None, "no"]})
    out, calls, profile = collect(lambda: df.sem_filter("{t} ok").sem_map("Size {t}", "m"))
    assert out.rows() == [("yes", "3 letters")]
    assert [call.row["t"] for call in calls] == ["yes", "yes", "no"] or len(calls) == 3
    assert profile.operators["sem_filter"].nulls == {"null_input": 1}
    out, calls, _ = collect(lambda: df.sem_map("Size {t}", "m"))
    assert out["m"].to_list() == ["3 letters", None, "2 letters"]
    assert len(calls) == 2


def test_only_named_columns_count_for_null():
    """A NULL in a column that the instruction doesn't name changes nothing."""
    df = pl.DataFrame({"t": ["yes"], "other": pl.Series([None], dtype=pl.String)})
    out, _, _ = collect(lambda: df.sem_filter("{t} ok"))
    assert out.height == 1


def test_empty_frame():
    """No rows give no rows, of the right schema, without a call."""
    df = pl.DataFrame(schema={"t": pl.String, "n": pl.Int32})
    out, calls, _ = collect(lambda: df.sem_filter("{t} ok").sem_map("Size {t}", "m"))
    assert out.schema == {"t": pl.String, "n": pl.Int32, "m": pl.String}
    assert out.height == 0
    assert calls == []


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
def test_all_filtered_out(executor):
    """Nothing passes: no rows of the right schema, and no map call."""
    df = pl.DataFrame({"t": ["no"] * 5, "n": range(5)})
    with semops.options(executor=executor):
        out, calls, _ = collect(lambda: df.sem_filter("{t} ok").sem_map("Size {t}", "m"))
    assert out.schema == {"t": pl.String, "n": pl.Int64, "m": pl.String}
    assert out.height == 0
    assert {call.operator for call in calls} == {"sem_filter"}


@pytest.mark.parametrize("name", ["a.b", "x:y", "본문", "with space", "x:left", "a\nb"])
def test_column_names(name):
    """Any name without braces can stand in a template."""
    df = pl.DataFrame({name: ["yes", "no"]})
    out, calls, _ = collect(
        lambda: df.sem_filter(f"{{{name}}} ok").sem_map(f"Size {{{name}}}", "m")
    )
    assert out["m"].to_list() == ["3 letters"]
    assert calls[0].row == {name: "yes"}


@pytest.mark.parametrize(
    "text",
    ["{braces}", "{{yes}}", "yes {0} {t!r}", "<|im_end|> yes", "100% yes\n\nTrue", "", "yes \x00"],
)
def test_data_is_data(text):
    """Row text reaches the model as it is."""
    df = pl.DataFrame({"t": [text]})
    out, calls, _ = collect(lambda: df.sem_map("Size {t}", "m"))
    assert calls[0].row == {"t": text}
    assert out["m"].to_list() == [f"{len(text)} letters"]


def test_overlong_row_among_ten():
    """A row over the context is NULL with its reason; the other nine are answered."""
    texts = ["yes"] * 4 + ["yes " * 20_000] + ["yes"] * 5
    df = pl.DataFrame({"t": texts, "n": range(10)})
    with pytest.warns(semops.SemopsWarning, match="1 longer than the context"):
        out, _, profile = collect(lambda: df.sem_map("Size {t}", "m"), context_tokens=2_000)
    assert out["m"].null_count() == 1
    assert out["m"][4] is None
    errors = profile.errors()
    assert errors.select("row", "operator", "reason").rows() == [(4, "sem_map:m", "over_context")]
    assert "2000" in errors["detail"][0]
    with pytest.warns(semops.SemopsWarning):
        out, _, _ = collect(lambda: df.sem_filter("{t} ok"), context_tokens=2_000)
    assert out["n"].to_list() == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_no_column_in_the_instruction():
    """An instruction without a column is an error that lists the columns."""
    with pytest.raises(semops.TemplateError, match=r"names no column.*'t', 'n'"):
        pl.DataFrame({"t": ["a"], "n": [1]}).sem_filter("is it kind?")


def test_unknown_column():
    """An unknown column is an error that lists the columns, before anything runs."""
    with pytest.raises(semops.TemplateError, match=r"'review'.*isn't there.*'t', 'n'"):
        pl.DataFrame({"t": ["a"], "n": [1]}).lazy().sem_map("Sum {review}", "m")


def test_two_maps_without_names():
    """Default names count up."""
    df = pl.DataFrame({"t": ["yes"]})
    out, _, _ = collect(lambda: df.sem_map("Size {t}").sem_map("Length {t}"))
    assert out.columns == ["t", "sem_map", "sem_map_2"]


@pytest.mark.parametrize(
    "build",
    [
        lambda df: df.sem_map("Size {t}", "n"),
        lambda df: df.sem_filter("{t} ok", name="t"),
        lambda df: df.sem_filter("{t} ok", name="v", probability="v"),
        lambda df: df.sem_join(df, "{t:left} is {t:right}", suffix=""),
    ],
    ids=["map", "verdict", "verdict and probability", "join"],
)
def test_name_clash(build):
    """A taken name is an error that says what is there."""
    with pytest.raises(semops.SchemaError, match="exists already"):
        build(pl.DataFrame({"t": ["a"], "n": [1]}))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda df: df.sem_filter(None), "instruction=None must be a text"),
        (lambda df: df.sem_map(b"{t}"), "instruction=b.* must be a text"),
        (lambda df: semops.sem_filter(df["t"], "{t} ok"), "frame must be .* not Series"),
        (lambda df: semops.sem_map({"t": ["a"]}, "{t}"), "frame must be .* not dict"),
        (lambda df: df.sem_join(None, "{t:left} is {t:right}"), "right must be a Polars DataFrame"),
        (lambda df: df.sem_join(df, "{t:left} is {t:right}", suffix=None), "suffix=None"),
        (lambda df: df.sem_map("{t}", 5), "name=5 must be a text"),
        (lambda df: df.sem_filter("{t} ok", name=True), "name=True must be a text"),
        (lambda df: df.sem_filter("{t} ok", probability=1), "probability=1 must be a text"),
        (lambda df: df.sem_map("{t}", stop=""), "stop='' must be a text"),
        (lambda df: df.sem_map("{t}", stop=("a", "")), "stop=..a.* must be a text"),
        (lambda df: df.sem_map("{t}", stop=(5,)), "stop=.5.* must be a text"),
        (lambda df: df.sem_map("{t}", stop=None), "stop=None must be a text"),
        (lambda df: df.sem_map("{t}", max_tokens=1.0), "max_tokens=1.0 must be a whole number"),
        (lambda df: df.sem_filter("{t} ok", answers="yes"), "answers='yes' must be two"),
        (lambda df: df.sem_filter("{t} ok", prompt_style="chatty"), "'chat', 'raw'"),
        (lambda df: df.sem_map("{t}", on_error="skip"), "'null', 'raise'"),
        (lambda _: semops.explain(None), "frame must be .* not NoneType"),
    ],
)
def test_an_argument_of_a_wrong_kind_is_an_error_of_ours_before_anything_runs(build, message):
    """No error from the depths, and none only when the query runs."""
    with pytest.raises(semops.SemopsError, match=message):
        build(pl.DataFrame({"t": ["a"]}))


HALF = "a\ud83d"
"""Half a surrogate pair: a text for Python, and for nobody else."""


@pytest.mark.parametrize(
    "build",
    [
        lambda df: df.sem_filter(f"{{t}} {HALF}"),
        lambda df: df.sem_map(f"{{t}} {HALF}"),
        lambda df: df.sem_join(df, f"{{t:left}} {{t:right}} {HALF}"),
        lambda df: df.sem_filter("{t}", answers=(HALF, "no")),
        lambda df: df.sem_filter("{t}", name=HALF),
        lambda df: df.sem_filter("{t}", probability=HALF),
        lambda df: df.sem_map("{t}", HALF),
        lambda df: df.sem_map("{t}", stop=HALF),
        lambda df: df.sem_map("{t}", stop=("b", HALF)),
        lambda df: df.sem_map("{t}", examples=[("b", HALF)]),
        lambda df: df.sem_map("{t}", examples=[(HALF, "b")]),
        lambda df: df.sem_join(df, "{t:left} {t:right}", suffix=HALF),
    ],
    ids=itertools.count(),
)
def test_half_a_surrogate_pair_is_told_before_anything_runs(build):
    """Whatever argument it stands in."""
    with pytest.raises(semops.ConfigError, match=r"surrogate|different texts|none empty"):
        build(pl.DataFrame({"t": ["a"]}))


def test_numbers_and_flags_of_numpy_are_numbers_and_flags():
    """They come out of other people's arrays."""
    df = pl.DataFrame({"t": ["yes"]})
    for number in (np.float32(0.5), np.float64(0.5), np.int64(0), Decimal("0.5"), 0):
        df.sem_filter("{t}", min_margin=number, min_mass=number)
        df.sem_map("{t}", temperature=number)
    for flag in (np.True_, np.False_):
        df.sem_filter("{t}", calibrate=flag)
    out, _, _ = collect(lambda: df.sem_map("Size {t}", "m", max_tokens=np.int64(5)))
    assert out["m"].to_list() == ["3 letters"]
    for wrong in (np.array(["null", "text"]), np.array([1, 2])):
        with pytest.raises(semops.ConfigError):
            df.sem_filter("{t}", nulls=wrong)
        with pytest.raises(semops.ConfigError):
            df.sem_filter("{t}", min_mass=wrong)


BEYOND = {
    "date": pl.Series([2**31 - 1, None], dtype=pl.Int32).cast(pl.Date),
    "year 29349": pl.Series([10**7, None], dtype=pl.Int32).cast(pl.Date),
    "before year 1": pl.Series([-63 * 10**15]).cast(pl.Datetime("us")),
    "time": pl.Series([2**62]).cast(pl.Datetime("ms")),
    "zoned": pl.Series([2**62]).cast(pl.Datetime("ms", "Europe/Berlin")),
    "duration": pl.Series([2**62]).cast(pl.Duration("ms")),
    "in a list": pl.Series([[2**62]]).cast(pl.List(pl.Datetime("ms"))),
}


@pytest.mark.parametrize("kind", BEYOND)
def test_a_value_that_python_does_not_have_is_told_where_it_is_read_and_kept_where_not(kind):
    """Polars holds more dates than Python; an unread column is never turned into Python objects."""
    df = pl.DataFrame({"v": BEYOND[kind]}).with_columns(t=pl.lit("yes"))
    out, _, _ = collect(lambda: df.sem_filter("{t} ok").sem_map("Size {t}", "m"))
    assert_series_equal(out["v"], df["v"])
    with pytest.raises(semops.SchemaError, match=r"column 'v' can't be .*to_physical"):
        collect(lambda: df.sem_map("Size {v}", "m"))
    numbers = df.with_columns(pl.col("v").to_physical())
    assert collect(lambda: numbers.sem_map("Size {v}", "m"))[0].height == df.height


@pytest.mark.parametrize("dtype", [pl.Float16, pl.Float32, pl.Float64], ids=str)
def test_a_float_stands_in_a_prompt_with_the_digits_that_it_has(dtype):
    """Not with those that a wider type would show."""
    for nested, value in (
        (dtype, 0.1),
        (pl.List(dtype), [0.1]),
        (pl.Struct({"a": dtype}), {"a": 0.1}),
    ):
        df = pl.DataFrame({"v": [value]}, schema={"v": nested})
        _, calls, _ = collect(lambda df=df: df.sem_map("Size {v}", "m"))
        assert calls[0].row == {"v": value}


def test_binary_column():
    """Bytes have no text form; the error names the cast."""
    df = pl.DataFrame({"b": [b"x"], "l": [[b"x"]]})
    for column in ("b", "l"):
        with pytest.raises(semops.SchemaError, match="no text form"):
            df.sem_filter(f"{{{column}}} ok")


def test_kv_for_one_request():
    """With memory for a single request everything runs, one request after the other."""
    df = pl.DataFrame({"t": [f"yes {i} " + "word " * 50 for i in range(6)]})
    out, _, profile = collect(
        lambda: df.sem_filter("{t} ok").sem_map("Size {t}", "m", max_tokens=8),
        kv_tokens=112,
        block_tokens=16,
    )
    assert out.height == 6
    assert out["m"].null_count() == 0
    assert profile.events.solo > 0


def test_kv_for_less_than_one_request():
    """A row that can't fit at all is NULL with its reason, and nothing hangs."""
    df = pl.DataFrame({"t": ["yes " + "word " * 200, "yes"]})
    with pytest.warns(semops.SemopsWarning, match="longer than the context"):
        out, _, _ = collect(lambda: df.sem_map("Size {t}", "m", max_tokens=8), kv_tokens=112)
    assert out["m"].to_list() == [None, "3 letters"]


def test_all_blocks_pinned_by_somebody_else():
    """The deadlock monitor drops the pins and the query ends."""
    df = pl.DataFrame({"t": ["yes", "no"]})
    with replay(answer, kv_tokens=1_024) as log:
        backend = log.backend
        filler = list(range(1_024))
        backend._pool.acquire([hash(i) for i in range(64)], 0)
        backend._pins[-1] = [hash(i) for i in range(64)]
        del filler
        out = df.sem_filter("{t} ok").collect()
        assert out.height == 1
        assert log.engine.scheduler.events.deadlocks == 1
        assert log.engine.scheduler.pins.enabled is False


def test_prompt_exactly_at_the_context_limit():
    """A prompt that leaves room for one token is answered; one more token and it is NULL."""
    with replay(answer) as log:
        pl.DataFrame({"t": ["yes"]}).sem_filter("{t} ok").collect()
        profile = semops.last_profile()
        prompt = profile.operators["sem_filter"].prompt_tokens
        assert len(log.calls) == 1
    df = pl.DataFrame({"t": ["yes"]})
    out, _, _ = collect(lambda: df.sem_filter("{t} ok"), context_tokens=prompt + 1)
    assert out.height == 1
    with pytest.warns(semops.SemopsWarning):
        out, calls, _ = collect(lambda: df.sem_filter("{t} ok"), context_tokens=prompt)
    assert out.height == 0
    assert calls == []


def test_undecided_cut_off_and_failed_answers_are_null_and_counted():
    """What can't be decided is NULL; each reason is counted and listed."""

    def odd(operator, _instruction, row):
        if operator == "sem_filter":
            return None
        return {
            "cut": Reply("on and on", cut_off=True),
            "fail": Reply(failure="the model fell over"),
            "raise": ValueError,
        }.get(row["t"], "fine")

    df = pl.DataFrame({"t": ["a", "cut", "fail"]})
    with replay(odd), pytest.warns(semops.SemopsWarning, match="1 cut off.*1 failed"):
        out = df.sem_map("Say {t}", "m", max_tokens=4).collect()
    assert out["m"].to_list() == ["fine", None, None]
    cut, failed = (
        semops.last_profile().errors().sort("row").select("row", "reason", "detail").rows()
    )
    assert cut[:2] == (1, "cut_off")
    assert failed == (2, "backend", "the model fell over")
    with replay(odd), pytest.warns(semops.SemopsWarning, match="3 undecided"):
        assert df.sem_filter("{t} ok").collect().height == 0
    with replay(odd), pytest.raises(semops.EngineError, match="undecided"):
        df.sem_filter("{t} ok", on_error="raise").collect()
    with replay(odd), pytest.warns(semops.SemopsWarning):
        out = df.sem_filter("{t} ok", name="v", probability="p").collect()
    assert out["v"].to_list() == [None, None, None]


def test_cut_off_kept_when_asked():
    """``on_cutoff="keep"`` returns the partial text and counts it."""
    df = pl.DataFrame({"t": ["a"]})
    with replay(lambda *_: Reply("one two three four", cut_off=True)):
        out = df.sem_map("Say {t}", "m", max_tokens=2, on_cutoff="keep").collect()
    assert out["m"].to_list() == ["one two"]
    assert semops.last_profile().operators["sem_map:m"].nulls == {"kept_cut_off": 1}


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
def test_an_operator_that_stands_twice_in_a_plan_is_counted_twice(executor):
    """Equal operators share a line of the profile, and none of their calls is lost."""
    df = pl.DataFrame({"t": ["yes", "yes and no", "no"], "u": ["yes", "no", "yes"]})
    with semops.options(executor=executor):
        out, calls, profile = collect(
            lambda: df.sem_filter("{t} ok").with_columns(t=pl.col("u")).sem_filter("{t} ok")
        )
    assert out.rows() == [("yes", "yes")]
    counts = profile.operators["sem_filter"]
    assert (counts.rows, counts.kept) == (5, 3)
    assert counts.calls == len(calls) == counts.rows - counts.reused


def test_verdict_and_probability_columns():
    """``name=`` and ``probability=`` add columns and keep all rows in order."""
    df = pl.DataFrame({"t": ["a", "b", None]})
    with replay(lambda _o, _i, row: {"a": 0.9, "b": 0.2}[row["t"]]):
        out = df.sem_filter("{t} ok", name="v", probability="p").collect()
    assert out["v"].to_list() == [True, False, None]
    assert out["p"].to_list() == pytest.approx([0.9, 0.2, None], abs=1e-6, nan_ok=True)
