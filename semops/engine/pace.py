"""How fast a query sends prompts to the engine, so that one that comes later is not stuck behind them.

Only a few steps' worth of prompts waits inside the engine: more would gain nothing, since a step computes no
more than a chunk, and a newcomer would have to wait for all of it. While a newcomer runs, older queries send
so few prompts that a step takes about twice as long as without them; an engine that computes a whole chunk
of theirs in each step would slow the newcomer's answers down many times.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import QueryState, Task

QUEUED_CHUNKS = 2
"""Steps' worth of prompts that may wait in the engine."""
AHEAD = 8
"""A query is older than another where it has started so many tuples more."""
YOUNG = 64
"""A query that has started fewer tuples is protected from older ones."""
SLOWDOWN = 1.0
"""What older queries may add to a step, as a share of its time without them."""
WITHOUT_MODEL = 1 / 8
"""The same as a share of a chunk, while step times aren't known."""
MEAN_WEIGHT = 0.05


def refill(scheduler: Scheduler) -> None:
    """Set how many prompt tokens each query may send in this round; debts of earlier ones are paid off."""
    waiting = scheduler.backend.progress()[1] if scheduler.running else 0
    most = QUEUED_CHUNKS * scheduler.capabilities.chunk_tokens
    queries = [query for query in scheduler.queries.values() if not query.parked]
    youngest = min((query.started for query in queries if _is_young(query)), default=math.inf)
    oldest = max((query.started for query in queries), default=0)
    for query in queries:
        if youngest + AHEAD <= query.started:
            query.credit = min(query.credit, 0.0) + _spared(scheduler)
        elif _is_young(query) and query.started + AHEAD <= oldest:
            query.credit = float(most)
        else:
            query.credit = most - waiting * scheduler.mean_prompt


def spend(scheduler: Scheduler, task: Task) -> None:
    """Count a task that starts."""
    sizes = task.query.program.sizes(task.item, task.stage)
    own = sizes[task.step] if task.step < len(sizes) else 0
    task.query.started += 1
    task.query.credit -= own
    scheduler.mean_prompt += MEAN_WEIGHT * (own - scheduler.mean_prompt)


def _is_young(query: QueryState) -> bool:
    """Return whether a query has something to run and is protected from those that started far more."""
    return bool(query.live) and query.started < YOUNG


def _spared(scheduler: Scheduler) -> float:
    """Return how many prompt tokens a step may compute for older queries."""
    capabilities = scheduler.capabilities
    model = scheduler.meter.model()
    tokens = WITHOUT_MODEL * capabilities.chunk_tokens
    if model is not None and model.prefill_s > 0:
        light_s = model.base_s + model.decode_s * len(scheduler.running)
        tokens = SLOWDOWN * light_s / model.prefill_s
    return min(max(tokens, capabilities.block_tokens), capabilities.chunk_tokens)
