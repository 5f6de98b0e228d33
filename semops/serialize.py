"""How values become text in a prompt: one table for all types, the same from every front end."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from semops.errors import SchemaError

if TYPE_CHECKING:
    import polars as pl


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
    ('1:02:00', '[1, "a", null]')
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
        return str(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=text_of)
    msg = (
        f"a value of type {type(value).__name__} can't be put into a prompt; cast the column to text "
        f"first."
    )
    raise SchemaError(msg)


def check_dtypes(schema: pl.Schema, columns: tuple[str, ...], operator: str) -> None:
    """Check that columns can be put into a prompt.

    Raises
    ------
    SchemaError
        If a column holds bytes or Python objects.
    """
    import polars as pl

    for column in columns:
        if _holds_bytes(schema[column], (pl.Binary, pl.Object)):
            msg = (
                f"{operator} reads the column {column!r} of type {schema[column]}, which has no text "
                f"form. Cast it first, for example pl.col({column!r}).bin.encode('hex')."
            )
            raise SchemaError(msg)


def _holds_bytes(dtype: Any, banned: tuple[Any, ...]) -> bool:
    if dtype in banned:
        return True
    inner = getattr(dtype, "inner", None)
    if inner is not None:
        return _holds_bytes(inner, banned)
    return any(_holds_bytes(field.dtype, banned) for field in getattr(dtype, "fields", ()))
