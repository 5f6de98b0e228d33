"""What ``import semops`` adds to Polars: ``sem_*`` methods, ``.sem``, and a scope around ``collect``."""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

import polars as pl

from semops import frames, session
from semops.errors import warn
from semops.polars_source import interrupts
from semops.runtime import scopes

OPERATORS = ("sem_filter", "sem_map", "sem_join")


class SemNamespace:
    """The operators as ``frame.sem.filter(...)``.

    Parameters
    ----------
    frame
        A Polars frame.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> pl.DataFrame({"text": ["a"]}).sem.map("Shorten {text}").collect_schema().names()
    ['text', 'sem_map']
    """

    def __init__(self, frame: pl.DataFrame | pl.LazyFrame) -> None:
        self._frame = frame

    def filter(self, *args: Any, **kwargs: Any) -> pl.LazyFrame:
        """As :func:`semops.sem_filter`."""
        return frames.sem_filter(self._frame, *args, **kwargs)

    def map(self, *args: Any, **kwargs: Any) -> pl.LazyFrame:
        """As :func:`semops.sem_map`."""
        return frames.sem_map(self._frame, *args, **kwargs)

    def join(self, *args: Any, **kwargs: Any) -> pl.LazyFrame:
        """As :func:`semops.sem_join`."""
        return frames.sem_join(self._frame, *args, **kwargs)


def register() -> None:
    """Add the methods to Polars' frames; a second call changes nothing."""
    if getattr(pl.LazyFrame.collect, "_semops", False):
        return
    for cls in (pl.DataFrame, pl.LazyFrame):
        for name in OPERATORS:
            setattr(cls, name, getattr(frames, name))
    pl.api.register_dataframe_namespace("sem")(SemNamespace)
    pl.api.register_lazyframe_namespace("sem")(SemNamespace)
    pl.LazyFrame.collect = _scoped(pl.LazyFrame.collect)  # type: ignore[method-assign]
    pl.LazyFrame.collect_batches = _interruptible(pl.LazyFrame.collect_batches)  # type: ignore[method-assign]


def _scoped(collect: Any) -> Any:
    """Wrap ``collect`` so that a semantic query knows which run it belongs to."""

    @functools.wraps(collect)
    def scoped(self: pl.LazyFrame, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("post_opt_callback") is not None or kwargs.get("background"):
            return collect(self, *args, **kwargs)
        if session.forked() and "PYTHON[sem_" in self.explain(optimized=False):
            raise session.fork_error()  # Polars would wait forever
        scope = scopes.enter(self)
        try:
            result = collect(self, *args, **kwargs)
        except KeyboardInterrupt:
            # Polars raises one for its own signal handler while Python's is still pending. That one
            # must come here, not in the middle of cleaning up.
            try:  # noqa: SIM105 - entering suppress() is itself a place for it to come
                time.sleep(0.01)
            except KeyboardInterrupt:
                pass
            raise
        finally:
            scopes.leave(scope)
            profile = scope.finish()
            if profile is not None:
                session.record(profile)
        if profile is not None:
            warn(profile.warning(), sys._getframe(1))  # noqa: SLF001 - as the warnings module does
        return result

    scoped._semops = True  # type: ignore[attr-defined]  # noqa: SLF001 - our own mark
    return scoped


class _Batches:
    """What ``collect_batches`` gives, but an interrupt does not look like its end."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pl.DataFrame:
        before = len(interrupts)
        try:
            return next(self._batches)  # type: ignore[no-any-return]
        except StopIteration:
            if len(interrupts) != before:
                raise KeyboardInterrupt from None
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


def _interruptible(collect_batches: Any) -> Any:
    """Wrap ``collect_batches``: interrupted in a Python source, Polars ends the stream as if that were all."""

    @functools.wraps(collect_batches)
    def interruptible(self: pl.LazyFrame, *args: Any, **kwargs: Any) -> _Batches:
        return _Batches(collect_batches(self, *args, **kwargs))

    return interruptible
