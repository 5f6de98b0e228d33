"""What a plan will ask and how long that takes, before it runs: rows counted, the first ones tokenised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from semops.engine.capacity import Capacity, Shape, capacity, replicas_for
from semops.errors import CapacityError, UnsupportedError
from semops.planner.ir import Relational
from semops.profile import QueryLog
from semops.runtime.asks import AskBuilder
from semops.runtime.rows import Batch
from semops.runtime.steps import PipelineProgram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semops.engine.backend import Capabilities
    from semops.engine.loop import EngineThread
    from semops.planner.lower import PhysicalPipeline, PhysicalPlan
    from semops.prompts import Prompter
    from semops.runtime.asks import Ask
    from semops.runtime.rows import Tuple

SAMPLE = 64
"""Rows that are tokenised."""
SAMPLE_RIGHT = 8
"""Right rows of a join that each of them is paired with."""


class OperatorEstimate(NamedTuple):
    """What one operator will ask."""

    name: str
    requests: int
    """If every row passes every predicate."""
    prompt_tokens: float
    """Of a request, cached ones included."""
    cached_tokens: float
    """Of those, found in the prefix cache."""
    output_tokens: float
    """Of an answer."""
    seen: bool
    """Whether answers of such an operator have been seen; else a map is taken to reach its cap."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan will ask, and how long that takes."""

    rows: int
    """Of the table at the bottom."""
    operators: tuple[OperatorEstimate, ...]
    capacity: Capacity | None
    """Of the engine under this load; None where step times aren't known."""
    timed_steps: int
    """How many engine steps the time model is fitted to."""

    @property
    def requests(self) -> int:
        """Requests of all operators."""
        return sum(operator.requests for operator in self.operators)

    @property
    def seconds(self) -> float | None:
        """Time on one engine, in seconds."""
        if self.capacity is None:
            return None
        return self.requests / self.capacity.rate

    def engines(self, within_s: float) -> int | None:
        """Return how many engines like this one finish in time."""
        if self.capacity is None:
            return None
        return replicas_for(self.requests / within_s, self.capacity) if self.requests else 1

    def lines(self, within_s: float | None = None) -> Iterator[str]:
        """Yield the estimate as text."""
        yield f"estimate: {self.rows:,} rows, {self.requests:,} requests if every row passes"
        for operator in self.operators:
            answer = ("" if operator.seen else "at most ") + f"{operator.output_tokens:.0f}"
            yield (
                f"  {operator.name}: {operator.requests:,} requests, prompt {operator.prompt_tokens:.0f} "
                f"tokens ({operator.cached_tokens:.0f} cached), answer {answer}"
            )
        if self.capacity is None:
            yield "  seconds are not known: this backend doesn't say what a step computes"
            return
        found, seconds = self.capacity, self.requests / self.capacity.rate
        yield (
            f"  capacity: {found.rate:.3g} requests/s, {found.limits.binding}-bound; mu {found.mu:.3g}, "
            f"eta {found.efficiency:.2f}, delta {found.delta:.2f}, step {found.step_s:.3g} s "
            f"(fitted to {self.timed_steps} steps)"
        )
        yield f"  time: {seconds:,.0f} s on this engine"
        if within_s is not None:
            yield f"  engines like this one to finish in {within_s:,.0f} s: {self.engines(within_s)}"


def check_fits(program: PipelineProgram, capabilities: Capabilities) -> None:
    """Check that no operator's prompt is too long before any row's text is in it.

    Raises
    ------
    CapacityError
        If one is; then no row could be asked about.
    """
    for ask in (ask for asks in program.asks for ask in asks if ask is not None):
        if ask.longest_block is not None:
            continue  # told to make do with what fits, it answers NULL row by row
        fixed = len(ask.head) + len(ask.suffix) + 1
        if fixed > capabilities.context_tokens:
            raise CapacityError(
                f"{ask.label}: its instruction and all that is the same for each row take {fixed} tokens "
                f"with a token of answer, and the context is {capabilities.context_tokens}. Shorten the "
                f"instruction, or raise context_tokens= and kv_tokens= in semops.configure."
            )


def estimate(plan: PhysicalPlan, engine: EngineThread, prompter: Prompter) -> Estimate:
    """Estimate what a plan will ask and how long that takes on an engine.

    Rows of the table at the bottom are counted, the first 64 are tokenised. Nothing is asked.

    Raises
    ------
    UnsupportedError
        If a table below, at the bottom or right of a join, holds semantic operators, which would run.
    CapacityError
        As in :func:`check_fits`.
    """
    frame: pl.LazyFrame = plan.source.frame  # type: ignore[attr-defined]
    rights = [right.frame for pipeline in plan.pipelines for right in pipeline.rights]  # type: ignore[attr-defined]
    if any("PYTHON[sem_" in table.explain() for table in (frame, *rights)):
        raise UnsupportedError(
            "the plan holds semantic operators below work of Polars' that can't run row by row, for "
            "example a sort or a group_by, or in the right table of a join: they would have to run for "
            "an estimate. Estimate the part below that work, or that table, by itself, with "
            "semops.explain(part, estimate=True)."
        )
    rows = int(frame.select(pl.len()).collect().item())
    sample = frame.head(SAMPLE).collect()
    scheduler = engine.scheduler
    found: list[OperatorEstimate] = []
    shapes: list[Shape] = []
    for pipeline in plan.pipelines:
        for operator, shape in _of_pipeline(pipeline, plan, frame, sample, engine, prompter):
            found.append(operator)
            if operator.requests:
                shapes.append(shape)
    model = scheduler.meter.model()
    can = None
    if model is not None and shapes:
        can = capacity(shapes, scheduler.load.size, model, scheduler.admission.name)
    return Estimate(rows, tuple(found), can, scheduler.meter.steps)


