"""Rows that are longer than the context: which fields are cut, and by how much."""

from __future__ import annotations

from collections.abc import Sequence

ANSWER_SHARE = 4
"""A map's answer keeps room for its cap, but for no more than one part in so many of the context."""


LEAST = 8
"""Tokens of text that a field keeps at least, besides its name."""


def answer_room(max_tokens: int, context_tokens: int) -> int:
    """Return how much of the context is kept for an answer, in tokens.

    Examples
    --------
    >>> answer_room(1, 8192), answer_room(8000, 8192)
    (1, 2048)
    """
    return min(max_tokens, max(context_tokens // ANSWER_SHARE, 1))


def cut_lengths(lengths: Sequence[int], least: Sequence[int], total: int) -> list[int] | None:
    """Return how much of each field is kept, so that together they fit; the longest are cut.

    Parameters
    ----------
    lengths
        Tokens of each field.
    least
        Tokens that each keeps at least, if it has them.
    total
        Tokens that all of them may have.

    Returns
    -------
    list of int or None
        None where a field would keep less: what is asked about then is no longer the row.

    Examples
    --------
    >>> cut_lengths([10, 500, 90], [9, 9, 9], 200)
    [10, 100, 90]
    >>> cut_lengths([10, 500, 90], [9, 9, 9], 20) is None
    True
    """
    kept = [min(length, floor) for length, floor in zip(lengths, least, strict=True)]
    left = total - sum(kept)
    if left < 0:
        return None
    cap = _level(lengths, kept, left)
    return [max(floor, min(length, cap)) for length, floor in zip(lengths, kept, strict=True)]


def _level(lengths: Sequence[int], kept: Sequence[int], left: int) -> int:
    """Return the largest length that all fields may be cut to, by bisection."""
    low, high = 0, max(lengths, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        more = sum(
            max(min(length, middle) - floor, 0) for length, floor in zip(lengths, kept, strict=True)
        )
        low, high = (middle, high) if more <= left else (low, middle - 1)
    return low
