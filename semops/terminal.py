"""Progress in a terminal: drawn at the bottom, what the program prints meanwhile goes above it."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

STARTED_S = 0.01
"""Time for other threads to end what they began to print before the drawing, in seconds."""
_MOVES = re.compile(r"\x1b(?!\[[\d;:]*m)|\r(?!\n)|[\b\v\f]")
"""What moves the cursor or erases: a program that writes it draws by itself. Colours don't."""


class Terminal:
    """A drawing at the bottom of the terminal that stderr goes to.

    It is drawn only when told to, so that no thread of its own outlives an interrupt. While the program draws
    by itself, or asks for input, it is away.

    Parameters
    ----------
    lock
        Held by whoever calls a method, and by whoever prints.

    Examples
    --------
    >>> import threading
    >>> from rich.text import Text
    >>> lock = threading.RLock()
    >>> with lock:
    ...     terminal = Terminal(lock)
    ...     terminal.draw(Text("half done"))
    ...     terminal.end()
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        stderr = _unproxied(sys.stderr)
        self._console = Console(file=stderr, highlight=False)
        self._write, self._flush = stderr.write, stderr.flush
        self._drawing = ""
        self._shown = 0
        self._printed: list[Printed] = []
        # Redirected a stream goes where it always goes; else it would end on the terminal.
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with suppress(Exception):  # it may be closed, None, or anything with a method `write`
                real = _unproxied(stream)
                if real.isatty() and all(each.stream is not real for each in self._printed):
                    self._printed.append(Printed(real, self, lock))
                    self._printed[-1].open = real is not stream
        time.sleep(STARTED_S)
        for printed in self._printed:
            printed.begin()

    def draw(self, drawing: RenderableType) -> None:
        """Draw, in the place of what was drawn before."""
        if self._console.is_dumb_terminal:
            return
        with self._console.capture() as capture:
            self._console.print(drawing)
        lines = capture.get().rstrip("\n").split("\n")[: self._console.height - 1]
        self._drawing = "\n".join(lines)
        self.again()

    def again(self) -> None:
        """Draw what was drawn last, where no line stands open."""
        if _bars():
            self.erase()
        elif self._drawing and not any(printed.open for printed in self._printed):
            shown, self._shown = self._shown, self._drawing.count("\n") + 1
            self._write(_erased(shown) + self._drawing)
            self._flush()

    def erase(self) -> None:
        """Take away what is drawn, until it is drawn again."""
        if self._shown:
            shown, self._shown = self._shown, 0
            self._write(_erased(shown))
            self._flush()

    def end(self) -> None:
        """Take away what was drawn, and let the program print as before."""
        try:
            self.erase()
        finally:
            self._drawing = ""
            for printed in self._printed:
                printed.end()


def _bars() -> bool:
    """Return whether tqdm draws: a bar holds the method ``write`` as it was when the bar was made."""
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    return bool(getattr(bar, "_instances", ()))


def _unproxied(stream: Any) -> Any:
    """Return the stream below that of a program that draws with rich by itself."""
    return getattr(stream, "rich_proxied_file", stream)


def _erased(count: int) -> str:
    return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (count - 1) if count else ""


class Printed:
    """What a program prints to a stream while there is a drawing: whole lines at once, above it.

    The stream stays what it is, since logging handlers and threads hold it; its methods are taken over.
    A line without an end waits until it is flushed; then the drawing is away until the line has ended.

    Parameters
    ----------
    stream
        A stream to a terminal.
    terminal
        What draws.
    lock
        As of :class:`Terminal`.
    """

    def __init__(
        self, stream: TextIO, terminal: Terminal, lock: AbstractContextManager[Any]
    ) -> None:
        self.stream = stream
        self.open = False
        """Whether the cursor is where the program left it, and nothing may be drawn."""
        self._terminal = terminal
        self._lock = lock
        self._rest = ""
        self._over = False
        self._write, self._flush, self._fileno = stream.write, stream.flush, stream.fileno
        self._taken = {"write": self.write, "flush": self.flush, "fileno": self.fileno}
        self._before = {name: vars(stream)[name] for name in self._taken if name in vars(stream)}
        for name, method in self._taken.items():
            setattr(stream, name, method)
        _active.append(self)

    def begin(self) -> None:
        """Print what was written before the drawing and stands in a buffer."""
        self._flush()

    def write(self, text: str) -> int:
        """Print text."""
        with self._lock:
            if self._over or not isinstance(text, str):
                return self._write(text)
            whole, end, rest = (self._rest + text).rpartition("\n")
            if _MOVES.search(text):
                self._rest = ""
                self._say(whole + end + rest, leaves_open=True)
            else:
                self._rest = rest
                if end:
                    self._say(whole + end, leaves_open=False)
            return len(text)

    def flush(self) -> None:
        """Print what was written, also a line without an end."""
        with self._lock:
            if self._rest and not self._over:
                rest, self._rest = self._rest, ""
                self._say(rest, leaves_open=True)
            self._flush()

    def fileno(self) -> int:
        """Return the file's number: who asks may write past the stream, as ``input`` and child processes do."""
        self.step_aside()
        return self._fileno()

    def step_aside(self) -> None:
        """Let somebody else write: nothing is drawn until the program prints a whole line."""
        with self._lock:
            if not self._over:
                rest, self._rest = self._rest, ""
                self._say(rest, leaves_open=True)

    def _say(self, text: str, *, leaves_open: bool) -> None:
        self._terminal.erase()
        self.open = leaves_open
        try:
            self._write(text)
            self._flush()
        finally:
            self._terminal.again()

    def end(self) -> None:
        """Print what has no end yet, and from now on everything, as before."""
        self.let_go()
        self._write(self._rest)
        self._flush()

    def let_go(self) -> None:
        """Give the stream its methods back, unless somebody else has taken them over since."""
        self._over = True
        _active.remove(self)
        for name, method in self._taken.items():
            if vars(self.stream).get(name) == method:
                if name in self._before:
                    setattr(self.stream, name, self._before[name])
                else:
                    delattr(self.stream, name)


_active: Final[list[Printed]] = []


def _before_fork() -> None:
    for printed in _active[:]:
        printed.step_aside()


def _in_forked_child() -> None:
    while _active:
        _active[-1].let_go()


# A child draws nothing, and doesn't wait for a lock whose holder isn't there.
os.register_at_fork(before=_before_fork, after_in_child=_in_forked_child)
