"""The IO source of a semantic operator: what Polars calls when it wants rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import polars as pl

from semops import session
from semops.engine.answers import AnswerMemo
from semops.engine.loop import EngineThread
from semops.operators import Operator
from semops.planner.lower import PhysicalPlan, lower
from semops.planner.optimize import optimize
from semops.planner.polars_reader import Pushed, SemanticSource, capture, read
from semops.prompts import SYSTEM, Prompter
from semops.runtime import scopes
from semops.runtime.leaving import tracked
from semops.runtime.query import Query


class SemSource:
    """The IO source of one semantic operator.

    Parameters
    ----------
    upstream
        Its input.
    upstream_columns
        Names of its input's columns. A run must not ask the frame for them: several may run at once,
        and one that holds Polars' lock on a frame while another holds Python's stops both for ever.
    operator
        What it does.
    schema
        Schema of its output.
    right
        The right side of a join.
    """

    def __init__(
        self,
        upstream: pl.LazyFrame,
        upstream_columns: tuple[str, ...],
        operator: Operator,
        schema: pl.Schema,
        right: pl.LazyFrame | None,
    ) -> None:
        self.upstream = upstream
        self.upstream_columns = upstream_columns
        self.operator = operator
        self.right = right
        self._schema = schema

    def schema(self) -> pl.Schema:
        """Return the schema of the output."""
        return self._schema

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,  # noqa: ARG002 - rows are given out as they finish
    ) -> Iterator[pl.DataFrame]:
        """Run the operator and all semantic operators fused below it; called by Polars."""
        pushed = Pushed(with_columns, predicate, n_rows)
        empty = pl.DataFrame(schema=self._schema)
        if with_columns is not None:
            empty = empty.select(with_columns)
        if capture(pushed):
            yield empty
            return
        for frame in tracked(_run(self, pushed)):
            try:
                yield frame if frame.width else empty
            except GeneratorExit:
                # On its way out with an interrupt Polars drops this generator while Python's own
                # interrupt is still pending. It must come here, not in the middle of cleaning up.
                try:  # noqa: SIM105 - entering suppress() is itself a place for it to come
                    time.sleep(0)
                except KeyboardInterrupt:
                    pass
                raise


def _run(source: SemSource, pushed: Pushed) -> Iterator[pl.DataFrame]:
    found, wanted = scopes.find(source)
    query = Query(
        plan(source, pushed),
        _start_engine,
        found[0].memo if found else AnswerMemo(),
        wanted,
        session.settings().executor,
    )
    in_scope = scopes.join(query, found)
    try:
        yield from query.frames()
    finally:
        if not in_scope:
            session.record(query.finish())


def plan(source: SemanticSource, pushed: Pushed) -> PhysicalPlan:
    """Return how a source and all that is fused below it will run."""
    pipelining = session.settings().executor == "pipelined"
    return lower(optimize(read(source, pushed)), pipelining=pipelining)


def _start_engine() -> tuple[EngineThread, Prompter]:
    engine = session.engine()
    system = session.settings().system_prompt
    return engine, Prompter(engine.tokenizer, SYSTEM if system is None else system)
