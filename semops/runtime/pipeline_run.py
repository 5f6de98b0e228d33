"""One pipeline on the engine: a feeder thread brings tuples, the caller takes ordered rows."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import polars as pl

from semops.engine.demand import UNKNOWN, Demand, Wanted
from semops.errors import EngineError
from semops.operators import SemMap
from semops.planner.polars_height import cheap_height
from semops.progress import OperatorProgress, Snapshot
from semops.runtime.asks import AskBuilder
from semops.runtime.calibrate import calibrate
from semops.runtime.estimate import check_fits
from semops.runtime.leaving import live
from semops.runtime.rows import Batch, assemble
from semops.runtime.scopes import collect_part
from semops.runtime.steps import PipelineProgram
from semops.runtime.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from semops.engine.answers import AnswerMemo
    from semops.engine.budgets.controller import Sample
    from semops.engine.loop import EngineThread
    from semops.engine.metrics import OperatorCounts
    from semops.engine.scheduler import CacheFile, Scheduler
    from semops.engine.task import QueryState, Task
    from semops.operators import Operator
    from semops.planner.lower import PhysicalPipeline
    from semops.profile import QueryLog
    from semops.prompts import Prompter

POLL_S = 0.1
"""How long the caller waits before it gets an empty frame, so that it can be interrupted, in seconds."""
LOW_WATER = 64
"""Most tuples that wait for admission; more would only hold memory."""
BATCH_ROWS = 64
"""Rows of a base batch. Small: what lies below may be a semantic query itself."""


class PipelineRun:
    """Runs a physical pipeline over base rows.

    Parameters
    ----------
    pipeline
        What to run.
    labels
        Names of the operators.
    base
        The base rows.
    start_engine
        Gives the engine and a prompter; called on the feeder's thread, since an engine's start takes
        seconds.
    log
        Where undecided answers go.
    memo
        Answers shared with other queries of the run.
    wanted
        What the plan above says about how many rows will be pulled.
    cache
        Where answers of earlier runs are kept, if they are to be used.
    ordered
        Whether rows come in row order; else as they finish.
    """

    def __init__(
        self,
        pipeline: PhysicalPipeline,
        labels: Mapping[Operator, str],
        base: pl.LazyFrame,
        start_engine: Callable[[], tuple[EngineThread, Prompter]],
        log: QueryLog,
        memo: AnswerMemo,
        wanted: Wanted = UNKNOWN,
        cache: CacheFile | None = None,
        *,
        ordered: bool = True,
    ) -> None:
        self.pipeline = pipeline
        self._labels = labels
        self.tail = Tail(pipeline.tail)
        limit = self.tail.limit_of_results
        if limit is not None:
            rows = limit if wanted.rows is None else min(limit, wanted.rows)
            wanted = Wanted(rows)
        self.demand = Demand(wanted.rows, everything=wanted.everything)
        self.counts: dict[str, OperatorCounts] = {}
        self.engine: EngineThread | None = None
        self._base = base
        self._start_engine = start_engine
        self._log = log
        self._memo = memo
        self._cache = cache
        self._ordered = ordered
        self._program: PipelineProgram | None = None
        self._query: QueryState | None = None
        self._in_transit = 0
        self._total: int | None = None
        """Base rows, where that is known."""
        self._local: deque[Task] = deque()
        self._feeder_wake = threading.Event()
        self._caller_wake = threading.Event()
        self._error: BaseException | None = None
        self._ended = False
        self._cancelled = False
        self._feeder = threading.Thread(target=self._feed, name="semops-feeder", daemon=True)
        live.add(self)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield result rows in order as they finish, and None-row frames while there are none.

        Raises
        ------
        SemopsError
            Whatever ended the query.
        """
        self._feeder.start()
        self.demand.begin_pull()
        try:
            while True:
                frame, ended = self._wait()
                failed = ended and self._error is not None and not self._cancelled
                if failed and (frame is None or not frame.height):
                    assert self._error is not None  # noqa: S101 - as just seen
                    raise self._error
                if frame is not None and self._program is not None:
                    self.demand.took(frame.height)
                    self._program.buffer.took()
                self.demand.end_pull()
                yield pl.DataFrame() if frame is None else frame
                if (ended and not failed) or self.tail.satisfied:
                    return
                self.demand.begin_pull()
                if self.engine is not None:
                    self.engine.wake()
        finally:
            self.demand.end_pull()
            self.cancel()

    def snapshot(self) -> Snapshot:
        """Return how far it is."""
        engine, total = self.engine, self._total
        if engine is None:
            return Snapshot(total=total, starting=True)
        operators = tuple(
            OperatorProgress(name, c.rows, c.prompt_tokens, c.cached_tokens)
            for name, c in list(self.counts.items())
        )
        ledger = engine.scheduler.ledger
        return Snapshot(operators, self.demand.done, total, ledger.used, ledger.budget)

    @property
    def feeding(self) -> bool:
        """Whether the feeder's thread runs."""
        return self._feeder.is_alive()

    @property
    def trajectory(self) -> list[Sample]:
        """Budgets and queues over time, on the engine's clock."""
        return list(self._query.trajectory.copy()) if self._query is not None else []

    def cancel(self) -> None:
        """End the query and give back what it holds; safe to call twice and from any thread."""
        if self._ended:
            return
        self._cancelled = True
        self._post(self._end_query)
        self._feeder_wake.set()
        self._caller_wake.set()

    def abandon(self) -> None:
        """Give back what the query holds, at once, unless somebody pulls it again."""
        self.demand.abandon()
        self._caller_wake.set()
        if self.engine is not None:
            self.engine.wake()

    def _wait(self) -> tuple[pl.DataFrame | None, bool]:
        """Return the rows that are ready, or None after a while, and whether they are the last."""
        if not self._caller_wake.is_set():
            self._caller_wake.wait(POLL_S)
        self._caller_wake.clear()
        if self.engine is not None and not self.engine.alive and not self._ended:
            self.engine.join()  # it tells its queries first, and not all may have been known to it
            if not self._ended:
                self._on_end(self.engine.reason())
        ended = self._ended or self._cancelled  # before draining: nothing comes after it
        program = self._program
        items = program.buffer.drain() if program is not None else []
        if not items or program is None:
            return None, ended
        frame = assemble(items, self.tail.input_columns(self.pipeline), program.dtypes)
        return self.tail.apply(frame), ended

    # The engine's thread.

    def _register(self, scheduler: Scheduler) -> None:
        if self._cancelled:
            self._on_end(None)
            return
        assert self._program is not None  # noqa: S101 - set before this is posted
        try:
            self._query = scheduler.add_query(
                self._program.pipeline(),
                self._program,
                self.demand,
                self._post_local,
                self._on_end,
                self._memo,
                cache=self._cache,
                ordered=self._ordered,
            )
        except Exception as error:  # noqa: BLE001 - this query's, not the engine's
            self._on_end(error)
            return
        self.counts = self._query.counts

    def _end_query(self, scheduler: Scheduler) -> None:
        if self._query is not None:
            scheduler.end_query(self._query, None)
        else:
            self._on_end(None)

    def _on_end(self, error: BaseException | None) -> None:
        self._error = error
        self._ended = True
        self._feeder_wake.set()
        self._caller_wake.set()

    def _post_local(self, task: Task) -> None:
        self._local.append(task)
        self._feeder_wake.set()

    # The feeder's thread.

    def _post(self, command: Callable[[Scheduler], None]) -> None:
        engine = self.engine
        if engine is None:
            return
        try:
            engine.post(command)
        except EngineError as error:
            self._on_end(error)

    def _feed(self) -> None:
        try:
            rights = [collect_part(right.frame) for right in self.pipeline.rights]  # type: ignore[attr-defined]
            if self.demand.everything:
                self._total = cheap_height(self._base)
            engine, prompter = self._start_engine()
            shifts = self._calibrate(engine, prompter)
            context = engine.capabilities.context_tokens
            asks = AskBuilder(prompter, self._labels, shifts, context)
            self._program = PipelineProgram(
                self.pipeline, rights, asks, self._log, self._caller_wake.set
            )
            self._program.feeder_wake = self._feeder_wake.set
            self._program.buffer.ordered = self._ordered
            check_fits(self._program, engine.capabilities)
            self.engine = engine
            self._post(self._register)
            number = 0
            for batch in self._batches():
                for index in range(batch.frame.height):
                    self._serve_until(self._hungry)
                    if self._stopped:
                        return
                    item = self._program.tuple_of(batch, index, number)
                    number += 1
                    self._in_transit += 1
                    self._post(lambda scheduler, item=item: self._arrive(scheduler, item))  # type: ignore[misc]
            self._total = number
            self._post(self._close_input)
            self._serve_until(lambda: False)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            self._fail(error)

    def _calibrate(self, engine: EngineThread, prompter: Prompter) -> dict[Operator, float]:
        """Return the calibration of each operator that wants it, in nats."""
        shifts: dict[Operator, float] = {}
        for operator in self.pipeline.operators:
            if not isinstance(operator, SemMap) and operator.deciding.calibrate:
                shift, calls = calibrate(operator, prompter, engine, lambda: self._stopped)
                shifts[operator] = shift
                self._log.calibrated(self._labels[operator], shift, calls)
        return shifts

    @property
    def _stopped(self) -> bool:
        return self._ended or self._cancelled

    def _batches(self) -> Iterator[Batch]:
        assert self._program is not None  # noqa: S101 - set by _feed
        read = self._program.read_columns
        frames = self._base.collect_batches(
            chunk_size=BATCH_ROWS, maintain_order=True, lazy=True, engine="streaming"
        )
        for frame in frames:
            for start in range(0, frame.height, BATCH_ROWS):
                yield Batch(frame.slice(start, BATCH_ROWS), read)

    def _arrive(self, scheduler: Scheduler, item: object) -> None:
        self._in_transit -= 1
        if self._query is not None:
            scheduler.add_tuple(self._query, item)

    def _close_input(self, scheduler: Scheduler) -> None:
        if self._query is not None:
            scheduler.close_input(self._query)

    def _hungry(self) -> bool:
        query = self._query
        waiting = self._in_transit + (len(query.waiting[0]) if query is not None else 0)
        return waiting < min(LOW_WATER, self.demand.supply())

    def _serve_until(self, ready: Callable[[], bool]) -> None:
        """Do local steps until there is something else to do or the query has ended."""
        assert self._program is not None  # noqa: S101 - set by _feed
        while not self._stopped:
            while self._local and not self._stopped:
                task = self._local.popleft()
                verdict = self._program.local(task.item, task.stage, task.step)
                self._post(lambda s, t=task, v=verdict: s.local_done(t, v))  # type: ignore[misc]
            if ready():
                return
            self._feeder_wake.wait(POLL_S)
            self._feeder_wake.clear()
            if self.demand.abandoned:
                # Polars may have let go of the stream without holding Python's lock. Then it is closed
                # only when somebody calls Polars again.
                pl.Series()

    def _fail(self, error: BaseException) -> None:
        if self._query is not None and self.engine is not None and self.engine.alive:
            query = self._query
            self._post(lambda scheduler: scheduler.end_query(query, error))
        else:
            self._on_end(error)
