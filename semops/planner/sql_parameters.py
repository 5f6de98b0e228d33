"""Parameters of a statement that is run in parts: each part gets those that it names."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import TokenType

from semops.planner.sql_dialect import DIALECT

if TYPE_CHECKING:
    from collections.abc import Mapping


def numbered(text: str, values: Any) -> tuple[str, dict[str, Any]]:
    """Give all parameters of a statement names, so that its parts can be run on their own.

    Parameters
    ----------
    text
        One statement.
    values
        Its parameters' values: a sequence for ``?`` and ``$1``, a mapping for ``$name``.

    Returns
    -------
    tuple
        The text with named parameters, and the values by name.

    Examples
    --------
    >>> numbered("SELECT ?, '?'", [7])
    ("SELECT $semops_p1, '?'", {'semops_p1': 7})
    >>> numbered("SELECT $2", ["a", "b"])
    ('SELECT $semops_p2', {'semops_p1': 'a', 'semops_p2': 'b'})
    """
    if not values:
        return text, {}
    if hasattr(values, "keys"):
        return text, {str(name).lower(): value for name, value in dict(values).items()}
    made: list[str] = []
    end = count = 0
    tokens = sqlglot.tokenize(text, read=DIALECT)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.token_type not in {TokenType.PLACEHOLDER, TokenType.PARAMETER}:
            continue
        number = following is not None and following.token_type == TokenType.NUMBER
        number = number and following.start == token.end + 1  # type: ignore[union-attr]
        if token.token_type == TokenType.PARAMETER and not number:
            continue
        count = int(following.text) if number else count + 1  # type: ignore[union-attr]
        made += [text[end : token.start], f"$semops_p{count}"]
        end = (following if number else token).end + 1  # type: ignore[union-attr]
    made.append(text[end:])
    named = {f"semops_p{number}": value for number, value in enumerate(values, start=1)}
    return "".join(made), named


def names_of(values: Any) -> set[str] | None:
    """Return what DuckDB calls the parameters that values are given for; None where it takes no such values.

    Examples
    --------
    >>> sorted(names_of(["a", "b"])), names_of({"N": 1}), names_of(7)
    (['1', '2'], {'n'}, None)
    """
    if hasattr(values, "keys"):
        return {str(name).lower() for name in values}
    if values is None or isinstance(values, (list, tuple)):
        return {str(number) for number in range(1, len(values or ()) + 1)}
    return None


def used(text: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parameters that a text names, or None if it names none."""
    if not values:
        return None
    tokens = sqlglot.tokenize(text, read=DIALECT)
    names = {
        following.text.lower()
        for token, following in pairwise(tokens)
        if token.token_type == TokenType.PARAMETER
    }
    found = {name: value for name, value in values.items() if name in names}
    return found or None
