"""Which waiting task starts next, and how much memory it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from semops.engine import completion, pace, turns
from semops.engine.task import State, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.scheduler import Scheduler
    from semops.engine.task import QueryState


def launch(scheduler: Scheduler) -> int:
    """Admit what may start now, queries below their fair share first; return how many."""
    admitted = 0
    blocked: set[int] = set()
    pace.refill(scheduler)
    for query in list(scheduler.queries.values()):
        with scheduler.guard(query):
            turns.enqueue_arrivals(scheduler, query)
    while len(scheduler.running) < scheduler.capabilities.max_running:
        ready = [
            q
            for q in scheduler.queries.values()
            if q.key not in blocked and not q.parked and q.credit > 0
        ]
        if not ready:
            break
        query = turns.next_query(scheduler, ready)
        outcome = "nothing"
        with scheduler.guard(query):
            outcome = _admit_one(scheduler, query)
        if outcome == "admitted":
            admitted += 1
        elif outcome == "no room" and query.used < fair_share(scheduler, query):
            break  # what is released next belongs to this query; nobody else may take it
        else:
            blocked.add(query.key)
    for query in scheduler.queries.values():
        if query.denied_at == math.inf and query.credit > 0 and _wants(query):
            below = not turns.has_its_share(scheduler, query)
            query.denied_at = scheduler.steps if below else math.inf
    return admitted


def fair_share(scheduler: Scheduler, query: QueryState) -> float:
    """Return a query's share of the budget while all queries want memory, in tokens."""
    return scheduler.ledger.budget * query.weight / scheduler.weights()


def _admit_one(scheduler: Scheduler, query: QueryState) -> str:
    """Admit one task of a query: ``admitted``, ``no room``, or ``nothing`` to admit."""
    outcome = "nothing"
    for stage in range(len(query.pipeline.stages) - 1, -1, -1):
        task = head(scheduler, query, stage)
        if task is None or not allowed_by_demand(task):
            continue
        need = task_need(scheduler, task)
        share = fair_share(scheduler, query)
        others_wait = any(_wants(q) for q in scheduler.queries.values() if q is not query)
        over_share = others_wait and query.used >= share
        asked = turns.asks(scheduler, task, need)
        fits = query.controller.admits(task, asked) and not over_share
        if fits or runs_solo(scheduler, task, need):
            query.waiting[stage].popleft()
            start(scheduler, task, need)
            return "admitted"
        if not query.live or scheduler.ledger.used + asked > scheduler.ledger.budget:
            outcome = "no room"
        passing = turns.passing(scheduler, task, need)
        if passing is not None and not over_share:
            query.waiting[stage].remove(passing)
            start(scheduler, passing, task_need(scheduler, passing))
            return "admitted"
    return outcome


def _wants(query: QueryState) -> bool:
    """Return whether a query has something that it would start if there were room."""
    if query.parked:
        return False
    return any(queue and allowed_by_demand(queue[0]) for queue in (*query.waiting, *query.parents))


def allowed_by_demand(task: Task) -> bool:
    """Return whether the consumer's demand allows a task, or the next child of a retained one."""
    query = task.query
    return query.demand.allows(query.active, query.program.ready_before(task.item))


def head(scheduler: Scheduler, query: QueryState, stage: int) -> Task | None:
    """Return the first task of a stage in its order; children are created here, one at a time."""
    if stage == 0 and not query.ordered:
        turns.promote_oldest(scheduler, query)
    waiting = query.waiting[stage]
    parents = query.parents[stage - 1] if stage else None
    if parents:
        parent = parents[0]
        place = (*parent.place, parent.next_child)
        if not waiting or place < waiting[0].place:
            item = query.program.child(parent.item, stage - 1, parent.next_child)
            parent.next_child += 1
            if parent.next_child == query.pipeline.products[stage - 1].right_rows:
                parents.popleft()
            child = Task(scheduler.next_key(), query, item, stage, place, parent)
            child.arrived_s = scheduler.clock()
            waiting.appendleft(child)
    return waiting[0] if waiting else None


