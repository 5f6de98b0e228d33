"""Lengths of real requests, and loads made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from semops.engine.ordering.queueing import Arrival

DATA = Path(__file__).parent / "data"
LONGEST = 40_000
"""Longer prompts are left out: one alone would fill much of the memory."""


class Trace(NamedTuple):
    """A set of lengths and a memory that holds about as many requests as an engine would."""

    name: str
    lengths: list[tuple[int, int]]
    """(prompt, answer) tokens."""
    memory: int
    """In tokens."""
    long_prompts: bool


def lengths(name: str) -> list[tuple[int, int]]:
    """Return prompt and answer lengths of a file, in its order."""
    frame = pl.read_parquet(DATA / f"{name}.parquet").select("prompt_tokens", "output_tokens")
    frame = frame.filter(pl.col("prompt_tokens").is_between(1, LONGEST))
    return [(s, max(o, 1)) for s, o in frame.rows()]


def all_traces() -> list[Trace]:
    """Return all of them."""
    conv, mooncake = lengths("azure2023_conv"), lengths("mooncake_conversation")
    return [
        Trace("azure conv", conv, 100_000, long_prompts=False),
        Trace("azure code", lengths("azure2023_code"), 100_000, long_prompts=False),
        Trace("arxiv", lengths("arxiv_lengths"), 100_000, long_prompts=False),
        Trace("mooncake", mooncake, 200_000, long_prompts=True),
        Trace("conv and mooncake", conv + mooncake, 200_000, long_prompts=True),
    ]


def sample(trace: Trace, count: int, seed: int) -> list[tuple[int, int]]:
    """Return some of a trace's requests, in random order."""
    return random.Random(seed).sample(trace.lengths, count)


def poisson(requests: Sequence[tuple[int, int]], rate: float, seed: int) -> list[Arrival]:
    """Return requests that come at random, so many a step on average."""
    dice = random.Random(seed)
    found, step = [], 0.0
    for prompt, answer in requests:
        step += dice.expovariate(rate)
        found.append(Arrival(prompt, answer, at_step=int(step)))
    return found
