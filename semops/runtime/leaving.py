"""Ending a process while Polars' threads still run queries.

A thread of Polars that comes back into Python after the interpreter has ended aborts the process. So
before it ends, all pipelines are ended, and we wait until no generator of ours is being run.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from semops.runtime.pipeline_run import PipelineRun

_lock = threading.Lock()
_inside = 0
"""Generators that are running Python code now, not suspended at a ``yield``."""
_ending = False
live: weakref.WeakSet[PipelineRun] = weakref.WeakSet()


def tracked(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Pass frames on, and note when a thread is inside."""
    _enter()
    try:
        for frame in frames:
            _leave()
            try:
                yield frame
            finally:
                _enter()
            if _ending:
                return
    finally:
        _leave()


def leave_all(timeout_s: float = 5.0) -> None:
    """End all pipelines and wait until no thread of theirs runs Python code."""
    global _ending  # noqa: PLW0603 - the process ends once
    _ending = True
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        runs = list(live)
        for run in runs:
            run.cancel()
        if not _inside and not any(run.feeding for run in runs):
            return
        time.sleep(0.005)


def _enter() -> None:
    global _inside  # noqa: PLW0603
    with _lock:
        _inside += 1


def _leave() -> None:
    global _inside  # noqa: PLW0603
    with _lock:
        _inside -= 1
