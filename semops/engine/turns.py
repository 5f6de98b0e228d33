"""Whose turn it is: order between queries, inside one whose rows may come in any order, and in the engine.

Fair shares come first: a query that holds less than its share of memory and seats goes before one that
holds more. Among those with the same right the ordering policy decides, by the request at the head of each.
Inside a query row order stays, unless it was given up.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import TYPE_CHECKING

from semops.engine import admission
from semops.engine.ordering.fitting import (
    GUARDED,
    PASSING,
    Holding,
    may_pass,
    remaining_steps,
)
from semops.engine.ordering.policies import AGED, PATIENCE, aged
from semops.engine.ordering.volume import Job
from semops.engine.task import State, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.scheduler import Scheduler
    from semops.engine.task import QueryState

LATENCIES = 256
"""Latencies kept for their median."""
MIN_LATENCIES = 32

# An engine's priority is one whole number: depth first, then the lead of the query, then the policy's key.
_DEPTH = 1 << 46
_LEAD = 1 << 36
_LEAD_SEATS = 4
"""Seats that a query may have taken more than another before it goes behind it in the engine."""


class Patience:
    """How long a request may wait before it goes first.

    Parameters
    ----------
    max_wait_s
        In seconds; None for 20 median latencies, and no limit before 32 requests have ended.

    Examples
    --------
    >>> patience = Patience()
    >>> for latency_s in range(1, 65):
    ...     patience.observe(float(latency_s))
    >>> patience.max_wait_s
    660.0
    """

    __slots__ = ("_fixed", "_fresh", "_latencies", "max_wait_s")

    def __init__(self, max_wait_s: float | None = None) -> None:
        self._fixed = max_wait_s is not None
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._fresh = 0
        self.max_wait_s = math.inf if max_wait_s is None else max_wait_s

    def observe(self, latency_s: float) -> None:
        """Take the time from arrival to end of a tuple."""
        if self._fixed:
            return
        self._latencies.append(latency_s)
        self._fresh += 1
        if self._fresh >= MIN_LATENCIES:
            self._fresh = 0
            self.max_wait_s = PATIENCE * sorted(self._latencies)[len(self._latencies) // 2]


def task_key(scheduler: Scheduler, task: Task) -> float:
    """Return the policy's key of a task, worked out once: at its arrival, or when it is first compared."""
    if task.policy_key is None:
        _note_keys(scheduler, [task])
    assert task.policy_key is not None  # noqa: S101 - just noted
    return task.policy_key


def enqueue_arrivals(scheduler: Scheduler, query: QueryState) -> None:
    """Put tuples that came since the last round into the order of the policy; all keys at once."""
    if not query.arrivals:
        return
    tasks = list(query.arrivals)
    query.arrivals.clear()
    _note_keys(scheduler, tasks)
    for task in tasks:
        task.order = task_key(scheduler, task)
        query.oldest.append(task)
        query.enqueue(task)


def promote_oldest(scheduler: Scheduler, query: QueryState) -> None:
    """Put the longest-waiting tuple of an unordered query first, if it has waited too long."""
    oldest, waiting = query.oldest, query.waiting[0]
    while oldest and oldest[0].state is not State.WAITING:
        oldest.popleft()
    if not oldest or not waiting:
        return
    task = oldest[0]
    waited_s = scheduler.clock() - task.arrived_s
    if aged(task.order, waited_s, scheduler.patience.max_wait_s) == AGED != task.order:
        waiting.remove(task)  # it may be the first already, but not as one that others may pass
        task.order = AGED
        query.enqueue(task)


def next_query(scheduler: Scheduler, ready: Sequence[QueryState]) -> QueryState:
    """Return the query that admits next."""
    if len(ready) == 1:
        return ready[0]
    denied_at = min(query.denied_at for query in ready)
    return min(ready, key=lambda query: _turn(scheduler, query, denied_at))


def has_its_share(scheduler: Scheduler, query: QueryState, more: int = 0) -> bool:
    """Return whether a query holds its fair share of the memory or of the seats, or would with more memory."""
    share = admission.fair_share(scheduler, query) / scheduler.ledger.budget
    seats = max(scheduler.capabilities.max_running * share, 1)
    full = query.used + max(more - 1, 0) >= share * scheduler.ledger.budget
    return bool(query.live) and (full or query.active >= seats)


