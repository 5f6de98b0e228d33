"""Tasks and the queues of one query, as the scheduler sees them."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from semops.engine.answers import AnswerMemo
from semops.engine.bounds import BoundEstimator
from semops.engine.budgets.controller import Sample
from semops.engine.metrics import OperatorCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from semops.engine.answer_cache import AnswerCache
    from semops.engine.budgets.controller import Controller
    from semops.engine.demand import Demand
    from semops.engine.plan import Pipeline, Program, Request

MEAN_WEIGHT = 0.02
"""Weight of a new value in the running means of child needs and pass rates."""


TRAJECTORY = 10_000
"""Samples kept of budgets and queues."""


class State(StrEnum):
    """Where a task is."""

    WAITING = "waiting"
    RUNNING = "running"
    """A request of it is in the backend, or it follows another task's equal request."""
    HELD = "held"
    """Between two steps, while relational work is done elsewhere; the prefix is kept."""
    RETAINED = "retained"
    """Its own steps are done; the prefix is kept for its children."""
    DONE = "done"


@dataclass(slots=True, eq=False)
class Task:
    """One tuple in one stage."""

    key: int
    query: QueryState
    item: Any
    stage: int
    place: tuple[int, ...]
    """Place in row order: the root's number, then at each product the right row's."""
    parent: Task | None = None
    step: int = 0
    state: State = State.WAITING
    attempt: int = 0
    """How often the current step was cut off at its bound."""
    bound: int = 0
    """Answer bound of the current step, in tokens; 0 before its request is known."""
    reached: int = -1
    """The last step that it was counted at, so that going back to a queue counts nothing twice."""
    reserved: int = 0
    """Tokens of KV that the ledger holds for it."""
    request: Request | None = None
    next_child: int = 0
    children_left: int = 0
    request_key: bytes = b""
    leader: Task | None = None
    """The task whose answer this one waits for."""
    followers: list[Task] = field(default_factory=list)
    """Tasks that wait for the answer to this task's equal request."""
    warm: bool = False
    """Whether its prefix was computed since it was last given back."""
    expected: int = 0
    """Tokens that its request should find in the cache, where that is known; else 0."""
    submitted_s: float | None = None
    """When its request went to the backend, in seconds; None while none is there."""
    sent_at_step: int | None = None
    """The engine step before which that was."""
    arrived_s: float = 0.0
    """When it began to wait for the first time, in seconds."""
    policy_key: float | None = None
    """What the ordering policy makes of it; None until asked for."""
    order: float = 0.0
    """What it is queued by before its place; not 0 only where rows may come in any order."""


