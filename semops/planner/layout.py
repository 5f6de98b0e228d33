"""Which operators share a prompt prefix, and why others don't.

Two operators share their row block as far as their column lists agree from the start, in the same
prompt style. Nothing else changes a prompt: neither neighbours nor limits nor the size of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from semops.operators import label, reads

if TYPE_CHECKING:
    from semops.operators import Operator


class Sharing(NamedTuple):
    """How two operators' prompts agree."""

    columns: tuple[str, ...]
    """Leading columns that both read."""
    whole: bool
    """Whether one operator's row block is a prefix of the other's."""
    reason: str
    """What is shared, or why nothing or not all is."""


def sharing(first: Operator, second: Operator) -> Sharing:
    """Return what the second operator's prompt shares with the first one's.

    Examples
    --------
    >>> from semops.operators import SemFilter, SemMap
    >>> from semops.template import parse
    >>> keep = SemFilter(parse("{text} is about {title}"))
    >>> sharing(keep, SemMap(parse("Summarise {text}"), "summary")).columns
    ('text',)
    >>> sharing(keep, SemMap(parse("Compare {title} to {text}"), "same")).reason
    "shares no row text with sem_filter: 'title' comes first here, 'text' there"
    """
    mine, theirs = reads(second), reads(first)
    name = label(first)
    if first.asking.style != second.asking.style:
        return Sharing((), whole=False, reason=f"shares nothing with {name}: other prompt style")
    if first.asking.style == "raw" and _shown(first) != _shown(second):
        reason = f"shares nothing with {name}: examples come before the row in raw style"
        return Sharing((), whole=False, reason=reason)
    common = []
    for left, right in zip(mine, theirs, strict=False):
        if left != right:
            break
        common.append(left)
    if not common:
        why = f"{mine[0]!r} comes first here, {theirs[0]!r} there"
        return Sharing((), whole=False, reason=f"shares no row text with {name}: {why}")
    whole = len(common) == min(len(mine), len(theirs))
    listed = ", ".join(map(repr, common))
    if whole:
        return Sharing(tuple(common), whole=True, reason=f"shares {listed} with {name}")
    why = f"then {mine[len(common)]!r} comes here, {theirs[len(common)]!r} there"
    return Sharing(tuple(common), whole=False, reason=f"shares {listed} with {name}; {why}")


def _shown(operator: Operator) -> tuple[object, ...]:
    """Return what stands before the row in raw style."""
    return (operator.template, operator.asking.examples) if operator.asking.examples else ()