def task_need(scheduler: Scheduler, task: Task) -> int:
    """Return what a task must reserve from its current step on, in tokens.

    The most over its remaining steps of prompt, answers read from earlier steps, and the answer's
    bound; and at least what it retains for its children. A child counts only its own part and what
    of its parent's prefix fills no block; a parent whose reservation was given back is counted.
    """
    query = task.query
    steps = query.pipeline.stages[task.stage].steps
    sizes = query.program.sizes(task.item, task.stage)
    room = scheduler.capabilities.context_tokens
    bounds = [
        0 if step.local else _bound(task, number, sizes[number], room)
        for number, step in enumerate(steps)
    ]
    products = query.pipeline.products[task.stage : task.stage + 1]
    need = retained_tokens(scheduler, task) if products and products[0].right_rows else 0
    unshared = len(_parents_prefix(task)) % scheduler.capabilities.block_tokens
    for number in range(task.step, len(steps)):
        step = steps[number]
        if not step.local:
            read = sum(bounds[earlier] for earlier in step.reads if earlier >= task.step)
            need = max(need, unshared + sizes[number] + read + bounds[number])
    return scheduler.ledger.rounded(need) + _lost_by_ancestors(scheduler, task)


def _bound(task: Task, number: int, size: int, room: int) -> int:
    if number == task.step and task.bound:
        return task.bound
    return min(task.query.bounds[task.stage, number].first(size), max(room - size, 1))


def last_bound(scheduler: Scheduler, task: Task) -> int:
    """Return the bound of the last answer of a task that has not started, in tokens."""
    number = len(task.query.pipeline.stages[task.stage].steps) - 1
    size = task.query.program.sizes(task.item, task.stage)[number]
    return _bound(task, number, size, scheduler.capabilities.context_tokens)


def parent_prefix_tokens(task: Task) -> int:
    """Return how many leading tokens of a task's prompts its parent holds."""
    return len(_parents_prefix(task))


def _lost_by_ancestors(scheduler: Scheduler, task: Task) -> int:
    lost = 0
    parent = task.parent
    while parent is not None:
        if parent.reserved == 0:
            lost += retained_tokens(scheduler, parent)
        parent = parent.parent
    return lost


def retained_tokens(scheduler: Scheduler, task: Task) -> int:
    """Return how many tokens a parent's children share that its own parent does not hold.

    Only whole blocks are shared; the rest is part of each child's need.
    """
    block = scheduler.capabilities.block_tokens
    prefix = len(task.query.program.prefix(task.item, task.stage))
    return max(prefix // block - len(_parents_prefix(task)) // block, 0) * block


def _parents_prefix(task: Task) -> Sequence[int]:
    parent = task.parent
    return () if parent is None else task.query.program.prefix(parent.item, parent.stage)


def runs_solo(scheduler: Scheduler, task: Task, need: int) -> bool:
    """Return whether a task that the budget never admits may run alone now.

    Only when nothing runs. Then retained parents other than its ancestors give their memory back;
    they pay for their prefix again when their next child starts.
    """
    if scheduler.running or _holds_elsewhere(scheduler, task):
        return False
    ancestors = set()
    parent = task.parent
    while parent is not None:
        ancestors.add(parent)
        parent = parent.parent
    for query in scheduler.queries.values():
        for other in query.live:
            if other.state is State.RETAINED and other not in ancestors:
                scheduler.ledger.set_reserved(other, 0)
                scheduler.pins.drop(other)
    if scheduler.ledger.used + need > scheduler.ledger.budget:
        scheduler.events.solo += 1
    return True


def _holds_elsewhere(scheduler: Scheduler, task: Task) -> bool:
    """Return whether tasks between two steps will go on by themselves, which is soon."""
    return any(
        other.state in {State.HELD, State.RUNNING}
        for query in scheduler.queries.values()
        for other in query.live
        if other is not task
    )


def start(scheduler: Scheduler, task: Task, need: int) -> None:
    """Reserve memory for a task and run its current step."""
    query = task.query
    parent = task.parent
    while parent is not None:
        if parent.reserved == 0:
            restored = retained_tokens(scheduler, parent)
            scheduler.ledger.set_reserved(parent, restored)
            parent.warm = False
            need -= restored
        parent = parent.parent
    pace.spend(scheduler, task)
    query.admitted_at, query.denied_at = scheduler.steps, math.inf
    query.live.add(task)
    query.active_in[task.stage] += 1
    scheduler.ledger.set_reserved(task, need)
    query.observe_need(task.stage, need)
    completion.run_step(scheduler, task)
