"""Rows that are longer than the context: which fields are cut, and by how much."""

from __future__ import annotations

from collections.abc import Sequence

ANSWER_SHARE = 4
"""A map's answer keeps room for its cap, but for no more than one part in so many of the context."""


def answer_room(max_tokens: int, context_tokens: int) -> int:
    """Return how much of the context is kept for an answer, in tokens.

    Examples
    --------
    >>> answer_room(1, 8192), answer_room(8000, 8192)
    (1, 2048)
    """
    return min(max_tokens, max(context_tokens // ANSWER_SHARE, 1))


def cut_lengths(lengths: Sequence[int], total: int) -> list[int]:
    """Return how much of each field is kept, so that together they fit; the longest are cut.

    Parameters
    ----------
    lengths
        Tokens of each field.
    total
        Tokens that all of them may have.

    Examples
    --------
    >>> cut_lengths([10, 500, 90], 200)
    [10, 100, 90]
    """
    kept = list(lengths)
    left, open_fields = total, len(kept)
    for place in sorted(range(len(kept)), key=lambda number: lengths[number]):
        share = max(left, 0) // open_fields
        kept[place] = min(lengths[place], share)
        left -= kept[place]
        open_fields -= 1
    return kept
