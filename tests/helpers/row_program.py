"""A hand-written program over dict rows, and a driver that turns the scheduler step by step.

No Polars and no thread: time stands still but where the backend sleeps or the driver ticks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from semops.engine.backends.replay import ReplayBackend
from semops.engine.demand import Demand
from semops.engine.plan import (
    Answer,
    Call,
    CartesianProduct,
    Decoding,
    Finish,
    Pipeline,
    Request,
    Skip,
    Stage,
    Step,
    Verdict,
)
from semops.engine.scheduler import Scheduler
from semops.engine.task import QueryState, State, Task

YES, NO = 1, 2
TICK_S = 0.05
"""How far the driver moves the clock where a turn did nothing, in seconds."""


class Clock:
    """Time that only moves when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 1e-4)


@dataclass(frozen=True, slots=True)
class Op:
    """A step: a filter, a map, or local work that keeps rows by ``keep``."""

    name: str
    kind: str = "filter"
    max_tokens: int = 1
    suffix: int = 8
    """Tokens of its instruction."""
    keep: Callable[[Mapping[str, Any]], bool] | None = field(default=None, repr=False)


@dataclass(eq=False)
class Item:
    """A tuple: ``row["doc"]`` holds the token ids of its own part of the prompt."""

    row: dict[str, Any]
    place: tuple[int, ...]
    parent: Item | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    ended: int = 0
    children: list[Item] = field(default_factory=list)

    @property
    def block(self) -> tuple[int, ...]:
        before = self.parent.block if self.parent is not None else ()
        return (*before, *self.row["doc"])


class RowProgram:
    """Implements ``Program``; the consumer takes every row at once unless ``holds``."""

    def __init__(
        self,
        stages: Sequence[Sequence[Op]],
        rights: Sequence[Sequence[dict[str, Any]]] = (),
        *,
        holds: bool = False,
    ) -> None:
        self.stages = stages
        self.rights = rights
        self.holds = holds
        self.emitted: list[Item] = []
        self.dropped_items: list[Item] = []
        self._roots = itertools.count()

    def pipeline(self) -> Pipeline:
        stages = tuple(
            Stage(
                tuple(
                    Step(op.name, op.kind == "local", op.max_tokens, op.kind == "filter")
                    for op in stage
                )
            )
            for stage in self.stages
        )
        return Pipeline(stages, tuple(CartesianProduct(len(right)) for right in self.rights))

    def root(self, row: dict[str, Any]) -> Item:
        return Item(row, (next(self._roots),))

    @property
    def results(self) -> list[tuple[Any, ...]]:
        """What came out, in row order: ids along the path, and the outputs."""
        return [
            (*_path(item), tuple(item.outputs.items()))
            for item in sorted(self.emitted, key=lambda item: item.place)
        ]

    def __repr__(self) -> str:
        return f"RowProgram({self.stages}, {self.rights})"

    # What the scheduler calls.

    def ready_before(self, item: Item) -> int:
        return sum(other.place < item.place for other in self.emitted) if self.holds else 0

    def sizes(self, item: Item, stage: int) -> list[int]:
        own = len(item.row["doc"])
        return [0 if op.kind == "local" else own + op.suffix for op in self.stages[stage]]

    def floor(self, stage: int) -> int:
        longest = max((len(row["doc"]) for row in self.rights[stage - 1]), default=0)
        return longest + max((op.suffix for op in self.stages[stage]), default=0) + 1

    def prefix(self, item: Item, stage: int) -> tuple[int, ...]:
        return item.block

    def request(self, item: Item, stage: int, step: int) -> Request | Skip:
        op = self.stages[stage][step]
        if item.row.get("skip") == op.name:
            return Skip()
        ids = (*item.block, *[10_000_000 + hash_of(op.name)] * op.suffix)
        choices = (YES, NO) if op.kind == "filter" else ()
        row = {f"id{depth}": value for depth, value in enumerate(_path(item))}
        call = Call(op.name, op.name, row)
        return Request(ids, len(item.block), Decoding(op.max_tokens, choices), call)

    def accept(self, item: Item, stage: int, step: int, answer: Answer) -> Verdict:
        op = self.stages[stage][step]
        if op.kind == "map":
            item.outputs[op.name] = answer.text if answer.finish is Finish.STOP else "NULL"
            return Verdict.KEEP
        return Verdict.KEEP if answer.logprobs[YES] > answer.logprobs[NO] else Verdict.DROP

    def local(self, item: Item, stage: int, step: int) -> Verdict:
        keep = self.stages[stage][step].keep
        return Verdict.KEEP if keep is None or keep(item.row) else Verdict.DROP

    def child(self, item: Item, stage: int, index: int) -> Item:
        place = (*item.place, index)
        child = Item(dict(self.rights[stage][index]), place, item, dict(item.outputs))
        item.children.append(child)
        return child

    def emit(self, item: Item) -> None:
        _end(item)
        self.emitted.append(item)

    def dropped(self, item: Item, stage: int) -> None:
        _end(item)
        self.dropped_items.append(item)


def hash_of(name: str) -> int:
    """A small number for a name, the same in every process."""
    return sum(map(ord, name))


