"""For tests of code that uses semops: a Python function answers instead of a model."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semops import session
from semops.engine.backends.replay import ReplayBackend, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from semops.engine.loop import EngineThread
    from semops.engine.plan import Call

__all__ = ["Replay", "Reply", "replay"]


@dataclass(slots=True)
class Replay:
    """A running replay."""

    backend: ReplayBackend
    engine: EngineThread

    @property
    def calls(self) -> list[Call]:
        """Every call so far: operator, instruction, and the tuple as a dict."""
        return self.backend.calls

    def rows(self, operator: str) -> list[Mapping[str, Any]]:
        """Return the tuples that an operator was called with."""
        return [call.row for call in self.backend.calls if call.operator == operator]


@contextmanager
def replay(
    answer: Callable[[str, str, Mapping[str, Any]], Any],
    *,
    controller: str = "demand",
    pinning: str = "auto",
    ordering: str = "svf",
    admission: str = "ledger",
    **backend: Any,
) -> Iterator[Replay]:
    """Let a function answer all semantic operators in a block, in all threads.

    Parameters
    ----------
    answer
        ``answer(operator, instruction, row)`` gives a verdict (True, False, the probability of yes, or
        None for undecided), a text, or a :class:`Reply` with a delay, a cut-off or a failure. An
        exception that it raises is a failed request.
    controller, pinning, ordering, admission
        As in :func:`semops.configure`.
    backend
        ``kv_tokens``, ``block_tokens``, ``context_tokens``, ``max_running``: the size of the engine.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> from semops.testing import replay
    >>> df = pl.DataFrame({"text": ["good", "bad"]})
    >>> with replay(lambda operator, instruction, row: row["text"] == "good") as log:
    ...     out = df.sem_filter("{text} is praise").collect()
    >>> out["text"].to_list(), len(log.calls)
    (['good'], 2)
    """
    made: list[ReplayBackend] = []

    def start() -> ReplayBackend:
        made.append(ReplayBackend(answer, **backend))
        return made[0]

    with session.override(
        start, controller=controller, pinning=pinning, policy=ordering, mode=admission
    ) as engine:
        yield Replay(made[0], engine)