def _of_pipeline(
    pipeline: PhysicalPipeline,
    plan: PhysicalPlan,
    base: pl.LazyFrame,
    sample: pl.DataFrame,
    engine: EngineThread,
    prompter: Prompter,
) -> Iterator[tuple[OperatorEstimate, Shape]]:
    rights = [right.frame.collect() for right in pipeline.rights]  # type: ignore[attr-defined]
    asks_of = AskBuilder(prompter, plan.labels(), {}, engine.capabilities.context_tokens)
    program = PipelineProgram(pipeline, rights, asks_of, QueryLog(), _nothing)
    check_fits(program, engine.capabilities)
    batch = Batch(sample, program.read_columns)
    items = [program.tuple_of(batch, index, index) for index in range(sample.height)]
    tables = [base, *(right.lazy() for right in rights)]
    remade = False
    needed: tuple[str, ...] = ()
    made_of: dict[str, tuple[str, ...]] = {}
    for stage, asks in enumerate(program.asks):
        if stage:
            chosen = range(min(rights[stage - 1].height, SAMPLE_RIGHT))
            items = [program.child(item, stage - 1, index) for item in items for index in chosen]
        lengths: dict[str, float] = {}
        earlier: list[Ask] = []
        for number, ask in enumerate(asks):
            if ask is None:
                remade |= isinstance(program.steps[stage][number], Relational)
                continue
            # After relational work a column of a table's name may be another one.
            read = needed
            if not remade and not ask.asks_about_nulls:
                read += tuple(part for name in ask.columns for part in made_of.get(name, (name,)))
            if ask.operator.filters:
                needed = read  # a NULL predicate drops the row
            else:
                made_of.update(dict.fromkeys(ask.operator.writes, read))
            requests = math.prod(_complete(table, read) for table in tables[: stage + 1])
            asked = [item for item in items if not _has_null(item, read)]
            yield _of_step(program, engine, stage, number, ask, asked, requests, earlier, lengths)
            earlier.append(ask)


def _complete(table: pl.LazyFrame, read: Sequence[str]) -> int:
    """Return how many rows of a table have no NULL in those of its columns that are read."""
    names = [name for name in table.clone().collect_schema() if name in read]
    whole = table.drop_nulls(names) if names else table
    return int(whole.select(pl.len()).collect().item())


def _has_null(item: Tuple, read: Sequence[str]) -> bool:
    return any(item.has(name) and item.value(name) is None for name in read)


def _of_step(
    program: PipelineProgram,
    engine: EngineThread,
    stage: int,
    number: int,
    ask: Ask,
    items: Sequence[Tuple],
    requests: int,
    earlier: Sequence[Ask],
    lengths: dict[str, float],
) -> tuple[OperatorEstimate, Shape]:
    block = engine.capabilities.block_tokens
    cap = ask.decoding.max_tokens
    one_token = bool(ask.decoding.choices)
    # Looked up, and no more: the engine's thread uses the book meanwhile.
    known = engine.scheduler.lengths.operators.get((ask.label, cap))
    output = 1.0 if one_token else float(cap)
    prompts, cached = [], []
    for item in items:
        parent = len(program.prefix(item.parent, stage - 1)) if item.parent is not None else 0
        size = program.sizes(item, stage)[number] + (parent if ask.shares_prefix else 0)
        # Answers of earlier operators that its prompt will hold.
        prompts.append(size + sum(lengths.get(name, 0.0) for name in ask.columns))
        shared = max([parent if ask.shares_prefix else 0, *_shared(program, item, ask, earlier)])
        cached.append(min(shared, size - 1) // block * block)
    if not one_token and known is not None:
        output = _mean(known.predict([int(prompt) for prompt in prompts]))
    lengths.update(dict.fromkeys(ask.operator.writes, output))
    seen = one_token or known is not None
    estimate_ = OperatorEstimate(ask.label, requests, _mean(prompts), _mean(cached), output, seen)
    sharers = (
        min(program.rights[stage - 1].frame.height, engine.capabilities.max_running) if stage else 1
    )
    shape = Shape(
        estimate_.prompt_tokens,
        output,
        estimate_.cached_tokens,
        sharers=float(sharers),
        share=float(max(requests, 1)),
    )
    return estimate_, shape


def _shared(
    program: PipelineProgram, item: Tuple, ask: Ask, earlier: Sequence[Ask]
) -> Iterator[int]:
    """Yield how many leading tokens a prompt shares with that of each earlier operator."""
    for other in earlier:
        if other.head_number != ask.head_number:
            continue
        tokens = len(ask.head)
        for place, (name, theirs) in enumerate(zip(ask.columns, other.columns, strict=False)):
            if name != theirs or not item.has(name):
                break
            tokens += len(program.prompter.segment(name, item.value(name), first=place == 0))
        yield tokens


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _nothing() -> None:
    """Do nothing."""
