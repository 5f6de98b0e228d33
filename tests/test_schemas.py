"""Typed maps: the column's type is known before, and every value is of it or NULL with a reason."""

from __future__ import annotations

import datetime as dt
import enum
import json
import warnings
from typing import Annotated, Literal, Optional

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, computed_field, field_validator

import semops
from semops import schemas
from semops.errors import ConfigError, UnsupportedError
from semops.schemas import read, shape_of, written
from semops.serialize import text_of, values_of
from semops.testing import Reply, replay

FRAME = pl.DataFrame({"text": ["a", "b", "c"]})


class Tone(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Aspect(BaseModel):
    name: str = Field(max_length=5)
    stars: int = Field(ge=1, le=5)


class Review(BaseModel):
    tone: Tone
    aspects: list[Aspect]
    score: int = Field(ge=0, le=10)
    day: dt.date | None = None
    remark: str = ""


class Node(BaseModel):
    below: Node | None = None


VALUE = {
    "tone": "good",
    "aspects": [{"name": "lens", "stars": 3}],
    "score": 7,
    "day": "2026-01-02",
    "remark": "x",
}

DTYPES = {
    pl.UInt8: (200, pl.UInt8),
    pl.Int64(): (-3, pl.Int64),
    pl.Float32: (0.5, pl.Float32),
    pl.Boolean: (True, pl.Boolean),
    pl.Date: ("2026-01-02", pl.Date),
    pl.Time: ("10:11:12", pl.Time),
    pl.Datetime: ("2026-01-02T10:00:00", pl.Datetime("us")),
    pl.Enum(["x", "y"]): ("y", pl.Enum(["x", "y"])),
    pl.List(pl.Int8): ([1, 2], pl.List(pl.Int8)),
    pl.Struct({"a": pl.Int8, "b": pl.List(pl.String)}): (
        {"a": 1, "b": ["x"]},
        pl.Struct({"a": pl.Int8, "b": pl.List(pl.String)}),
    ),
}
TYPES = {
    bool: (False, pl.Boolean),
    int: (3, pl.Int64),
    float: (0.25, pl.Float64),
    Tone: ("bad", pl.Enum(["good", "bad"])),
    Literal["a", "b"]: ("b", pl.Enum(["a", "b"])),
    Literal[1, 2]: (2, pl.Int64),
    list[str]: (["x"], pl.List(pl.String)),
    Optional[int]: (None, pl.Int64),  # noqa: UP045 - both spellings
    Annotated[int, Field(ge=0)]: (3, pl.Int64),
}


@pytest.mark.parametrize("schema", [*DTYPES, *TYPES], ids=str)
def test_schema_is_known_without_running_and_values_arrive(schema) -> None:
    value, dtype = (DTYPES | TYPES)[schema]
    lazy = FRAME.sem_map("Rate {text}", "out", schema=schema)
    assert lazy.collect_schema()["out"] == dtype
    text = value if isinstance(value, str) and shape_of(schema).choices else json.dumps(value)
    with replay(lambda *_: text):
        out = lazy.collect()
    assert out["out"].dtype == dtype
    found = out["out"].to_list()[0]
    assert (found.isoformat() if hasattr(found, "isoformat") else found) == value


def test_a_model_becomes_a_struct() -> None:
    lazy = FRAME.sem_map("Read {text}", "out", schema=Review)
    aspects = pl.List(pl.Struct({"name": pl.String, "stars": pl.Int64}))
    assert lazy.collect_schema()["out"] == pl.Struct(
        {
            "tone": pl.Enum(["good", "bad"]),
            "aspects": aspects,
            "score": pl.Int64,
            "day": pl.Date,
            "remark": pl.String,
        }
    )
    with replay(lambda *_: VALUE):
        out = lazy.unnest("out").collect()
    assert out.row(0, named=True) == {
        "text": "a", **VALUE, "day": dt.date(2026, 1, 2)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({**VALUE, "score": 11}, "invalid"),
        ({**VALUE, "tone": "fine"}, "invalid"),
        ({**VALUE, "aspects": [{"name": "too long", "stars": 1}]}, "invalid"),
        ('{"tone": "good"', "invalid"),
        ("", "invalid"),
        ("null", "invalid"),
        (Reply(VALUE, cut_off=True), "cut_off"),
        ({**VALUE, "remark": "x" * 512}, "cut_off"),
        (Reply(failure="no luck"), "backend"),
    ],
)
def test_what_does_not_fit_is_null_with_a_reason(answer, reason) -> None:
    query = FRAME.head(1).sem_map("Read {text}", "out", schema=Review)
    with replay(lambda *_: answer), pytest.warns(semops.SemopsWarning):
        out = query.collect()
    assert out["out"].null_count() == 1
    assert semops.last_profile().errors()["reason"].to_list() == [reason]
    with replay(lambda *_: answer), pytest.raises(semops.EngineError, match=reason):
        FRAME.sem_map("Read {text}", "out", schema=Review, on_error="raise").collect()


