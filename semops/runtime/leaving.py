"""Ending a process while Polars' threads still run queries.

A thread of Polars that comes back into Python after the interpreter has ended aborts the process. So
before it ends, whatever the engine, all pipelines are ended, and we wait until no generator of ours is being
run, and a little longer, until Polars has dropped the last one.
"""

from __future__ import annotations

import atexit
import math
import os
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
_left_s = -math.inf
"""When the last thread left, by the monotonic clock, in seconds."""
_ending = False
GRACE_S = 0.1
"""How long Polars may take to drop a generator that has ended, in seconds."""
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
        out = not _inside and not any(run.feeding for run in runs)
        if out and time.monotonic() - _left_s > GRACE_S:
            return
        time.sleep(0.005)  # Polars' threads tell nobody when they leave


def _enter() -> None:
    global _inside  # noqa: PLW0603
    with _lock:
        _inside += 1


def _leave() -> None:
    global _inside, _left_s  # noqa: PLW0603
    with _lock:
        _inside -= 1
        _left_s = time.monotonic()


def _forget() -> None:
    """In a forked process, know nothing of threads, which did not come along."""
    global _inside, _lock
    _inside, _lock = 0, threading.Lock()
    live.clear()


atexit.register(leave_all)
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget)
