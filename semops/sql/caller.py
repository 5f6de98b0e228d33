"""The frame that a statement was written in, where DuckDB looks for Python variables named in FROM."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semops.sql.lazy_source import is_streamed, streamed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_CALL = compile("__semops_call()", "<semops>", "eval")
_WORD = re.compile(r"[^\W\d]\w*")


@dataclass(slots=True)
class Caller:
    """Variables that a statement may name as tables."""

    outer: dict[str, Any]
    """Globals of the caller that the statement names."""
    inner: dict[str, Any]
    """Locals of the caller that the statement names."""
    tables: dict[str, Any] = field(default_factory=dict)
    """Stages, by name."""

    def reads_answers(self, text: str) -> bool:
        """Return whether a query reads a stage or a semantic frame, so that each row of it was paid for."""
        variables = {**self.outer, **self.inner}
        names = {*self.tables, *(n for n, value in variables.items() if is_streamed(value))}
        return not names.isdisjoint(_WORD.findall(text))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of DuckDB's as if the caller did."""
        # DuckDB looks in the frame that calls it; an evaluated expression is a frame of our making.
        names = {
            **self.inner,
            **self.tables,
            "__semops_call": functools.partial(function, *args, **kwargs),
        }
        return eval(_CALL, self.outer.copy(), names)  # noqa: S307 - the constant above, no data


def caller_of(frame: FrameType, text: str) -> Caller:
    """Return the variables of a frame that a text may name."""
    words = set(_WORD.findall(text))
    found = [
        {name: streamed(names[name]) for name in words if name in names}
        for names in (frame.f_globals, frame.f_locals)
    ]
    return Caller(*found)
