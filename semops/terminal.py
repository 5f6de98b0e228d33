"""Progress in a terminal: drawn at the bottom, what the program prints meanwhile goes above it."""

from __future__ import annotations

import io
import sys
import time
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Terminal:
    """A drawing at the bottom of the terminal that stderr goes to.

    It is drawn only when told to, so that no thread of its own outlives an interrupt.

    Parameters
    ----------
    lock
        Held by whoever calls a method. Rich composes and writes in two steps, so that what two threads write
        at once would be erased, or left among the lines.

    Examples
    --------
    >>> import threading
    >>> lock = threading.RLock()
    >>> with lock:
    ...     terminal = Terminal(lock)
    ...     terminal.draw(Text("half done"))
    ...     terminal.end()
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        console = Console(file=sys.stderr, highlight=False)
        self._live = Live(
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._printed: dict[str, Printed] = {}
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            # Redirected it goes where it always goes; else it would end on the terminal.
            if stream is not None and stream.isatty():
                self._printed[name] = _printed(stream, lock)
                self._printed[name].begin(console)
                setattr(sys, name, self._printed[name])
        time.sleep(STARTED_S)
        for printed in self._printed.values():
            printed.stream.flush()
        self._live.start()

    def draw(self, drawing: RenderableType) -> None:
        """Draw, in the place of what was drawn before."""
        self._live.update(drawing, refresh=True)

    def end(self) -> None:
        """Take away what was drawn, and let the program print as before."""
        try:
            self._live.stop()
        finally:
            for name, printed in self._printed.items():
                if getattr(sys, name) is printed:
                    setattr(sys, name, printed.stream)
                printed.end()


STARTED_S = 0.01
"""Time for other threads to end what they began to print before the drawing, in seconds."""


class Printed(io.TextIOBase):
    """What a program prints to a terminal while there is a drawing: whole lines at once, above it.

    A line that has no end yet waits for it, also when it is flushed, since it could only stand in the drawing.

    Parameters
    ----------
    stream
        Where the program printed before.
    lock
        As of :class:`Terminal`.
    """

    def __init__(self, stream: TextIO, lock: AbstractContextManager[Any]) -> None:
        self.stream = stream
        self._console: Console | None = None
        self._lock = lock
        self._rest = ""

    def begin(self, console: Console) -> None:
        """Print above what this console draws."""
        self._console = console

    def write(self, text: str) -> int:
        """Print text."""
        with self._lock:
            if self._console is None:
                return self.stream.write(text)
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            whole, end, rest = (self._rest + text).rpartition("\n")
            self._rest = rest
            if end:
                self._console.print(Text.from_ansi(whole), soft_wrap=True)
            return len(text)

    def flush(self) -> None:
        """Print what was written; does nothing to a line without an end."""
        with self._lock:
            if self._console is None:
                self.stream.flush()

    def end(self) -> None:
        """Print what has no end yet, and from now on everything, as before."""
        with self._lock:
            self._console = None
            self.stream.write(self._rest)
            self.stream.flush()
            self._rest = ""

    def isatty(self) -> bool:
        """Return whether it goes to a terminal: only then it is used."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_kept: Final[list[Printed]] = []
"""One for each stream, for ever: Python's ``print`` holds no reference to the ``sys.stdout`` that it prints to."""


def _printed(stream: TextIO, lock: AbstractContextManager[Any]) -> Printed:
    for printed in _kept:
        if printed.stream is stream:
            return printed
    _kept.append(Printed(stream, lock))
    return _kept[-1]