def engine_priority(scheduler: Scheduler, task: Task) -> int:
    """Return the priority of a task's request in the engine; smaller goes first, larger is preempted.

    Later steps and stages go first, since their prefix is cached now. Then queries that have few requests
    in the engine. Between queries the key of a query's first request of this step stands for all of them,
    so that inside it requests stay in the order of their submission.
    """
    query = task.query
    depth = task.stage * 1_000 + task.step
    query.lead = max(query.lead, min(query.active // _LEAD_SEATS, _DEPTH // _LEAD - 1))
    if not query.ordered:
        key = task_key(scheduler, task)
    elif depth in query.first_keys or len(scheduler.queries) == 1:
        key = query.first_keys.get(depth, 0.0)
    else:
        key = query.first_keys[depth] = task_key(scheduler, task)
    return -depth * _DEPTH + query.lead * _LEAD + min(max(int(key), 0), _LEAD - 1)


def asks(scheduler: Scheduler, task: Task, need: int) -> int:
    """Return what a task adds to the memory in use, as the admission mode sees it, in tokens.

    With reservations that is its need. A look ahead compares what all hold at each coming end, an
    optimist what they hold now, so that for them it may be far less, or nothing.
    """
    mode = scheduler.admission
    if mode.name in {"ledger", "peak"}:
        return need
    running = [other for other in scheduler.running.values() if _ends_soon(other)]
    fixed = scheduler.ledger.used - sum(other.reserved for other in running)
    holdings = [_holding(scheduler, other, other.reserved) for other in running]
    together = mode.usage([*holdings, _holding(scheduler, task, need)])
    return math.ceil(fixed + together / mode.share) - scheduler.ledger.used


def passing(scheduler: Scheduler, head: Task, need: int) -> Task | None:
    """Return a tuple that may start before one that has waited too long but doesn't fit, if there is any.

    Only tuples of unordered queries are passed, by smaller ones of the same query, and only where that
    delays none of the oldest, as far as bounds on the answers tell.
    """
    query = head.query
    if head.order != AGED or query.live == query.passed_at:
        return None
    running = [task for task in scheduler.running.values() if _ends_soon(task)]
    fixed = scheduler.ledger.used - sum(task.reserved for task in running)
    memory = scheduler.ledger.budget - fixed
    if not running or need > memory:
        return None
    active = [_holding(scheduler, task, task.reserved) for task in running]
    waiting = (task for task in query.oldest if task.state is State.WAITING and task is not head)
    guarded = [head, *itertools.islice(waiting, GUARDED - 1)]
    wants = {task: admission.task_need(scheduler, task) for task in guarded}
    for task in itertools.islice(query.waiting[0], 1, 1 + PASSING):
        candidate = _holding(scheduler, task, admission.task_need(scheduler, task))
        others = [
            _holding(scheduler, other, wants[other]) for other in guarded if other is not task
        ]
        if may_pass(scheduler.admission, active, others, candidate, memory):
            return task
    query.passed_at = set(query.live)
    return None


def _turn(
    scheduler: Scheduler, query: QueryState, denied_at: float
) -> tuple[bool, bool, float, float, int]:
    more, key = 0, math.inf
    # Whoever went before one that was denied does so once: small requests of a long query would else take,
    # one after the other, all room that a larger one waits for.
    overtook = query.admitted_at >= denied_at < query.denied_at
    with scheduler.guard(query):
        for stage in range(len(query.pipeline.stages) - 1, -1, -1):
            task = admission.head(scheduler, query, stage)
            if task is not None and admission.allowed_by_demand(task):
                more = admission.task_need(scheduler, task)
                waited_s = scheduler.clock() - task.arrived_s
                key = aged(task_key(scheduler, task), waited_s, scheduler.patience.max_wait_s)
                break
    over = has_its_share(scheduler, query, more)
    return over, overtook, key, query.used / query.weight, query.key


def _note_keys(scheduler: Scheduler, tasks: Sequence[Task]) -> None:
    """Predict the answers of tasks of one stage and query, and note their keys."""
    query, policy = tasks[0].query, scheduler.ordering
    stage = tasks[0].stage
    keys = [0.0] * len(tasks)
    sizes = [query.program.sizes(task.item, stage) for task in tasks]
    for number, step in enumerate(query.pipeline.stages[stage].steps):
        if step.local:
            continue
        shared = [admission.parent_prefix_tokens(task) for task in tasks]
        own = [size[number] + more for size, more in zip(sizes, shared, strict=True)]
        lengths = scheduler.lengths.lengths(
            step.name, step.max_tokens, own, policy.lengths, [task.item for task in tasks]
        )
        for place, task in enumerate(tasks):
            sharers = task.parent.children_left if task.parent is not None else 1
            job = Job(task.key, own[place], lengths[place], shared[place], sharers)
            key = policy.key(job)
            # One request after the other: what they hold adds up; an arrival doesn't.
            keys[place] = key if policy.lengths == "none" else keys[place] + key
    for task, key in zip(tasks, keys, strict=True):
        task.policy_key = key


def _ends_soon(task: Task) -> bool:
    """Return whether a task gives its memory back with the end of its current request."""
    stages = task.query.pipeline.stages
    left = stages[task.stage].steps[task.step :]
    return task.stage == len(stages) - 1 and len(left) == 1 and not left[0].local


def _holding(scheduler: Scheduler, task: Task, reserved: int) -> Holding:
    """Return what a task holds and will hold, by the engine's steps since its request was sent."""
    if not _ends_soon(task):
        return Holding(reserved, 0.0, reserved)
    bound = task.bound or admission.last_bound(scheduler, task)
    done = 0 if task.sent_at_step is None else max(scheduler.steps - task.sent_at_step - 1, 0)
    left = remaining_steps(bound, done)
    return Holding(max(reserved - left, 0.0), left, reserved)
