"""What happens to a task when a step starts and when its answer comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semops.engine import admission, feedback, turns
from semops.engine.answers import request_key
from semops.engine.plan import Answer, Finish, Skip, Verdict
from semops.engine.task import State, Task

if TYPE_CHECKING:
    from semops.engine.plan import Request, Step
    from semops.engine.scheduler import Scheduler
    from semops.engine.task import QueryState


def run_step(scheduler: Scheduler, task: Task) -> None:
    """Run a task's current step, and those after it that need no request."""
    query = task.query
    steps = query.pipeline.stages[task.stage].steps
    while task.step < len(steps):
        step = steps[task.step]
        if step.local:
            task.state = State.HELD
            if task.request is not None:
                scheduler.pins.hold(task, task.request.token_ids[: task.request.shared_tokens])
            query.post_local(task)
            return
        counts = query.counts[step.name]
        if task.reached < task.step:
            task.reached = task.step
            counts.rows += 1
        request = query.program.request(task.item, task.stage, task.step)
        if not isinstance(request, Skip):
            _send(scheduler, task, step, request)
            return
        if request.verdict is Verdict.DROP:
            _drop(scheduler, task)
            return
        counts.kept += 1
        task.step += 1
    _finish_stage(scheduler, task)


def _send(scheduler: Scheduler, task: Task, step: Step, request: Request) -> None:
    """Submit a request, or take the answer of an equal one."""
    query = task.query
    capabilities = scheduler.capabilities
    task.request = request
    task.submitted_s = None
    if request.prompt_tokens >= capabilities.context_tokens:
        detail = (
            f"the prompt has {request.prompt_tokens} tokens, the context is "
            f"{capabilities.context_tokens} with room for at least one token of answer"
        )
        _take(scheduler, task, Answer("", Finish.ERROR, detail=f"over_context: {detail}"))
        return
    task.request_key = key = request_key(request)
    known = query.memo.known.get(key)
    if known is not None:
        query.counts[step.name].reused += 1
        task.warm = False
        _take(scheduler, task, known)
        return
    kept = query.cache.get(key) if query.cache is not None else None
    if kept is not None:
        query.counts[step.name].restored += 1
        query.memo.store(key, kept)
        task.warm = False
        _take(scheduler, task, kept)
        return
    leader = query.memo.leaders.get(key)
    if leader is not None and leader is not task:
        task.state = State.RUNNING
        task.leader = leader
        leader.followers.append(task)
        return
    room = capabilities.context_tokens - request.prompt_tokens
    if not task.attempt:
        task.bound = query.bounds[task.stage, task.step].first(request.prompt_tokens)
    task.bound = min(task.bound, request.decoding.max_tokens, room)
    if not _reserve(scheduler, task):
        requeue(scheduler, task)
        return
    task.state = State.RUNNING
    query.memo.leaders[key] = task
    scheduler.pins.drop(task)
    number = scheduler.next_key()
    scheduler.running[number] = task
    task.submitted_s = scheduler.clock()
    task.sent_at_step = scheduler.steps
    query.counts[step.name].enter(task.submitted_s)
    feedback.expect(scheduler, task)
    priority = turns.engine_priority(scheduler, task)
    scheduler.backend.submit(number, request, task.bound, priority)


def _reserve(scheduler: Scheduler, task: Task) -> bool:
    """Make sure that a task holds what its current step takes; grow what it has if need be."""
    need = admission.task_need(scheduler, task)
    grown = scheduler.ledger.rounded(need) - task.reserved
    if grown <= 0:
        return True
    if task.query.parked:
        return False
    alone = all(other is task for other in task.query.live) and len(scheduler.queries) == 1
    fits = scheduler.ledger.used + grown <= scheduler.ledger.budget
    if not alone and not (fits and task.query.controller.grows(task, grown)):
        return False
    scheduler.ledger.set_reserved(task, need)
    return True


