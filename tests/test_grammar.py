"""What decoding can be held to is told before a run, and it keeps no value out that the type takes."""

from __future__ import annotations

import enum
import json
from itertools import count
from typing import Annotated, Literal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, create_model

import semops
from semops import grammar
from semops.engine.backends.vllm import _any_of
from semops.errors import UnsupportedError
from semops.schemas import NUMBER_TOKENS, most_tokens, read, settled, shape_of
from semops.testing import Reply, replay

llguidance = pytest.importorskip("llguidance")
FRAME = pl.DataFrame({"text": ["a"]})
Many = enum.Enum("Many", {f"label_{n}": f"label {n}" for n in range(5_000)})


def model(**fields):
    return create_model("Made", **{name: (kind, ...) for name, kind in fields.items()})


def python_pattern(pattern):
    """Return a model with a pattern that only Python's own regular expressions know."""
    config = ConfigDict(regex_engine="python-re")
    return create_model("Made", __config__=config, a=(Annotated[str, Field(pattern=pattern)], ...))


def takes(compiled, text):
    """Return whether a grammar takes a text, byte by byte, and may end after it."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(grammar._Bytes()))
    matcher = llguidance.LLMatcher(tokenizer, compiled, log_level=0)
    parts = list(text.encode())
    taken = matcher.try_consume_tokens(parts) == len(parts)
    assert not matcher.get_error()
    return taken and matcher.is_accepting()


def decodes(schema, text):
    compiled = llguidance.LLMatcher.grammar_from_json_schema(
        shape_of(schema).json_schema, {"whitespace_flexible": False}
    )
    return takes(compiled, text)


@pytest.mark.parametrize(
    "schema",
    [
        python_pattern("^(?!x)[a-z]+$"),
        python_pattern("(?<=a)b"),
        python_pattern(r"^(a|b)\1$"),
        model(a=Annotated[str, Field(pattern=r"\bword\b")]),
        model(a=Annotated[int, Field(ge=5, le=3)]),
        model(a=Annotated[str, Field(min_length=9, max_length=3)]),
        model(a=Annotated[list[int], Field(min_length=3, max_length=2)]),
        model(a=Annotated[list[int], Field(json_schema_extra={"uniqueItems": True})]),
        model(a=Annotated[str, Field(json_schema_extra={"not": {"const": "x"}})]),
        model(a=Annotated[str, Field(json_schema_extra={"format": "of my own"})]),
        Annotated[int, Field(ge=5, le=3)],
    ],
    ids=count(),
)
def test_what_decoding_cannot_be_held_to_is_told_when_the_operator_is_built(schema):
    with pytest.raises(UnsupportedError, match=r"can't be held to schema=.*validator"):
        FRAME.sem_map("Read {text}", "out", schema=schema)


def test_a_grammar_that_compiles_but_is_too_large_to_use_is_told(monkeypatch):
    choices = " | ".join(f'"{n:04}"' for n in range(3_000))
    too_many = llguidance.LLMatcher.grammar_from_lark(f"start: {choices}")
    monkeypatch.setattr(
        llguidance.LLMatcher, "grammar_from_json_schema", staticmethod(lambda *_: too_many)
    )
    assert "max is 2000" in grammar.refused("{}")


def test_without_the_decoder_nothing_is_checked(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    assert grammar.refused('{"not": {}}') == ""


@pytest.mark.parametrize("schema", [Many | None, model(a=Many), list[Many]], ids=count())
def test_thousands_of_labels_can_be_decoded(schema):
    for label in ("label 0", "label 4999"):
        value = {"a": label} if isinstance(schema, type) else label
        value = [label] if schema == list[Many] else value
        assert decodes(schema, json.dumps(value, separators=(",", ":")))


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique=True))
def test_a_choice_takes_its_texts_and_nothing_else(texts):
    compiled = llguidance.LLMatcher.grammar_from_regex(_any_of(texts))
    assert all(takes(compiled, text) for text in texts)
    assert not takes(compiled, "".join(texts) + "x")


def test_a_choice_may_have_thousands_of_texts():
    texts = [f"{n}. label (x)" for n in range(20_000)]
    compiled = llguidance.LLMatcher.grammar_from_regex(_any_of(texts))
    assert takes(compiled, texts[-1])


@pytest.mark.parametrize("least", [5, 32, 1_000])
def test_the_limit_that_we_set_leaves_room_above_the_least_length(least):
    schema = model(a=Annotated[str, Field(min_length=least)])
    assert decodes(schema, json.dumps({"a": "x" * (least + 1)}, separators=(",", ":")))
    shape = shape_of(schema, 16)
    limit = json.loads(shape.json_schema)["properties"]["a"]["maxLength"]
    assert not read(shape, json.dumps({"a": "x" * (limit - 1)})).cut
    assert read(shape, json.dumps({"a": "x" * limit})).cut


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (Annotated[int, Field(multiple_of=5)], [0, 5, -5, 100]),
        (Annotated[int, Field(multiple_of=5, ge=-10)], [-10, -5, 0, 5]),
        (Annotated[int, Field(multiple_of=5, ge=0, le=20)], [0, 5, 20]),
        (Annotated[int, Field(multiple_of=5, gt=-1)], [0, 5]),
        (Annotated[float, Field(multiple_of=0.5)], [0.5, -0.5, 2.0]),
        (Annotated[int, Field(ge=-(10**30))], [-(2**63), 2**63 - 1]),
        (pl.UInt64, [0, 2**64 - 1]),
        (pl.Int128, [-(2**127), 2**127 - 1]),
        (float, [-1.5, 1e300, 1e-300]),
    ],
    ids=count(),
)
def test_no_value_of_the_type_is_kept_out(schema, values):
    for value in values:
        assert decodes(schema, json.dumps(value)), value
        assert read(shape_of(schema), json.dumps(value)).value == value


def test_a_multiple_that_decoding_does_not_know_is_checked_by_reading():
    assert read(shape_of(Annotated[int, Field(multiple_of=5)]), "7").problem


NUMBERS = [int, float, pl.Int8, pl.UInt64, pl.Float32, int | None, float | None, Literal[1, 2],
           Annotated[float, Field(ge=0, le=1)]]  # fmt: skip


@pytest.mark.parametrize("schema", NUMBERS, ids=count())
def test_a_number_alone_takes_few_tokens(schema):
    shape = shape_of(schema)
    assert most_tokens(shape, 256) == NUMBER_TOKENS
    assert most_tokens(shape, 3) == 3
    assert FRAME.sem_map("Count {text}", "n", schema=schema).collect_schema()["n"] == shape.dtype


@pytest.mark.parametrize(
    "schema", [None, str, bool, list[int], Literal["1", "2"], model(a=int), int | None], ids=str
)
def test_other_answers_keep_their_cap(schema):
    expected = NUMBER_TOKENS if schema == int | None else 256
    assert most_tokens(shape_of(schema), 256) == expected


@pytest.mark.parametrize(
    "value", [-(2**127), 2**128 - 1, -(2**63), 1.7976931348623157e308, -5e-324]
)
def test_every_number_of_a_column_fits_into_the_cap(value):
    assert len(json.dumps(value)) < NUMBER_TOKENS


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (float, "1.15" + "9" * 44, 1.16),
        (float, "-0." + "3" * 45, -1 / 3),
        (float | None, "100." + "0" * 44, 100.0),
        (pl.Float32, "0." + "3" * 45, 1 / 3),
        (Annotated[float, Field(ge=0, le=1)], "0." + "9" * 46, 1.0),
        (float, "0." + "0" * 46, None),  # a digit or an exponent may follow that says what it is
        (float, "1" + "0" * 47, None),
        (float, "1." + "5" * 16, None),
        (float, "1." + "5" * 30 + "e", None),
        (float, "1." + "5" * 30 + "e1", None),
        (Annotated[float, Field(ge=0, le=1)], "1." + "5" * 46, None),
        (int, "1" + "0" * 47, None),
        (model(a=float), '{"a":1.' + "5" * 41, None),
    ],
    ids=count(),
)
def test_a_float_that_goes_on_for_ever_is_taken_where_no_further_digit_could_change_it(
    schema, text, value
):
    if value is None:
        assert settled(shape_of(schema), text) is None
    else:
        assert settled(shape_of(schema), text) == pytest.approx(value, rel=1e-6)
    with replay(lambda *_: Reply(text, cut_off=True)):
        lazy = FRAME.sem_map("Rate {text}", "out", schema=schema, max_tokens=48)
        if value is None:
            with pytest.warns(semops.SemopsWarning, match="1 cut off"):
                assert lazy.collect()["out"].to_list() == [None]
        else:
            assert lazy.collect()["out"].to_list() == [pytest.approx(value, rel=1e-6)]
            assert semops.last_profile().errors().height == 0


def test_text_that_is_cut_off_is_not_taken_for_a_number():
    with (
        replay(lambda *_: Reply("1.15" + "9" * 44, cut_off=True)),
        pytest.warns(semops.SemopsWarning),
    ):
        assert FRAME.sem_map("Rate {text}", "out").collect()["out"].to_list() == [None]


class Pattern(BaseModel):
    code: Annotated[str, Field(pattern="^[A-Z]{2}[0-9]{3}$")]


def test_a_pattern_that_decoding_knows_is_kept():
    assert decodes(Pattern, '{"code":"AB123"}')
    assert not decodes(Pattern, '{"code":"AB12"}')