def test_a_number_that_the_column_cannot_hold_is_invalid() -> None:
    assert read(shape_of(int), str(2**70)).problem
    assert read(shape_of(pl.Int8), "128").problem
    assert read(shape_of(pl.Int8), "127").value == 127


def test_the_grammar_wants_every_field_and_bounds_every_string() -> None:
    schema = json.loads(shape_of(Review, 100).json_schema)
    assert schema["required"] == ["tone", "aspects", "score", "day", "remark"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["remark"]["maxLength"] == 200
    assert schema["$defs"]["Aspect"]["properties"]["name"]["maxLength"] == 5


@pytest.mark.parametrize(
    "schema",
    [
        bytes,
        dict,
        dict[str, int],
        object,
        int | str,
        list,
        set[int],
        pl.Binary,
        pl.Object,
        Literal[1, "a"],
    ],
    ids=str,
)
def test_what_no_column_can_hold_is_told(schema) -> None:
    with pytest.raises((UnsupportedError, ConfigError), match=r"Pass|must be all"):
        FRAME.sem_map("Read {text}", "out", schema=schema)


def test_a_model_that_holds_itself_is_told() -> None:
    with pytest.raises((UnsupportedError, ConfigError)):
        FRAME.sem_map("Read {text}", "out", schema=Node)


def test_half_an_answer_is_no_value() -> None:
    with pytest.raises(ConfigError, match="half an answer"):
        FRAME.sem_map("Read {text}", "out", schema=int, on_cutoff="keep")


def test_examples_of_a_typed_map_are_values() -> None:
    lazy = FRAME.sem_map("Rate {text}", "n", schema=pl.UInt8, examples=[("x", 3)])
    assert semops.frames.outermost(lazy)[0].operator.asking.examples[0].answer == "3"
    with pytest.raises(ConfigError, match="no value of the schema"):
        FRAME.sem_map("Rate {text}", "n", schema=pl.UInt8, examples=[("x", "many")])


def test_two_models_of_one_schema_are_two() -> None:
    """Validators are no part of a JSON schema."""
    first, second = (type("Same", (BaseModel,), {"__annotations__": {"n": int}}) for _ in range(2))
    assert shape_of(first) != shape_of(second)
    assert shape_of(first) == shape_of(first)
    assert shape_of(pl.List(pl.Int8)) == shape_of(pl.List(pl.Int8))


@given(
    st.builds(
        Review,
        tone=st.sampled_from(Tone),
        aspects=st.lists(
            st.builds(Aspect, name=st.text(max_size=5), stars=st.integers(1, 5)), max_size=3
        ),
        score=st.integers(0, 10),
        day=st.none() | st.dates(),
        remark=st.text(max_size=20),
    )
)
def test_what_is_written_is_read_again(review: Review) -> None:
    shape = shape_of(Review)
    found = read(shape, written(shape, review))
    assert not found.problem
    assert found.value["score"] == review.score
    assert found.value["tone"] == review.tone.value
    assert found.value["aspects"] == [aspect.model_dump() for aspect in review.aspects]
    assert found.value["day"] == review.day


def asked(schema, answer):
    """Return the value and the reason of one answer."""
    with replay(lambda *_: answer), warnings.catch_warnings():
        warnings.simplefilter("ignore", semops.SemopsWarning)
        out = FRAME.head(1).sem_map("Read {text}", "out", schema=schema, max_tokens=16).collect()
    assert out["out"].dtype == FRAME.sem_map("{text}", "out", schema=schema).collect_schema()["out"]
    reasons = semops.last_profile().errors()["reason"].to_list()
    return out["out"].to_list()[0], reasons[0] if reasons else ""


class Strict(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _check(cls, value):
        return {1: 1}[value]


def test_a_validator_that_raises_anything_makes_the_answer_invalid():
    assert asked(Strict, {"n": 1}) == ({"n": 1}, "")
    assert asked(Strict, {"n": 2}) == (None, "invalid")
    with pytest.raises(ConfigError, match="KeyError: 3"):
        FRAME.sem_map("Read {text}", schema=Strict, examples=[("x", {"n": 3})])


@pytest.mark.parametrize(
    "schema",
    [
        Literal["a", "b", None],  # noqa: PYI061 - another spelling
        Literal["a", "b"] | None,
        Annotated[Literal["a", "b"] | None, Field(description="d")],
    ],
    ids=["literal", "union", "annotated"],
)
def test_an_optional_choice_may_be_null(schema):
    assert asked(schema, "null") == (None, "")
    assert asked(schema, '"b"') == ("b", "")


def test_choices_are_taken_as_they_are():
    assert asked(Literal["a", " a"], " a") == (" a", "")
    assert asked(Literal[" good", " bad"], " bad") == (" bad", "")
    assert asked(Literal["good", "bad"], " good\n") == ("good", "")


class Limited(BaseModel):
    model_config = {"str_strip_whitespace": True}
    mine: str = Field(max_length=32)
    free: str


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"mine": "x" * 32, "free": "x" * 31}, ""),
        ({"mine": "x", "free": "x" * 32}, "cut_off"),
        ({"mine": "x", "free": "word" + " " * 28}, "cut_off"),
    ],
)
def test_only_the_limit_that_we_set_cuts(value, reason):
    answer = Reply(json.dumps(value))
    with replay(lambda *_: answer), warnings.catch_warnings():
        warnings.simplefilter("ignore", semops.SemopsWarning)
        lazy = FRAME.head(1).sem_map("Read {text}", "out", schema=Limited, max_tokens=16)
        found = shape_of(Limited, 16)
        lazy.collect()
    assert read(found, answer.answer).cut is (reason == "cut_off")