def complete(scheduler: Scheduler, task: Task, answer: Answer) -> None:
    """Take the backend's answer to a task's request."""
    query = task.query
    request = task.request
    assert request is not None  # noqa: S101 - a running task has a request
    step = query.pipeline.stages[task.stage].steps[task.step]
    counts = query.counts[step.name]
    counts.leave(scheduler.clock())
    task.submitted_s = None
    feedback.observe(scheduler, task, answer)
    task.warm = answer.finish is not Finish.ERROR
    if task.parent is not None:
        task.parent.warm |= task.warm
    counts.prompt_tokens += answer.prompt_tokens
    counts.cached_tokens += answer.cached_tokens
    counts.output_tokens += answer.output_tokens
    query.memo.leaders.pop(task.request_key, None)
    estimator = query.bounds[task.stage, task.step]
    if answer.finish is not Finish.ERROR:
        estimator.observe(answer.output_tokens, request.prompt_tokens)
        scheduler.observe(task, step, answer)
    room = scheduler.capabilities.context_tokens - request.prompt_tokens
    cap = min(request.decoding.max_tokens, room)
    if answer.finish is Finish.LENGTH and not request.decoding.choices and task.bound < cap:
        counts.retries += 1
        task.attempt += 1
        task.bound = min(estimator.grown(task.bound, task.attempt, request.prompt_tokens), cap)
        for follower in released_followers(task):
            # Whichever of them asks next need not learn again that the bound was too low.
            follower.attempt, follower.bound = task.attempt, task.bound
            requeue(scheduler, follower)
        requeue(scheduler, task)
        return
    counts.calls += 1
    if answer.finish is not Finish.ERROR:
        query.memo.store(task.request_key, answer)
        if query.cache is not None:
            query.cache.put(task.request_key, answer)
    scheduler.pins.extend_parent(task)
    followers = released_followers(task)
    with scheduler.guard(query):  # the followers' queries must get their answers even if it fails
        _take(scheduler, task, answer)
    for follower in followers:
        steps = follower.query.pipeline.stages[follower.stage].steps
        follower.query.counts[steps[follower.step].name].reused += 1
        follower.warm = task.warm
        with scheduler.guard(follower.query):
            _take(scheduler, follower, answer)


def released_followers(task: Task) -> list[Task]:
    """Return a task's followers, which follow it no longer."""
    followers, task.followers = task.followers, []
    for follower in followers:
        follower.leader = None
    return followers


def _take(scheduler: Scheduler, task: Task, answer: Answer) -> None:
    verdict = task.query.program.accept(task.item, task.stage, task.step, answer)
    advance(scheduler, task, verdict)


def advance(scheduler: Scheduler, task: Task, verdict: Verdict) -> None:
    """Go on to the next step of a task, or end it."""
    if task.query.ended:
        return
    task.attempt = task.bound = 0
    if verdict is Verdict.DROP:
        _drop(scheduler, task)
        return
    step = task.query.pipeline.stages[task.stage].steps[task.step]
    if not step.local:
        task.query.counts[step.name].kept += 1
    task.step += 1
    run_step(scheduler, task)


def _drop(scheduler: Scheduler, task: Task) -> None:
    query = task.query
    if len(query.pipeline.stages) > task.stage + 1:
        query.observe_pass(passed=False)
    query.program.dropped(task.item, task.stage)
    if task.parent is None:
        query.demand.done += 1
    release(scheduler, task)


def _finish_stage(scheduler: Scheduler, task: Task) -> None:
    query = task.query
    if task.stage == len(query.pipeline.stages) - 1:
        query.program.emit(task.item)
        query.demand.done += 1
        release(scheduler, task)
        return
    query.observe_pass(passed=True)
    rows = query.pipeline.products[task.stage].right_rows
    if rows == 0:
        query.program.dropped(task.item, task.stage)
        release(scheduler, task)
        return
    task.children_left = rows
    task.warm = feedback.keeps_warm(task)
    task.state = State.RETAINED
    query.retained += 1
    query.active_in[task.stage] -= 1
    query.enqueue_children(task)
    # Only the prefix stays reserved; what the children add is in their own reservations.
    scheduler.ledger.set_reserved(task, admission.retained_tokens(scheduler, task))
    scheduler.pins.hold(task, query.program.prefix(task.item, task.stage))


def release(scheduler: Scheduler, task: Task) -> None:
    """Give back what a finished task holds, and its parents' where it was the last child."""
    query = task.query
    if task.state is State.RETAINED:
        query.retained -= 1
    else:
        query.active_in[task.stage] -= 1
    scheduler.ledger.set_reserved(task, 0)
    scheduler.pins.drop(task)
    query.live.discard(task)
    task.state = State.DONE
    scheduler.patience.observe(scheduler.clock() - task.arrived_s)
    parent = task.parent
    if parent is None:
        return
    parent.children_left -= 1
    if parent.children_left == 0:
        query.program.dropped(parent.item, parent.stage)
        release(scheduler, parent)


def requeue(scheduler: Scheduler, task: Task) -> None:
    """Put a task back before all later ones of its stage; its step and answers so far stay."""
    query = task.query
    scheduler.ledger.set_reserved(task, 0)
    scheduler.pins.drop(task)
    query.live.discard(task)
    query.active_in[task.stage] -= 1
    task.state = State.WAITING
    query.enqueue(task)


def fail_all(queries: list[QueryState], scheduler: Scheduler, error: BaseException) -> None:
    """End queries with an error."""
    for query in queries:
        scheduler.end_query(query, error)
