"""Instruction templates: what parses, what it reads, and what an error says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semops.errors import TemplateError
from semops.template import Placeholder, bind, bind_join, parse


@pytest.mark.parametrize(
    ("text", "columns", "rendered"),
    [
        ("{a}", ("a",), '"a"'),
        ("{a} and {b} and {a}", ("a", "b"), '"a" and "b" and "a"'),
        ("{{literal}} {a}", ("a",), '{literal} "a"'),
        ("{{{a}}}", ("a",), '{"a"}'),
        ("{two words}", ("two words",), '"two words"'),
        ("{a.b}{본문}", ("a.b", "본문"), '"a.b""본문"'),
        ("{a:left}", ("a:left",), '"a:left"'),
        ("{0} {!r}", ("0", "!r"), '"0" "!r"'),
        ("no column", (), "no column"),
        ("", (), ""),
    ],
)
def test_placeholders_are_columns_and_double_braces_are_braces(
    text: str, columns: tuple[str, ...], rendered: str
) -> None:
    template = parse(text)
    assert template.columns == columns
    assert template.rendered() == rendered
    assert template.text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a { b", r"unmatched '\{' at character 3"),
        ("a } b", r"unmatched '\}' at character 3"),
        ("{a}}", r"unmatched '\}' at character 4"),
        ("{a{b}}", r"unmatched '\{' at character 1"),
        ("{}", r"empty placeholder"),
    ],
)
def test_a_stray_brace_is_an_error_that_shows_where(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        parse(text)


@given(st.text())
def test_any_text_can_be_written_with_doubled_braces(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert parse(escaped).rendered() == text
    assert parse(escaped).placeholders == ()


@given(st.lists(st.text(st.characters(exclude_characters="{}"), min_size=1), min_size=1))
def test_any_name_without_braces_can_be_a_column(names: list[str]) -> None:
    template = parse("".join(f"{{{name}}}" for name in names))
    assert template.columns == tuple(dict.fromkeys(names))


def test_the_leading_placeholder_may_stand_for_the_row() -> None:
    assert parse("{text}\nSentiment:").rendered(skip_leading=True) == "\nSentiment:"
    assert parse("Of {text}:").rendered(skip_leading=True) == 'Of "text":'
    assert parse("{text} and {text}").rendered(skip_leading=True) == ' and "text"'


def test_binding_checks_columns_and_lists_those_there_are() -> None:
    template = parse("{text} is kind")
    assert bind(template, ["text", "year"]) is template
    with pytest.raises(TemplateError, match=r"names the column 'text'.*Columns here: 'body', 'y'"):
        bind(template, ["body", "y"])
    with pytest.raises(TemplateError, match=r"names no column.*for example \{body\}.*'body', 'y'"):
        bind(parse("is it kind?"), ["body", "y"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{claim} and {fact}", [("claim", "left"), ("fact", "right")]),
        ("{id:left} and {id:right}", [("id", "left"), ("id", "right")]),
        ("{fact:right} and {claim:left}", [("fact", "right"), ("claim", "left")]),
        ("{odd:left:left} and {fact}", [("odd:left", "left"), ("fact", "right")]),
        ("{odd:left} and {fact}", [("odd:left", "left"), ("fact", "right")]),
    ],
)
def test_a_joins_columns_find_their_sides(text: str, expected: list[tuple[str, str]]) -> None:
    bound = bind_join(parse(text), ["id", "claim", "odd:left"], ["id", "fact"])
    assert bound.placeholders == tuple(Placeholder(c, side) for c, side in expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{id} and {fact}", r"'\{id\} and|\{id\} in .* is a column of both sides"),
        ("{claim} is kind", r"names no column of the right side.*'id', 'fact'"),
        ("{fact} is kind", r"names no column of the left side.*'id', 'claim'"),
        ("{claim} and {other}", r"names the column 'other'.*'claim:left'.*'fact:right'"),
        ("{fact:left} and {fact}", r"names the column 'fact:left'"),
    ],
)
def test_a_joins_column_that_has_no_side_is_an_error(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        bind_join(parse(text), ["id", "claim"], ["id", "fact"])
