"""Few-shot examples: rows with their answers, as texts.

An example is bound when the operator is built, so that a missing column or an answer that the operator
can't give is told before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from semops.arguments import is_text
from semops.errors import ConfigError
from semops.serialize import text_of, values_of

ANSWER = "answer"
"""Name of the answer's column (in any case) in examples given as rows."""


class Example(NamedTuple):
    """One row with its answer, as the model sees them."""

    fields: tuple[tuple[str, str], ...]
    """Columns in the order of the row block, with their texts."""
    answer: str


def bind_examples(
    examples: Any, columns: Sequence[str], answer_text: Callable[[Any], str]
) -> tuple[Example, ...]:
    """Return examples as texts.

    Parameters
    ----------
    examples
        Rows with a column ``answer``: a Polars frame or a list of dicts. Or pairs ``(row, answer)``,
        where ``row`` is a dict, or the bare value of the only column.
    columns
        The columns that the operator reads.
    answer_text
        Turns an answer into text; raises :class:`~semops.errors.ConfigError` where it can't be one.

    Raises
    ------
    ConfigError
        If an example lacks a column or an answer, or has NULL in one.

    Examples
    --------
    >>> bind_examples([("so good", "yes")], ["text"], str)
    (Example(fields=(('text', 'so good'),), answer='yes'),)
    >>> bind_examples([{"text": "so good"}], ["text"], str)
    Traceback (most recent call last):
    ...
    semops.errors.ConfigError: examples[0] lacks 'answer'. An example needs 'text' and 'answer'; it has 'text'.
    """
    if examples is None:
        return ()
    if isinstance(examples, pl.LazyFrame):
        examples = examples.collect()
    rows = _rows(examples) if isinstance(examples, pl.DataFrame) else examples
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Sequence):
        raise ConfigError(
            f"examples={type(examples).__name__} must be a Polars frame with a column {ANSWER!r}, a "
            f"list of dicts with one, or a list of pairs (row, answer)."
        )
    return tuple(_bound(number, row, columns, answer_text) for number, row in enumerate(rows))


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    values = [values_of(column) for column in frame.get_columns()]
    return [dict(zip(frame.columns, row, strict=True)) for row in zip(*values, strict=True)]


def _bound(
    number: int, given: Any, columns: Sequence[str], answer_text: Callable[[Any], str]
) -> Example:
    place = f"examples[{number}]"
    if isinstance(given, Mapping):
        if any(column.lower() == ANSWER for column in columns):
            raise ConfigError(
                f"the instruction reads a column {ANSWER!r}, so an example's answer can't be told from "
                f"it. Give pairs (row, answer)."
            )
        found = next((key for key in given if str(key).lower() == ANSWER), None)
        row, answer = given, given.get(found)
        if found is None:
            raise _lacks(place, ANSWER, columns, given)
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        row, answer = given
        if not isinstance(row, Mapping):
            if len(columns) != 1:
                raise ConfigError(
                    f"{place} gives one value, but the instruction reads {_listed(columns)}. Give a "
                    f"dict of them."
                )
            row = {columns[0]: row}
    else:
        raise ConfigError(
            f"{place}={given!r} must be a dict with {ANSWER!r}, or a pair (row, answer)."
        )
    fields = []
    for column in columns:
        if column not in row:
            raise _lacks(place, column, columns, row)
        if row[column] is None:
            raise ConfigError(f"{place} has NULL in {column!r}. Leave the example out.")
        text = text_of(row[column])
        if not is_text(text):
            raise ConfigError(f"{place} has half a surrogate pair in {column!r}, which is no text.")
        fields.append((column, text))
    if answer is None:
        raise ConfigError(f"{place} has NULL as its answer. Leave the example out.")
    try:
        shown = answer_text(answer)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None
    if not is_text(shown):
        raise ConfigError(f"{place} has half a surrogate pair in its answer, which is no text.")
    return Example(tuple(fields), shown)


def _lacks(place: str, name: str, columns: Sequence[str], row: Mapping[Any, Any]) -> ConfigError:
    return ConfigError(
        f"{place} lacks {name!r}. An example needs {_listed(columns)} and {ANSWER!r}; it has "
        f"{_listed(list(row))}."
    )


def _listed(names: Sequence[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names) or "nothing"
