"""Progress of running queries: one display for the whole process, on stderr or in the notebook's cell.

Whoever pulls a query touches the display, at most every 100 ms, and it draws itself no more than a few
times a second; there is no thread of its own in a notebook. In redirected output there is nothing.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Group

    from semops.terminal import Terminal

DELAY_S = 0.5
"""A query that is over sooner shows nothing, in seconds."""
EVERY_S = 0.25
"""Least time between two drawings, in seconds."""


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """How far one operator is."""

    name: str
    rows: int
    """Tuples that reached it."""
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How far a query is."""

    operators: tuple[OperatorProgress, ...] = ()
    done: int = 0
    """Base tuples that have ended."""
    total: int | None = None
    """Base tuples in all, where that is known."""
    kv_used: int = 0
    """KV memory reserved, of all queries, in tokens."""
    kv_budget: int = 0
    """KV memory that may be reserved, in tokens."""
    starting: bool = False
    """Whether the engine is still being started."""


class Watched(Protocol):
    """A running query."""

    def snapshot(self) -> Snapshot:
        """Return how far it is; called by any thread."""


@dataclass(slots=True)
class _Entry:
    query: Watched
    since_s: float
    """When it was first pulled."""
    began_s: float
    """When the engine was there; speed counts from then."""
    last: Snapshot = Snapshot()

    def look(self, now_s: float) -> None:
        """See how far it is."""
        found = self.query.snapshot()
        if self.last.starting and not found.starting:
            self.began_s = now_s
        self.last = found


def lines(snapshot: Snapshot, seconds: float) -> list[tuple[str, str, str, str]]:
    """Return one line an operator: name, done of expected, speed, prefix hits.

    Parameters
    ----------
    snapshot
        How far the query is.
    seconds
        How long it has run.

    Examples
    --------
    >>> half = Snapshot((OperatorProgress("sem_filter", 50, 1000, 250),), done=50, total=100)
    >>> lines(half, 10.0)
    [('sem_filter', '50 / 100', '5.0 rows/s', 'prefix 25 %')]
    """
    made = []
    for number, operator in enumerate(snapshot.operators):
        count = f"{operator.rows:,}"
        if snapshot.total is not None:
            first = snapshot.operators[0].rows
            share = operator.rows / first if first else 1.0
            expected = max(round(snapshot.total * share), operator.rows)
            sure = not number or snapshot.done >= snapshot.total
            count += f" / {'' if sure else '~'}{expected:,}"
        hits = (
            f"prefix {100 * operator.cached_tokens / operator.prompt_tokens:.0f} %"
            if operator.prompt_tokens
            else ""
        )
        made.append(
            (operator.name, count, f"{operator.rows / max(seconds, 1e-3):.1f} rows/s", hits)
        )
    return made


def summary(snapshot: Snapshot, seconds: float) -> str:
    """Return the line below the operators: rows done, memory, time passed and left.

    Examples
    --------
    >>> summary(Snapshot(done=50, total=100, kv_used=2_000, kv_budget=8_000), 10.0)
    '50 of 100 rows  KV 25 % of 8,000 tokens  0:10, 0:10 left'
    """
    if snapshot.starting:
        return f"starting the engine  {_clock(seconds)}"
    rows = f"{snapshot.done:,} rows"
    left = ""
    if snapshot.total is not None:
        rows = f"{snapshot.done:,} of {snapshot.total:,} rows"
        if 0 < snapshot.done < snapshot.total:
            left = f", {_clock(seconds / snapshot.done * (snapshot.total - snapshot.done))} left"
    memory = ""
    if snapshot.kv_budget:
        share = 100 * snapshot.kv_used / snapshot.kv_budget
        memory = f"KV {share:.0f} % of {snapshot.kv_budget:,} tokens  "
    return f"{rows}  {memory}{_clock(seconds)}{left}"


class Display:
    """Shows all queries that are being pulled."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._entries: dict[int, _Entry] = {}
        self._terminal: Terminal | None = None
        self._cell: Any = None
        self._drawn_s = 0.0

    def watch(self, query: Watched) -> None:
        """Begin to show a query."""
        with self._lock:
            now = time.monotonic()
            self._entries[id(query)] = _Entry(query, now, now)

    def touch(self, query: Watched) -> None:
        """Draw, if it is time; called by whoever pulls a query."""
        now = time.monotonic()
        with self._lock:
            entry = self._entries.get(id(query))
            if entry is None or now - entry.since_s < DELAY_S or now - self._drawn_s < EVERY_S:
                return
            self._drawn_s = now
            with suppress(Exception):  # a terminal that is gone must not end a query
                for each in self._entries.values():
                    each.look(now)
                self._draw()

    def forget(self, query: Watched) -> None:
        """Show a query no more; what was drawn in a terminal is taken away with the last one."""
        with self._lock:
            entry = self._entries.pop(id(query), None)
            if entry is None:
                return
            with suppress(Exception):
                self._leave(entry)

    def _leave(self, entry: _Entry) -> None:
        if self._cell is not None:
            entry.look(time.monotonic())
            self._cell.update(_Cell([entry, *self._entries.values()]))
        if self._entries:
            return
        self._cell = None
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            terminal.end()

    def _draw(self) -> None:
        entries = list(self._entries.values())
        if in_notebook():
            if self._cell is None:
                from IPython.display import display

                self._cell = display(_Cell(entries), display_id=True)
            elif self._cell is not None:
                self._cell.update(_Cell(entries))
            return
        if self._terminal is None:
            from semops.terminal import Terminal

            self._terminal = Terminal(self._lock)
        self._terminal.draw(_drawing(entries))


display = Display()
"""The process's one."""


def wanted(setting: bool) -> bool:  # noqa: FBT001 - a setting
    """Return whether progress is shown: in terminals and notebooks, unless it is switched off.

    Examples
    --------
    >>> wanted(False)
    False
    """
    if not setting:
        return False
    with suppress(Exception):  # stderr may be closed, or be no file
        return in_notebook() or sys.stderr.isatty()
    return False


def in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel.

    Examples
    --------
    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class _Cell:
    """What a notebook shows."""

    def __init__(self, entries: list[_Entry]) -> None:
        now = time.monotonic()
        self._text = "\n".join(
            "\n".join(
                [*("  ".join(line) for line in _padded(lines(e.last, s))), summary(e.last, s)]
            )
            for e in entries
            for s in [now - e.began_s]
        )

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


def _padded(rows: list[tuple[str, str, str, str]]) -> list[list[str]]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]


def _drawing(entries: list[_Entry]) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    now = time.monotonic()
    parts: list[Table | Text] = []
    for entry in entries:
        seconds = now - entry.began_s
        table = Table.grid(padding=(0, 2))
        for line in lines(entry.last, seconds):
            table.add_row(*map(Text, line))  # a name may look like markup
        parts += [table, Text(summary(entry.last, seconds))]
    return Group(*parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