def _path(item: Item) -> tuple[Any, ...]:
    above = _path(item.parent) if item.parent is not None else ()
    return (*above, item.row["id"])


def _end(item: Item) -> None:
    """Every tuple ends once, and after all its children."""
    item.ended += 1
    assert item.ended == 1, item
    assert all(child.ended for child in item.children), item


def doc(number: int, tokens: int) -> range:
    """Token ids of a document; no two numbers share any."""
    return range(number * 1_000, number * 1_000 + tokens)


def rows(count: int, tokens: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows with documents of so many tokens, no two alike."""
    return [{"id": first + i, "doc": doc(first + i, tokens)} for i in range(count)]


@dataclass(eq=False)
class Run:
    """A query in the driver."""

    program: RowProgram
    demand: Demand
    query: QueryState
    ended: list[BaseException | None]
    local: list[Task]


class Driver:
    """A scheduler on a replay backend, turned by hand, with its books checked at every turn."""

    def __init__(
        self,
        answer: Callable[[str, str, Mapping[str, Any]], Any],
        *,
        pinning: str = "auto",
        controller: str = "demand",
        policy: str = "svf",
        mode: str = "ledger",
        **backend: Any,
    ) -> None:
        self.clock = Clock()
        self.times = {"clock": self.clock, "sleep": self.clock.sleep}
        self.backend = ReplayBackend(answer, **self.times, **backend)  # type: ignore[arg-type]
        self.scheduler = Scheduler(
            self.backend, controller, pinning, self.clock, policy=policy, mode=mode
        )
        self.reserves = mode in {"ledger", "peak"}
        """Whether what is reserved is never more than the budget."""
        self.runs: list[Run] = []
        self.fits = True
        """Whether nobody else takes memory, so that what is admitted never has to wait for it."""
        self.bounds: dict[tuple[int, int], list[int]] = {}
        """Bounds of the attempts, by task and step."""
        self.before_step: Callable[[], None] | None = None
        """Called when a turn has admitted what it can."""
        submit, step = self.backend.submit, self.backend.step

        def noted(key: int, request: Request, max_tokens: int, priority: int) -> None:
            task = self.scheduler.running[key]
            self.bounds.setdefault((task.key, task.step), []).append(max_tokens)
            submit(key, request, max_tokens, priority)

        def watched() -> list[tuple[int, Answer]]:
            if self.before_step is not None:
                self.before_step()
            answers = step()
            if self.fits and self.reserves and not self.scheduler.events.solo:
                assert not self.backend.progress()[1], "admitted beyond the physical memory"
            return answers

        self.backend.submit = noted  # type: ignore[method-assign]
        self.backend.step = watched  # type: ignore[method-assign]

    def add(
        self,
        program: RowProgram,
        tuples: Sequence[dict[str, Any]],
        *,
        rows_wanted: int | None = None,
        weight: float = 1.0,
        taken: int = 1_000,
        ordered: bool = True,
    ) -> Run:
        """Add a query whose consumer has taken so much already that its window is wide."""
        demand = Demand(rows_wanted, self.clock)
        demand.taken = 0 if program.holds or rows_wanted is not None else taken
        demand.begin_pull()
        ended: list[BaseException | None] = []
        local: list[Task] = []
        query = self.scheduler.add_query(
            program.pipeline(),
            program,
            demand,
            local.append,
            ended.append,
            weight=weight,
            ordered=ordered,
        )
        run = Run(program, demand, query, ended, local)
        self.runs.append(run)
        for row in tuples:
            self.scheduler.add_tuple(query, program.root(row))
        self.scheduler.close_input(query)
        return run

    def replace_backend(self, backend: ReplayBackend) -> None:
        """Go on with another engine, as after a failed step."""
        self.scheduler.replace_backend(backend)
        self.backend = backend

    def turn(self) -> bool:
        """Turn once, do local work, and check the books."""
        scheduler = self.scheduler
        solo = scheduler.events.solo
        moved = scheduler.turn()
        scheduler.ledger.check_integrity(scheduler.queries.values())
        if self.reserves and scheduler.events.solo == solo == 0:
            assert scheduler.ledger.used <= scheduler.ledger.budget
        for run in self.runs:
            assert run.query.retained == sum(t.state is State.RETAINED for t in run.query.live)
            while run.local:
                task = run.local.pop(0)
                verdict = run.program.local(task.item, task.stage, task.step)
                scheduler.local_done(task, verdict)
        if not moved or not self.backend.progress()[0]:
            self.clock.sleep(TICK_S)
        return moved

    def finish(self, turns: int = 3_000) -> None:
        """Turn until all queries have ended; then nothing may be held."""
        for _ in range(turns):
            if all(run.ended for run in self.runs):
                break
            self.turn()
        assert all(run.ended == [None] for run in self.runs), [run.ended for run in self.runs]
        self.check_released()

    def check_released(self) -> None:
        """Check that nothing is held any more."""
        assert not self.scheduler.queries
        assert not self.scheduler.running
        assert self.scheduler.ledger.used == 0
        assert self.backend._pins == {}
        assert self.backend._pool.referenced == 0
        for run in self.runs:
            assert run.query.used == 0
            assert not run.query.live
            assert all(counts.in_flight == 0 for counts in run.query.counts.values())