@dataclass(slots=True, eq=False)
class QueryState:
    """One running pipeline: its queues, estimates and counters."""

    key: int
    pipeline: Pipeline
    program: Program
    demand: Demand
    post_local: Callable[[Task], None]
    """Hands a task to the thread that does relational work."""
    on_end: Callable[[BaseException | None], None]
    """Called once, when the last task is done or the query failed."""
    weight: float = 1.0
    ordered: bool = True
    """Whether its tuples start in row order."""
    waiting: list[deque[Task]] = field(init=False)
    """Per stage, tasks to be admitted, in row order."""
    parents: list[deque[Task]] = field(init=False)
    """Per stage, retained tasks that still have children to create, in row order."""
    counts: dict[str, OperatorCounts] = field(init=False)
    bounds: dict[tuple[int, int], BoundEstimator] = field(init=False)
    live: set[Task] = field(default_factory=set)
    """Tasks that are not WAITING and not DONE."""
    memo: AnswerMemo = field(default_factory=AnswerMemo)
    cache: AnswerCache | None = None
    """Answers of earlier runs, where the query uses them."""
    retained: int = 0
    """How many of the live tasks are RETAINED."""
    active_in: list[int] = field(init=False)
    """Per stage, how many of the live tasks have not ended their own steps."""
    used: int = 0
    """Tokens reserved by this query's tasks."""
    stage_used: list[int] = field(init=False)
    """The same, by stage."""
    controller: Controller = field(init=False)
    """Set by the scheduler."""
    pass_rate: float = 1.0
    child_need: list[float] = field(init=False)
    """Running mean of the need of a task, per stage, in tokens."""
    trajectory: deque[Sample] = field(default_factory=lambda: deque(maxlen=TRAJECTORY))
    """Budgets and queues over time, for plans with more than one stage."""
    arrivals: list[Task] = field(default_factory=list)
    """Tuples of an unordered query that have no place in a queue yet."""
    oldest: deque[Task] = field(default_factory=deque)
    """Tuples of an unordered query in the order of their arrival, some of which wait."""
    started: int = 0
    """Tasks admitted so far."""
    admitted_at: int = -1
    """The engine step before which a task of it started last."""
    denied_at: float = math.inf
    """The engine step before which a task of it could not start although it has less than its share, since
    the last one that did; infinite where there is none."""
    credit: float = 0.0
    """Prompt tokens that it may send to the engine in this round."""
    passed_at: set[Task] = field(default_factory=set)
    """The live tasks when none could be let past a tuple that waits too long."""
    lead: int = 0
    """How far its requests stand back in the engine; grows with the seats that it took."""
    first_keys: dict[int, float] = field(default_factory=dict)
    """By depth, the policy's key of its first request there."""
    exhausted: bool = False
    """True once no further root tuple will come."""
    parked: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        stages = self.pipeline.stages
        self.waiting = [deque() for _ in stages]
        self.parents = [deque() for _ in stages]
        self.child_need = [0.0 for _ in stages]
        self.stage_used = [0 for _ in stages]
        self.active_in = [0 for _ in stages]
        self.counts = {}
        self.bounds = {}
        for index, stage in enumerate(stages):
            for number, step in enumerate(stage.steps):
                if not step.local:
                    self.counts.setdefault(step.name, OperatorCounts())
                    self.bounds[index, number] = BoundEstimator(step.max_tokens, step.one_token)

    def enqueue(self, task: Task) -> None:
        """Let a task wait, before all that come later in the policy's or in row order."""
        insort(self.waiting[task.stage], task, key=_order)

    def enqueue_children(self, parent: Task) -> None:
        """Let the children of a task be created, before those that come later in row order."""
        insort(self.parents[parent.stage], parent, key=_place)

    def waiting_in(self, stage: int) -> int:
        """Return how many tasks wait in a stage, children yet to be created included."""
        rows = self.pipeline.products[stage - 1].right_rows if stage else 0
        parents = self.parents[stage - 1] if stage else ()
        return len(self.waiting[stage]) + sum(rows - parent.next_child for parent in parents)

    def sample(self, now_s: float) -> None:
        """Note budgets and queues where they changed."""
        stages = range(len(self.stage_used))
        if len(stages) == 1:
            return
        waiting = tuple(map(self.waiting_in, stages))
        now = Sample(now_s, tuple(self.controller.budgets), tuple(self.stage_used), waiting)
        if not self.trajectory or self.trajectory[-1][1:] != now[1:]:
            self.trajectory.append(now)

    def observe_need(self, stage: int, need: int) -> None:
        """Take the need of an admitted task into the running mean of its stage."""
        old = self.child_need[stage]
        self.child_need[stage] = need if old == 0.0 else old + MEAN_WEIGHT * (need - old)

    def observe_pass(self, *, passed: bool) -> None:
        """Take whether a first-stage task got children into the running pass rate."""
        self.pass_rate += MEAN_WEIGHT * (float(passed) - self.pass_rate)

    @property
    def active(self) -> int:
        """Tasks that are admitted and have not ended their own steps."""
        return len(self.live) - self.retained

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do."""
        queued = self.arrivals or any(self.waiting) or any(self.parents)
        return self.exhausted and not self.live and not queued


def _place(task: Task) -> tuple[int, ...]:
    return task.place


def _order(task: Task) -> tuple[float, tuple[int, ...]]:
    return task.order, task.place
