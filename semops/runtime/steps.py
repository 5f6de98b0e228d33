"""The program of one pipeline: turns tuples into requests and answers into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from semops.engine.plan import (
    Call,
    CartesianProduct,
    Pipeline,
    Request,
    Skip,
    Stage,
    Verdict,
)
from semops.errors import EngineError
from semops.operators import SemFilter, SemJoin, SemMap, left_reads, reads
from semops.planner.ir import Copy, Filter, Join, Project, Relational, Semantic, columns_of
from semops.prompts import joined
from semops.runtime.asks import Ask, AskBuilder, engine_step
from semops.runtime.columns import dtypes_after, steps_to_do
from semops.runtime.order import OrderBuffer
from semops.runtime.overflow import LEAST, cut_lengths
from semops.runtime.rows import Batch, Tuple, assemble
from semops.verdicts import read_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semops.engine.plan import Answer
    from semops.operators import Operator
    from semops.planner.lower import PhysicalPipeline
    from semops.profile import QueryLog


class PipelineProgram:
    """Implements :class:`semops.engine.plan.Program` for one physical pipeline.

    Parameters
    ----------
    pipeline
        What to run.
    rights
        The rows of each right side.
    asks
        Makes what the steps ask.
    log
        Where undecided answers are noted.
    wake
        Called when a result or an end may be waited for.
    """

    def __init__(
        self,
        pipeline: PhysicalPipeline,
        rights: Sequence[pl.DataFrame],
        asks: AskBuilder,
        log: QueryLog,
        wake: Callable[[], None],
    ) -> None:
        self.physical = pipeline
        self.prompter = asks.prompter
        self.log = log
        self.buffer = OrderBuffer()
        self._wake = wake
        self.feeder_wake: Callable[[], None] = _nothing
        """Called when a first step starts, so that the next tuple may be needed."""
        self.steps = steps_to_do(pipeline)
        self.read_columns = tuple(
            dict.fromkeys(
                [
                    *(name for operator in pipeline.operators for name in reads(operator)),
                    *(s.source for stage in self.steps for s in stage if isinstance(s, Copy)),
                ]
            )
        )
        self.rights = [Batch(frame, self.read_columns) for frame in rights]
        self.dtypes: dict[str, pl.DataType] = {}
        """Types of the semantic columns after the last step."""
        self._dtypes_before: dict[int, dict[str, pl.DataType]] = {}
        """And before each step, by its id: a name may come back with another type."""
        for step in (step for steps in self.steps for step in steps):
            self._dtypes_before[id(step)] = self.dtypes
            self.dtypes = dtypes_after(step, self.dtypes)
        self._prefix_columns = [left_reads(self._product(stage)) for stage in range(len(rights))]
        self._products: list[Ask] = []
        """What the predicate after each product asks."""
        for stage in range(len(rights)):
            product = asks.ask(self.steps[stage + 1][0], None, ())
            assert product is not None  # noqa: S101 - a product is followed by its predicate
            self._products.append(product)
        self.asks = [
            [asks.ask(step, *self._retained(number)) for step in steps]
            for number, steps in enumerate(self.steps)
        ]

    def ready_before(self, item: Tuple) -> int:
        """Return how many finished rows that nobody took come before a tuple's."""
        return self.buffer.held_before(item.slot)

    def pipeline(self) -> Pipeline:
        """Return the engine's view of the pipeline."""
        stages: list[Stage] = []
        for steps, asks in zip(self.steps, self.asks, strict=True):
            writers: dict[str, int] = {}
            made = []
            for number, (step, ask) in enumerate(zip(steps, asks, strict=True)):
                made.append(engine_step(step, ask, writers))
                if isinstance(step, Semantic):
                    writers.update(dict.fromkeys(step.operator.writes, number))
            stages.append(Stage(tuple(made)))
        products = tuple(CartesianProduct(batch.frame.height) for batch in self.rights)
        return Pipeline(tuple(stages), products)

    def tuple_of(self, batch: Batch, index: int, number: int) -> Tuple:
        """Return the tuple of a base row, its place taken; tokenises what its steps read."""
        item = Tuple(((batch, index),), self.buffer.open(), number)
        self.sizes(item, 0)
        return item

    # What the scheduler calls.

    def sizes(self, item: Tuple, stage: int) -> Sequence[int]:
        """Return the prompt tokens of each step, as far as known."""
        prefix = len(self.prefix(item.parent, stage - 1)) if item.parent is not None else 0
        sizes = []
        for ask in self.asks[stage]:
            if ask is None:
                sizes.append(0)
                continue
            size = len(self._block(item, ask, ask.columns, partial=True))
            if ask.longest_block is not None:
                size = min(size, ask.longest_block)
            size += len(ask.suffix) - (prefix if ask.shares_prefix else 0)
            sizes.append(max(size, 0))
        return sizes

    def floor(self, stage: int) -> int:
        """Return the most tokens that a child of a stage needs, answers excluded."""
        batch = self.rights[stage - 1]
        asks = [ask for ask in self.asks[stage] if ask is not None]
        suffix = max((len(ask.suffix) for ask in asks), default=0)
        names = [name for name in batch.lists if any(name in ask.columns for ask in asks)]
        longest = 0
        for index in range(batch.frame.height):
            fields = (batch.lists[name][index] for name in names)
            size = sum(
                len(self.prompter.segment(name, value, first=False))
                for name, value in zip(names, fields, strict=True)
                if value is not None
            )
            longest = max(longest, size)
        return longest + suffix + 1

    def prefix(self, item: Tuple, stage: int) -> Sequence[int]:
        """Return the ids that all children of a tuple share."""
        ask = self._products[stage]
        block = self._block(item, ask, self._prefix_columns[stage], partial=True)
        if ask.longest_block is None:
            return block
        return block[: max(ask.longest_block - self.floor(stage + 1), 0)]

    def request(self, item: Tuple, stage: int, step: int) -> Request | Skip:
        """Return a step's prompt; a NULL among its columns gives NULL without a call."""
        if stage == 0 and step == 0:
            self.feeder_wake()
        node = self.steps[stage][step]
        if isinstance(node, Copy):
            item.outputs[node.name] = item.value(node.source)
            return Skip()
        ask = self.asks[stage][step]
        assert ask is not None  # noqa: S101 - local steps are not requested
        values = {name: item.value(name) for name in ask.columns}
        if not ask.asks_about_nulls and None in values.values():
            self.log.null(ask.label, "null_input")
            return Skip(self._store(item, ask.operator, None, None))
        block = self._cut(item, ask)
        call = Call(ask.operator.kind, ask.operator.template.text, values)
        return Request(block + ask.suffix, len(block), ask.decoding, call)

    def accept(self, item: Tuple, stage: int, step: int, answer: Answer) -> Verdict:
        """Store an answer in the tuple.

        Raises
        ------
        EngineError
            If it can't be decided and the operator says ``on_error="raise"``.
        """
        ask = self.asks[stage][step]
        assert ask is not None  # noqa: S101 - only semantic steps have answers
        operator = ask.operator
        value = read_answer(operator, answer, ask.decoding.choices, ask.shift)
        if value.margin is not None:
            self.log.verdict(ask.label, value.margin, ask.shift, value.mass)
        if ask.longest_block is not None:
            self._note_cut(item, ask, ask.longest_block)
        if value.reason:
            self.log.null(ask.label, value.reason, value.detail, item.number)
            if operator.asking.on_error == "raise" and value.value is None:
                msg = (
                    f"{ask.label} could not answer for a row: {value.reason}"
                    f"{': ' + value.detail[:200] if value.detail else ''}. "
                    f'With on_error="null" such rows get NULL and are counted in the profile.'
                )
                raise EngineError(msg)
        return self._store(item, operator, value.value, value.probability)

    def local(self, item: Tuple, stage: int, step: int) -> Verdict:
        """Do the relational work of a step on one tuple."""
        node = self.steps[stage][step]
        dtypes = self._dtypes_before[id(node)]
        if isinstance(node, Filter):
            columns = sorted(node.predicate.columns) or [next(iter(item.parts[0][0].frame.columns))]
            row = assemble([item], columns, dtypes)
            return Verdict.KEEP if row.filter(node.predicate.payload).height else Verdict.DROP
        if isinstance(node, Project):
            row = assemble([item], node.columns, dtypes)
        else:
            assert isinstance(node, Relational)  # noqa: S101 - the only other local node
            row = node.between.run(assemble([item], columns_of(node.input), dtypes))  # type: ignore[attr-defined]
        if not row.height:
            return Verdict.DROP
        item.reset(Batch(row, self.read_columns))
        self.sizes(item, stage)
        return Verdict.KEEP

    def child(self, item: Tuple, stage: int, index: int) -> Tuple:
        """Return a pair of a tuple and a right row."""
        parts = (*item.parts, (self.rights[stage], index))
        return Tuple(parts, self.buffer.open(item.slot), item.number, dict(item.outputs), item)

    def emit(self, item: Tuple) -> None:
        """Put a finished tuple into its place."""
        self.buffer.close(item.slot, item)
        self._wake()

    def dropped(self, item: Tuple, stage: int) -> None:  # noqa: ARG002 - part of the protocol
        """Note that a tuple gives no row (any more)."""
        self.buffer.close(item.slot, None)
        self._wake()

    def _store(
        self, item: Tuple, operator: Operator, value: Any, probability: float | None
    ) -> Verdict:
        if isinstance(operator, SemMap):
            item.outputs[operator.name] = value
            return Verdict.KEEP
        if isinstance(operator, SemFilter):
            if operator.probability is not None:
                item.outputs[operator.probability] = probability
            if operator.name is not None:
                item.outputs[operator.name] = value
                return Verdict.KEEP
        return Verdict.KEEP if value is True else Verdict.DROP

    def _block(
        self, item: Tuple, ask: Ask, columns: tuple[str, ...], *, partial: bool = False
    ) -> tuple[int, ...]:
        """Return the ids of head and row block; ``partial`` leaves out what isn't known yet."""
        key = (ask.head_number, columns)
        known = item.blocks.get(key)
        if known is not None:
            return known
        segments = [ask.head]
        complete = True
        for position, name in enumerate(columns):
            absent = partial and not ask.asks_about_nulls
            if not item.has(name) or (absent and item.value(name) is None):
                complete = False
                continue
            segments.append(self._segment(item, name, first=position == 0))
        block = joined(segments)
        if complete:
            item.blocks[key] = block
        return block

    def _cut(self, item: Tuple, ask: Ask) -> tuple[int, ...]:
        """Return the ids of head and row block, its longest fields cut where that is wanted."""
        block = self._block(item, ask, ask.columns)
        if ask.longest_block is None or len(block) <= ask.longest_block:
            return block
        fields = [
            self._segment(item, name, first=not number) for number, name in enumerate(ask.columns)
        ]
        least = [
            len(self.prompter.segment(name, "", first=not number)) + LEAST
            for number, name in enumerate(ask.columns)
        ]
        room = ask.longest_block - len(ask.head)
        lengths = cut_lengths(list(map(len, fields)), least, room)
        if lengths is None:
            return block  # it does not fit, and is told so
        kept = (field[:length] for field, length in zip(fields, lengths, strict=True))
        return joined([ask.head, *kept])

    def _note_cut(self, item: Tuple, ask: Ask, room: int) -> None:
        whole = len(self._block(item, ask, ask.columns))
        if whole > room >= len(self._cut(item, ask)):
            detail = f"{whole} tokens of head and row, room for {room}"
            self.log.null(ask.label, "truncated", detail, item.number)

    def _retained(self, stage: int) -> tuple[Ask | None, tuple[str, ...]]:
        """Return what the product before a stage asks, and the columns in its prefix."""
        return (self._products[stage - 1], self._prefix_columns[stage - 1]) if stage else (None, ())

    def _segment(self, item: Tuple, name: str, *, first: bool) -> tuple[int, ...]:
        key = (name, first)
        known = item.segments.get(key)
        if known is None and item.parent is not None and name not in item.parts[-1][0].columns:
            known = item.parent.segments.get(key)
        if known is None:
            known = self.prompter.segment(name, item.value(name), first=first)
            item.segments[key] = known
        return known

    def _product(self, stage: int) -> SemJoin:
        node = self.steps[stage + 1][0]
        assert isinstance(node, Join)  # noqa: S101 - a product is followed by its predicate
        return node.operator


def _nothing() -> None:
    """Do nothing."""
