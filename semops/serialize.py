"""How values become text in a prompt: one table for all types, the same from every front end."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from polars.exceptions import PanicException

from semops.errors import SchemaError

if TYPE_CHECKING:
    import polars as pl


_FLOATS = {"Float16": np.float16, "Float32": np.float32}


def values_of(series: pl.Series) -> list[Any]:
    """Return a column as Python values for :func:`text_of`.

    Floats of 16 and 32 bits become the shortest numbers that mean them; as 64-bit ones they would show
    digits that they don't have.

    Raises
    ------
    SchemaError
        If a value has no Python form, for example a date after the year 9999.

    Examples
    --------
    >>> import polars as pl
    >>> values_of(pl.Series([0.1, None], dtype=pl.Float32))
    [0.1, None]
    """
    try:
        values = series.to_list()
    except (ValueError, OverflowError, PanicException) as error:
        raise SchemaError(
            f"a value of the column {series.name!r} can't be put into a prompt ({error}). Leave such "
            f"rows out, or read it as a number: pl.col({series.name!r}).to_physical()."
        ) from error
    if not any(name in str(series.dtype) for name in _FLOATS):
        return values
    return [_shortest(value, series.dtype) for value in values]


def _shortest(value: Any, dtype: Any) -> Any:
    """Return a value with each short float in it as the shortest number that means it."""
    if isinstance(value, float):
        kind = _FLOATS.get(str(dtype))
        return value if kind is None else float(str(kind(value)))
    if isinstance(value, list):
        return [_shortest(part, dtype.inner) for part in value]
    if isinstance(value, dict):
        return {field.name: _shortest(value[field.name], field.dtype) for field in dtype.fields}
    return value


def text_of(value: Any) -> str:
    """Return the text of a non-null value.

    Parameters
    ----------
    value
        A Python value as ``Series.to_list`` gives it.

    Raises
    ------
    SchemaError
        If the type has no text form (bytes, arbitrary objects).

    Examples
    --------
    >>> text_of("as it is"), text_of(True), text_of(3.0)
    ('as it is', 'true', '3.0')
    >>> text_of(dt.timedelta(hours=1, minutes=2)), text_of([1, "a", None])
    ('01:02:00', '[1, "a", null]')
    >>> text_of(-dt.timedelta(minutes=2))
    '-00:02:00'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, Decimal)):
        return str(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=text_of)
    msg = (
        f"a value of type {type(value).__name__} can't be put into a prompt; cast the column to text "
        f"first."
    )
    raise SchemaError(msg)


def _duration(value: dt.timedelta) -> str:
    """Return a duration as hours, minutes and seconds, as DuckDB writes an interval of so many hours."""
    sign = "-" if value < dt.timedelta(0) else ""
    seconds, micros = divmod(abs(value) // dt.timedelta(microseconds=1), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"


def check_dtypes(schema: pl.Schema, columns: tuple[str, ...], operator: str) -> None:
    """Check that columns can be put into a prompt.

    Raises
    ------
    SchemaError
        If a column holds bytes or Python objects.
    """
    import polars as pl

    for column in columns:
        if _holds(schema[column], (pl.Binary, pl.Object)):
            msg = (
                f"{operator} reads the column {column!r} of type {schema[column]}, which has no text "
                f"form. Turn it into text first, for example bytes by .bin.encode('hex')."
            )
            raise SchemaError(msg)


def _holds(dtype: Any, banned: tuple[Any, ...]) -> bool:
    if dtype in banned:
        return True
    inner = getattr(dtype, "inner", None)
    if inner is not None:
        return _holds(inner, banned)
    return any(_holds(field.dtype, banned) for field in getattr(dtype, "fields", ()))
