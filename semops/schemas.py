"""Types of a map's answers: what the user passes as ``schema=``, as one shape.

A shape knows the column's dtype, what decoding is held to (a JSON schema, or one of a few texts), and how
an answer becomes a value. pydantic does the reading, so its constraints hold even where the grammar of
the engine is wider than they are.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from semops.column_types import ALLOWED, annotation_of, dtype_of, finite, optional, plain
from semops.errors import ConfigError, UnsupportedError
from semops.grammar import cut, refused, tidied, told
from semops.serialize import values_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of an answer.

    Examples
    --------
    >>> from typing import Literal
    >>> shape = shape_of(Literal["good", "bad"])
    >>> shape.choices, shape.dtype
    (('good', 'bad'), Enum(categories=['good', 'bad']))
    """

    key: str
    """What makes two shapes equal: the schema, and which Python type it came from."""
    json_schema: str
    """JSON schema that decoding is held to; empty where ``choices`` are given."""
    choices: tuple[str, ...]
    """Texts of which exactly one is decoded."""
    about: str
    """What the model is told of it."""
    dtype: pl.DataType = field(compare=False)
    """Type of the column."""
    adapter: TypeAdapter[Any] = field(compare=False, repr=False)
    told: Any = field(compare=False, repr=False)
    """The JSON schema without the limits that decoding adds."""
    longest: int = 0
    """Length at which decoding ends a string that has no limit of its own, in characters."""


class Read(NamedTuple):
    """What an answer's text holds."""

    value: Any
    """A value for the column; None with a problem."""
    problem: str = ""
    """Why it is none, for the profile."""
    cut: bool = False
    """Whether a string was ended at the limit that decoding set, so that its end is missing."""


def shape_of(schema: Any, max_tokens: int = 256) -> Shape | None:
    """Return the shape of a ``schema=`` argument; None for plain text.

    Parameters
    ----------
    schema
        A pydantic model, Literal, Enum, Polars dtype, or Python type.
    max_tokens
        Cap of the answer, in tokens; a string without a limit of its own gets one of twice as many
        characters, so that it can't take all of it.

    Raises
    ------
    UnsupportedError
        If there is no column type for it.
    ConfigError
        If it is no type at all.

    Examples
    --------
    >>> shape_of(pl.List(pl.Int8)).dtype
    List(Int8)
    >>> shape_of(str) is None
    True
    """
    if schema is None or schema is str or schema is pl.String or schema == pl.String():
        return None
    if type(schema).__hash__ is None:
        raise UnsupportedError(f"schema={schema!r} is no type. Pass {ALLOWED}.")
    from pydantic import TypeAdapter

    polars = isinstance(schema, pl.DataType) or (
        isinstance(schema, type) and issubclass(schema, pl.DataType)
    )
    if polars:
        annotation = annotation_of(schema, "schema")
        dtype = schema() if isinstance(schema, type) else schema
    else:
        annotation, dtype = schema, dtype_of(schema, "schema")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        found = adapter.json_schema()
    except Exception as error:
        raise ConfigError(
            f"schema={schema!r} can't be made a JSON schema ({error}). Pass {ALLOWED}."
        ) from error
    plain_schema = tidied(found, 0)
    longest = max(2 * max_tokens, 32)
    text = json.dumps(tidied(found, longest), separators=(",", ":"))
    choices = _choices(dtype, annotation)
    if not choices and (problem := refused(text)):
        raise UnsupportedError(
            f"decoding can't be held to schema={schema!r}: {' '.join(problem.split())}. Leave this out of the type, and "
            f"check it in a validator of a pydantic model, which sees every answer."
        )
    if not polars:
        _kept[id(schema)] = schema
    key = f"{repr(schema) if polars else id(schema)} {text}"
    grammar = "" if choices else text
    return Shape(
        key, grammar, choices, told(plain_schema, choices), dtype, adapter, plain_schema, longest
    )


