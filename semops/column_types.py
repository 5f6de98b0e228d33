"""Column types of Python types, Python types of Polars types, and values between them."""

from __future__ import annotations

import datetime as dt
import enum
import math
import types
import typing
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import polars as pl

from semops.errors import UnsupportedError

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
ALLOWED = (
    "a pydantic model, a Literal or an Enum, a Polars dtype such as pl.Int64 or "
    "pl.Struct({...}), or str, bool, int, float, date, datetime, time, lists and Optional of these"
)


def dtype_of(annotation: Any, place: str) -> pl.DataType:
    """Return the column type of a Python type."""
    if place.count(".") > DEEPEST:
        raise UnsupportedError(
            f"{place.partition('.')[0]} holds itself, or more than {DEEPEST} levels. Pass {ALLOWED}."
        )
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return dtype_of(typing.get_args(annotation)[0], place)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Literal:
        return _of_values(typing.get_args(annotation), annotation, place)
    if origin in {typing.Union, types.UnionType}:
        inner = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(inner) == 1:
            return dtype_of(inner[0], place)
    if origin in {list, Sequence} and typing.get_args(annotation):
        return pl.List(dtype_of(typing.get_args(annotation)[0], f"{place}[]"))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _of_values(tuple(member.value for member in annotation), annotation, place)
    fields = getattr(annotation, "model_fields", None)
    if isinstance(annotation, type) and fields:
        return pl.Struct(
            {name: dtype_of(part.annotation, f"{place}.{name}") for name, part in fields.items()}
        )
    raise UnsupportedError(f"{place} is {annotation!r}, which no column can hold. Pass {ALLOWED}.")


def _of_values(values: tuple[Any, ...], annotation: Any, place: str) -> pl.DataType:
    values = tuple(v.value if isinstance(v, enum.Enum) else v for v in values if v is not None)
    if values and all(isinstance(value, str) for value in values):
        return pl.Enum(list(dict.fromkeys(values)))
    for kind in (bool, int):
        if values and all(type(value) is kind for value in values):
            return _SCALARS[kind]
    raise UnsupportedError(
        f"{place} is {annotation!r}; its values must be all texts, all whole numbers or all bools."
    )


def annotation_of(dtype: Any, place: str) -> Any:
    """Return the Python type of a Polars type, its range included."""
    from pydantic import Field, create_model

    kind: type[pl.DataType] = dtype if isinstance(dtype, type) else type(dtype)
    if kind.is_integer():
        if kind in {pl.Int64, pl.Int128}:
            return int  # read() finds what doesn't fit
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
        return list[annotation_of(dtype.inner, f"{place}[]")]  # type: ignore[misc]
    if isinstance(dtype, pl.Struct) and dtype.fields:
        inner = {
            f"field_{number}": (annotation_of(f.dtype, f"{place}.{f.name}"), Field(alias=f.name))
            for number, f in enumerate(dtype.fields)
        }
        made = create_model("Answer", **inner)  # type: ignore[call-overload]
        _structs.add(made)
        return made
    raise UnsupportedError(
        f"{place} is {dtype!r}, which no answer can be read into. Pass {ALLOWED}."
    )


def plain(value: Any) -> Any:
    """Return a value as Polars takes it: models as dicts, members of an Enum as their values.

    Raises
    ------
    ValueError
        If a time has an offset, which the column can't hold.
    """
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        ours = type(value) in _structs
        return {
            (part.alias if ours else name): plain(getattr(value, name))
            for name, part in fields.items()
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, (dt.datetime, dt.time)) and value.tzinfo is not None:
        raise ValueError("a time with an offset from UTC, and the column has none")
    return value


_structs: weakref.WeakSet[type] = weakref.WeakSet()
"""Models made of Polars structs: their fields bear the struct's names as aliases, since not every name can be
that of a pydantic field."""


def finite(value: Any) -> bool:
    """Return whether every float in a value is a number.

    Examples
    --------
    >>> finite([1.0, {"a": float("inf")}])
    False
    """
    if isinstance(value, float):
        return math.isfinite(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(finite, parts))


def optional(annotation: Any) -> bool:
    """Return whether a type takes None."""
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Annotated:
        return optional(arguments[0])
    return None in arguments or type(None) in arguments
