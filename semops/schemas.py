"""Types of a map's answers: what the user passes as ``schema=``, as one shape.

A shape knows the column's dtype, what decoding is held to (a JSON schema, or one of a few texts), and how
an answer becomes a value. pydantic does the reading, so its constraints hold even where the grammar of
the engine is wider than they are.
"""

from __future__ import annotations

import datetime as dt
import enum
import json
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import polars as pl

from semops.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

DEEPEST = 16
"""Levels of models within models."""
_SCALARS: dict[Any, pl.DataType] = {
    str: pl.String(),
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    dt.date: pl.Date(),
    dt.datetime: pl.Datetime("us"),
    dt.time: pl.Time(),
}
_ALLOWED = (
    "a pydantic model, a Literal or an Enum, a Polars dtype such as pl.Int64 or "
    "pl.Struct({...}), or str, bool, int, float, date, datetime, time, lists and Optional of these"
)


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
    if schema is None or schema is str or schema == pl.String:
        return None
    from pydantic import TypeAdapter

    polars = isinstance(schema, pl.DataType) or (
        isinstance(schema, type) and issubclass(schema, pl.DataType)
    )
    if polars:
        annotation = _annotation(schema, "schema")
        dtype = schema() if isinstance(schema, type) else schema
    else:
        annotation, dtype = schema, _dtype(schema, "schema")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        found = adapter.json_schema()
    except Exception as error:
        raise ConfigError(
            f"schema={schema!r} can't be made a JSON schema ({error}). Pass {_ALLOWED}."
        ) from error
    told = _tidy(found, 0)
    longest = max(2 * max_tokens, 32)
    text = json.dumps(_tidy(found, longest), separators=(",", ":"))
    choices = _choices(dtype, annotation)
    key = f"{repr(schema) if polars else id(schema)} {text}"
    _keep(annotation)
    return Shape(
        key, "" if choices else text, choices, _about(told, choices), dtype, adapter, longest
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
    from pydantic import ValidationError

    try:
        if shape.choices:
            value = shape.adapter.validate_python(text.strip())
        else:
            value = shape.adapter.validate_json(text)
    except ValidationError as error:
        return Read(None, "; ".join(_problem(found) for found in error.errors()[:3]))
    plain = _plain(value)
    try:
        pl.Series([plain], dtype=shape.dtype, strict=True)
    except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError) as error:
        return Read(None, f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return Read(plain, cut=_holds_text(plain, shape.longest))


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
    from pydantic import ValidationError

    try:
        checked = shape.adapter.validate_python(value)
    except ValidationError as error:
        problems = "; ".join(_problem(found) for found in error.errors()[:3])
        raise ConfigError(f"{value!r} is no value of the schema: {problems}.") from None
    if shape.choices:
        return str(_plain(checked))
    return shape.adapter.dump_json(checked).decode()


_kept: dict[int, Any] = {}


def _keep(annotation: Any) -> None:
    """Keep a type alive: its id is part of a key, and must not be given to another one."""
    _kept[id(annotation)] = annotation


def _problem(found: Any) -> str:
    place = ".".join(map(str, found["loc"]))
    return f"{place}: {found['msg']}" if place else str(found["msg"])


def _choices(dtype: pl.DataType, annotation: Any) -> tuple[str, ...]:
    return (
        tuple(dtype.categories) if isinstance(dtype, pl.Enum) and not _optional(annotation) else ()
    )


def _optional(annotation: Any) -> bool:
    return type(None) in typing.get_args(annotation)


def _about(schema: Any, choices: Sequence[str]) -> str:
    if choices:
        return f"Reply with one of: {', '.join(choices)}."
    kind = schema.get("type")
    if kind == "integer" and "description" not in schema:
        limits = [f"{word} {schema[key]}" for key, word in _LIMITS if key in schema]
        return " ".join(["Reply with a whole number", *limits]) + "."
    if kind == "number" and "description" not in schema:
        limits = [f"{word} {schema[key]}" for key, word in _LIMITS if key in schema]
        return " ".join(["Reply with a number", *limits]) + "."
    if kind == "boolean":
        return "Reply with true or false."
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return f"Reply with JSON that fits this JSON schema: {text}"


_LIMITS = (
    ("minimum", "from"),
    ("exclusiveMinimum", "above"),
    ("maximum", "up to"),
    ("exclusiveMaximum", "below"),
)


def _tidy(schema: Any, longest: int) -> Any:
    """Return a JSON schema with every field required and nothing else allowed.

    Parameters
    ----------
    schema
        As pydantic writes it.
    longest
        Limit of strings that have none, in characters; 0 sets none.
    """
    if isinstance(schema, list):
        return [_tidy(part, longest) for part in schema]
    if not isinstance(schema, dict):
        return schema
    tidy: dict[str, Any] = {}
    for name, part in schema.items():
        if name in {"properties", "$defs"}:
            tidy[name] = {key: _tidy(value, longest) for key, value in part.items()}
        elif name in {"title", "default"}:
            continue
        elif name in {"enum", "const", "examples"}:
            tidy[name] = part
        else:
            tidy[name] = _tidy(part, longest)
    if tidy.get("type") == "object" and "properties" in tidy:
        tidy["required"] = list(tidy["properties"])
        tidy["additionalProperties"] = False
    free = not tidy.keys() & {"enum", "const", "format", "pattern", "maxLength"}
    if longest and tidy.get("type") == "string" and free:
        tidy["maxLength"] = longest
    return tidy


def _plain(value: Any) -> Any:
    """Return a value as Polars takes it: models as dicts, members of an Enum as their values."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _holds_text(value: Any, length: int) -> bool:
    if isinstance(value, str):
        return len(value) == length
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_holds_text(part, length) for part in parts)


def _dtype(annotation: Any, place: str) -> pl.DataType:
    """Return the column type of a Python type."""
    if place.count(".") > DEEPEST:
        raise UnsupportedError(
            f"{place.partition('.')[0]} holds itself, or more than {DEEPEST} levels. Pass {_ALLOWED}."
        )
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _dtype(typing.get_args(annotation)[0], place)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Literal:
        return _of_values(typing.get_args(annotation), annotation, place)
    if origin in {typing.Union, types.UnionType}:
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(inner) == 1:
            return _dtype(inner[0], place)
    if origin in {list, Sequence} and typing.get_args(annotation):
        return pl.List(_dtype(typing.get_args(annotation)[0], f"{place}[]"))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _of_values(tuple(member.value for member in annotation), annotation, place)
    fields = getattr(annotation, "model_fields", None)
    if isinstance(annotation, type) and fields:
        return pl.Struct(
            {name: _dtype(part.annotation, f"{place}.{name}") for name, part in fields.items()}
        )
    raise UnsupportedError(f"{place} is {annotation!r}, which no column can hold. Pass {_ALLOWED}.")


def _of_values(values: tuple[Any, ...], annotation: Any, place: str) -> pl.DataType:
    values = tuple(value for value in values if value is not None)
    if values and all(isinstance(value, str) for value in values):
        return pl.Enum(list(dict.fromkeys(values)))
    for kind in (bool, int):
        if values and all(type(value) is kind for value in values):
            return _SCALARS[kind]
    raise UnsupportedError(
        f"{place} is {annotation!r}; its values must be all texts, all whole numbers or all bools."
    )


def _annotation(dtype: Any, place: str) -> Any:
    """Return the Python type of a Polars type, its range included."""
    from pydantic import Field, create_model

    kind: type[pl.DataType] = dtype if isinstance(dtype, type) else type(dtype)
    if kind.is_integer():
        low, high = (int(pl.select(bound).item()) for bound in (dtype.min(), dtype.max()))
        return typing.Annotated[int, Field(ge=low, le=high)]
    if kind.is_float():
        return float
    simple = {pl.String: str, pl.Boolean: bool, pl.Date: dt.date, pl.Time: dt.time}
    if kind in simple:
        return simple[kind]
    if kind is pl.Datetime and getattr(dtype, "time_zone", None) is None:
        return dt.datetime
    if isinstance(dtype, pl.Enum) and len(dtype.categories):
        return Literal[tuple(dtype.categories)]
    if isinstance(dtype, pl.List):
        return list[_annotation(dtype.inner, f"{place}[]")]  # type: ignore[misc]
    if isinstance(dtype, pl.Struct) and dtype.fields:
        inner = {f.name: (_annotation(f.dtype, f"{place}.{f.name}"), ...) for f in dtype.fields}
        return create_model("Answer", **inner)  # type: ignore[call-overload]
    raise UnsupportedError(
        f"{place} is {dtype!r}, which no answer can be read into. Pass {_ALLOWED}."
    )
