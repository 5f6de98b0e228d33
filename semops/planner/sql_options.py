"""Options written by name, which DuckDB has no way to hand to a function: they become a struct in the text."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import TokenType

from semops.planner.sql_dialect import DIALECT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

OPERATORS = ("sem_filter", "sem_map")
OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
NAMING = {TokenType.COLON_EQ, TokenType.FARROW}


def with_struct_options(text: str) -> str:
    """Return a statement in which the options of each call are one struct.

    Examples
    --------
    >>> with_struct_options("SELECT sem_map('{x}', x, stop := 'a', max_tokens => 7)")
    "SELECT sem_map('{x}', x, {'stop': 'a', 'max_tokens': 7})"
    """
    if ":=" not in text and "=>" not in text:
        return text
    tokens = sqlglot.tokenize(text, read=DIALECT)
    starts = [
        number
        for number, (token, following) in enumerate(pairwise(tokens))
        if token.text.lower() in OPERATORS and following.token_type == TokenType.L_PAREN
    ]
    for start in reversed(starts):  # inner calls first, so that what stands before keeps its place
        tokens = sqlglot.tokenize(text, read=DIALECT)
        text = _rewritten(text, tokens[start + 1 :])
    return text


def _rewritten(text: str, tokens: Sequence[Token]) -> str:
    """Rewrite the arguments in the parentheses that the tokens begin with."""
    depth = 0
    parts: list[list[Token]] = [[]]
    for token in tokens:
        depth += (token.token_type in OPENING) - (token.token_type in CLOSING)
        if not depth:
            break
        if depth == 1 and token.token_type == TokenType.COMMA:
            parts.append([])
        elif token is not tokens[0]:
            parts[-1].append(token)
    else:
        return text  # DuckDB says that it doesn't end
    named = [p for p in parts if len(p) > 2 and p[1].token_type in NAMING]
    if not named:
        return text
    plain = [text[p[0].start : p[-1].end + 1] for p in parts if p and p not in named]
    fields = (f"'{p[0].text}': {text[p[2].start : p[-1].end + 1]}" for p in named)
    inside = ", ".join([*plain, f"{{{', '.join(fields)}}}"])
    return text[: tokens[0].end + 1] + inside + text[token.start :]
