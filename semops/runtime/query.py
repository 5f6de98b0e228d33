"""A whole physical plan: its pipelines one after the other, and the profile of it all."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from semops.engine.demand import Wanted
from semops.engine.metrics import OperatorCounts
from semops.errors import EngineError
from semops.profile import Profile, QueryLog
from semops.progress import Snapshot
from semops.runtime.pipeline_run import PipelineRun
from semops.runtime.tail import empty_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semops.engine.answers import AnswerMemo
    from semops.engine.loop import EngineThread
    from semops.engine.scheduler import CacheFile
    from semops.planner.lower import PhysicalPlan
    from semops.prompts import Prompter


class Query:
    """Runs a physical plan and streams its rows.

    Parameters
    ----------
    plan
        What to run.
    start_engine
        Gives the engine and a prompter; called on another thread.
    memo
        Answers shared with other queries of the run.
    wanted
        What the plan above says about how many rows will be pulled.
    executor
        Named in the profile.
    cache
        Where answers of earlier runs are kept, if they are to be used.
    ordered
        Whether rows come in row order.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        start_engine: Callable[[], tuple[EngineThread, Prompter]],
        memo: AnswerMemo,
        wanted: Wanted,
        executor: str,
        cache: CacheFile | None = None,
        *,
        ordered: bool = True,
    ) -> None:
        self.plan = plan
        self.profile = Profile(executor=executor)
        self._start_engine = start_engine
        self._memo = memo
        self._wanted = wanted
        self._cache = cache
        self._ordered = ordered
        self._log = QueryLog()
        self._run: PipelineRun | None = None
        self._finished = False
        self.owners = 0
        """How many running collects it may belong to; see :mod:`semops.runtime.scopes`."""
        self.reported = False
        """Whether its profile is part of a run's."""
        self._started_s = time.monotonic()
        self.on_end: Callable[[], None] = _nothing
        """Called when it is over or left; maybe more than once."""
        self.keeps_rows = False
        """Whether rows are kept for :attr:`EngineError.partial`; their consumer holds them anyway then."""

    def snapshot(self) -> Snapshot:
        """Return how far it is."""
        return self._run.snapshot() if self._run is not None else Snapshot(starting=True)

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield rows in order as they finish, and frames without columns while there are none."""
        self._started_s = time.monotonic()
        base = self.plan.source.frame  # type: ignore[attr-defined]
        last = len(self.plan.pipelines) - 1
        labels = self.plan.labels()
        given: list[pl.DataFrame] = []
        try:
            for number, pipeline in enumerate(self.plan.pipelines):
                wanted = self._wanted if number == last else Wanted(everything=True)
                self._run = PipelineRun(
                    pipeline,
                    labels,
                    base,
                    self._start_engine,
                    self._log,
                    self._memo,
                    wanted,
                    self._cache,
                    ordered=self._ordered,
                )
                collected = []
                for frame in self._run.frames():
                    if number == last:
                        if frame.height and self.profile.first_row_s is None:
                            self.profile.first_row_s = time.monotonic() - self._started_s
                        self.profile.rows += frame.height
                        if self.keeps_rows and frame.height:
                            given.append(frame)
                        yield frame
                    else:
                        collected.append(frame)
                        yield pl.DataFrame()
                if number != last:
                    self._note_run(self._run)
                    kept = [frame for frame in collected if frame.width]
                    base = pl.concat([empty_result(pipeline, base), *kept]).lazy()
        except EngineError as error:
            # Not what an inner query had given out: that is another table.
            error.partial = pl.concat(given) if given else None
            raise
        finally:
            self.finish()

    def abandon(self) -> None:
        """Give back what the query holds; its stream goes on only if somebody pulls it again."""
        self.on_end()
        if self._run is not None:
            self._run.abandon()

    @property
    def over(self) -> bool:
        """Whether its stream has ended."""
        return self._finished

    def finish(self) -> Profile:
        """Return what the query did; a second call returns the same."""
        self.on_end()
        run = self._run
        profile = self.profile
        if self._finished or run is None:
            return profile
        self._finished = True
        profile.wall_s = time.monotonic() - self._started_s
        self._note_run(run)
        for operator, nulls in self._log.nulls.items():
            if operator in profile.operators:
                profile.operators[operator].nulls.update(nulls)
        profile.row_errors = list(self._log.errors)
        profile.decisions = self._log.decisions
        if run.engine is not None:
            scheduler = run.engine.scheduler
            profile.capabilities = scheduler.capabilities
            profile.events = replace(scheduler.events)
            reasons = "; ".join(scheduler.capabilities.reasons)
            virtual = f"virtual ({reasons})" if reasons else "virtual"
            profile.pinning = "explicit" if scheduler.pins.enabled else virtual
        return profile

    def _note_run(self, run: PipelineRun) -> None:
        """Take what a finished pipeline did into the profile, times counted from the query's start."""
        for name, counts in run.counts.items():  # an equal operator may have run before
            found = self.profile.operators.setdefault(name, OperatorCounts())
            found.add(counts)
            if counts.in_flight and run.engine is not None:  # it was stopped, and is told later
                found.busy_s += max(run.engine.scheduler.clock() - counts.since_s, 0.0)
        for sample in run.trajectory:
            self.profile.trajectory.append(sample._replace(time_s=sample.time_s - self._started_s))


def _nothing() -> None:
    """Do nothing."""