@pytest.mark.parametrize(
    "name", ["_p", "__x", "model_config", "schema", "copy", "json", "a b", "1"]
)
def test_a_struct_may_have_any_field_names(name):
    dtype = pl.Struct({name: pl.Int64, "other": pl.String})
    assert name in json.loads(shape_of(dtype).json_schema)["properties"]
    assert asked(dtype, {name: 3, "other": "x"}) == ({name: 3, "other": "x"}, "")
    assert written(shape_of(dtype), {name: 3, "other": "x"}) == json.dumps(
        {name: 3, "other": "x"}, separators=(",", ":")
    )


class Aliased(BaseModel):
    stars: int = Field(alias="Sterne")


class Computed(BaseModel):
    stars: int

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.stars


class Excluded(BaseModel):
    stars: int = Field(exclude=True)


def test_examples_are_what_the_grammar_takes():
    assert written(shape_of(Aliased), {"Sterne": 3}) == '{"Sterne":3}'
    assert written(shape_of(Computed), {"stars": 3}) == '{"stars":3}'
    with pytest.raises(ConfigError, match="does not take back"):
        written(shape_of(Excluded), {"stars": 3})
    with pytest.raises(ConfigError):
        written(shape_of(float), float("nan"))


def test_times_have_no_offset():
    assert "date-time" not in shape_of(dt.datetime).json_schema
    assert asked(dt.datetime, '"2024-05-01T10:00:00Z"') == (None, "invalid")
    assert asked(pl.Datetime, '"2024-05-01T10:00:00+02:00"') == (None, "invalid")
    assert asked(dt.time, '"10:00:00+02:00"') == (None, "invalid")
    assert asked(dt.datetime, '"2024-05-01T10:00:00"')[0] == dt.datetime(2024, 5, 1, 10)  # noqa: DTZ001


def test_numbers_without_end_are_invalid():
    assert asked(pl.Float32, "1e300") == (None, "invalid")
    assert asked(float, "1e999") == (None, "invalid")


@pytest.mark.parametrize("schema", [pl.Int64, pl.Int128, pl.UInt64, int], ids=str)
def test_the_grammar_counts_no_further_than_it_can(schema):
    assert "9223372036854775808" not in shape_of(schema).json_schema
    assert "18446744073709551615" not in shape_of(schema).json_schema


class Word(enum.StrEnum):
    A = "a"


def test_odd_types_are_taken_or_told():
    assert asked(Literal[Word.A, "b"], "a") == ("a", "")
    for schema in ({}, [int]):
        with pytest.raises(UnsupportedError, match="is no type"):
            FRAME.sem_map("{text}", schema=schema)


def test_polars_types_leave_nothing_behind():
    before = len(schemas._kept)
    for number in range(5):
        shape_of(pl.Struct({f"a{number}": pl.Int8}))
    assert len(schemas._kept) == before


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (pl.Float16, 0.1234567),
        (pl.Float32, 0.123456789012),
        (pl.Datetime("ms"), '"2024-01-01T00:00:00.123456"'),
        (pl.List(pl.Float32), [0.123456789012]),
        (
            pl.Struct({"a": pl.Float32, "b": pl.List(pl.Float16)}),
            {"a": 0.123456789, "b": [0.12345]},
        ),
        (Review, VALUE),
        (list[Tone], ["bad"]),
    ],
    ids=str,
)
def test_a_later_prompt_shows_what_the_column_holds(schema, answer):
    """However the operators are run, and not what the model wrote."""

    def reply(_operator, instruction, _row):
        return "said" if instruction.startswith("Say") else answer

    seen = []
    for executor in ("pipelined", "blocking"):
        with replay(reply) as log, semops.options(executor=executor):
            lazy = FRAME.head(1).sem_map("Read {text}", "out", schema=schema)
            out = lazy.sem_map("Say {out}", "said").collect()
        assert out["out"].null_count() == 0
        seen.append(text_of(log.calls[-1].row["out"]))
        assert seen[-1] == text_of(values_of(out["out"])[0])
    assert seen[0] == seen[1]