def read(shape: Shape, text: str) -> Read:
    """Return the value in an answer's text.

    Examples
    --------
    >>> read(shape_of(bool), "true").value
    True
    >>> read(shape_of(pl.UInt8), "300").problem
    'Input should be less than or equal to 255'
    """
    if shape.choices:
        found = text if text in shape.choices else text.strip()
        return (
            Read(found) if found in shape.choices else Read(None, f"none of {shape.choices[:20]}")
        )
    try:
        value = _held(shape, shape.adapter.validate_json(text))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a user's validator, or a panic inside Polars
        return Read(None, _problem(error))
    if not finite(value):
        return Read(None, "a number that the column can't hold")
    return Read(
        value, cut=cut(shape.told, json.loads(text), shape.told.get("$defs", {}), shape.longest)
    )


def most_tokens(shape: Shape | None, max_tokens: int) -> int:
    """Return the cap of an answer: a number alone needs no more than so many characters, so tokens.

    A model that only completes text seldom ends a number by itself.

    Examples
    --------
    >>> most_tokens(shape_of(int), 256), most_tokens(shape_of(list[int]), 256)
    (48, 256)
    """
    return min(max_tokens, NUMBER_TOKENS) if _is_number(shape) else max_tokens


def settled(shape: Shape | None, text: str) -> Any:
    """Return the value of an answer that was cut off among digits that no column could hold, or None.

    Examples
    --------
    >>> (
    ...     settled(shape_of(float), "0.1" + "3" * 40),
    ...     settled(shape_of(float), "0.1"),
    ...     settled(shape_of(int), "1" * 40),
    ... )
    (0.13333333333333333, None, None)
    """
    if shape is None or not _is_number(shape) or not _FRACTION.fullmatch(text):
        return None
    digits = text.replace(".", "").lstrip("-0")
    return read(shape, text).value if len(digits) >= DIGITS_ENOUGH else None


NUMBER_TOKENS = 48
"""Cap of an answer that is a number alone, in tokens; the largest whole number that a column holds has 39 digits."""
DIGITS_ENOUGH = 25
"""Significant digits of which those left out change nothing; a 64-bit float has 17, and with as many an exponent may
follow."""
_FRACTION = re.compile(r"-?[0-9]+\.[0-9]+")
_NUMBERS = frozenset({"integer", "number"})


def _is_number(shape: Shape | None) -> bool:
    """Return whether an answer is a number alone, or null."""
    if shape is None or shape.choices:
        return False
    kinds = {part.get("type") for part in shape.told.get("anyOf", [shape.told])}
    return bool(kinds & _NUMBERS) and kinds <= {*_NUMBERS, "null"}


def written(shape: Shape, value: Any) -> str:
    """Return a value as the answer that would give it, for examples and tests.

    Raises
    ------
    ConfigError
        If it is none of the shape's values.

    Examples
    --------
    >>> written(shape_of(pl.Struct({"a": pl.Int64})), {"a": 1})
    '{"a":1}'
    """
    try:
        checked = shape.adapter.validate_python(value)
        held = _held(shape, checked)
        text = (
            str(held)
            if shape.choices
            else shape.adapter.dump_json(checked, by_alias=True, round_trip=True).decode()
        )
    except Exception as error:  # noqa: BLE001 - a user's validator may raise anything
        raise ConfigError(f"{value!r} is no value of the schema: {_problem(error)}.") from None
    if read(shape, text)[:2] != (held, ""):
        raise ConfigError(
            f"{value!r} would be shown as {text}, which the schema does not take back. Give the example "
            f"without serializers or excluded fields."
        )
    return text


def _held(shape: Shape, value: Any) -> Any:
    """Return a value as the column gives it back: a later prompt must not show digits that it doesn't hold."""
    return values_of(pl.Series([plain(value)], dtype=shape.dtype, strict=True))[0]


_kept: dict[int, Any] = {}
"""Types whose id is part of a key, which must not be given to another one."""


def _problem(error: BaseException) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}".splitlines()[0]
    parts = []
    for found in error.errors()[:3]:
        place = ".".join(map(str, found["loc"]))
        parts.append(f"{place}: {found['msg']}" if place else str(found["msg"]))
    return "; ".join(parts)


def _choices(dtype: pl.DataType, annotation: Any) -> tuple[str, ...]:
    return () if not isinstance(dtype, pl.Enum) or optional(annotation) else tuple(dtype.categories)
