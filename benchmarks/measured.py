"""Queries over contracts on the real engine, each run on a fresh one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import polars as pl

import semops

CONTRACT_TOKENS = 1_000
"""Length of a contract, in tokens."""
OVERHEAD_TOKENS = 104
"""System prompt, chat template, instruction and answer of one request, in tokens."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a query."""

    frame: pl.DataFrame
    wall_s: float
    computed_tokens: int
    cached_tokens: int
    retries: int
    solo: int
    pinning: str

    def row(self, **about: Any) -> dict[str, Any]:
        """Return the figures, after what they are about."""
        return {
            **about,
            "rows": self.frame.height,
            "wall_s": self.wall_s,
            "computed_tokens": self.computed_tokens,
            "cached_tokens": self.cached_tokens,
            "retries": self.retries,
            "solo": self.solo,
            "pinning": self.pinning,
        }


def fresh(build: Callable[[], pl.LazyFrame], executor: str = "pipelined", **settings: Any) -> Run:
    """Run a query on an engine started with these settings, so that no prefix is cached."""
    semops.close()
    semops.configure(**settings)
    warm = pl.DataFrame({"text": ["warm up"]}).sem_map(
        "Repeat {text}", max_tokens=1, on_cutoff="keep"
    )
    warm.collect()
    lazy = build()
    started = time.perf_counter()
    with semops.options(executor=executor):
        frame = lazy.collect()
    wall_s = time.perf_counter() - started
    profile = semops.last_profile()
    assert profile is not None
    counts = profile.operators.values()
    print(profile, flush=True)
    return Run(
        frame,
        wall_s,
        sum(c.computed_tokens for c in counts),
        sum(c.cached_tokens for c in counts),
        sum(c.retries for c in counts),
        profile.events.solo,
        profile.pinning.split(" ", maxsplit=1)[0],
    )


def best(runs: list[Run]) -> Run:
    """Return the fastest: a shared machine's speed drifts."""
    return min(runs, key=lambda run: run.wall_s)
