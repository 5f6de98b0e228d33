"""The IO source of a semantic operator: what Polars calls when it wants rows."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterator

import polars as pl
from polars.io.plugins import register_io_source

from semops import progress, session
from semops.engine.answers import AnswerMemo
from semops.engine.demand import Wanted
from semops.engine.loop import EngineThread
from semops.errors import SchemaError, warn
from semops.operators import Operator, SemJoin, label
from semops.planner.ir import Node
from semops.planner.lower import PhysicalPlan, lower
from semops.planner.optimize import optimize
from semops.planner.polars_reader import Pushed, SemanticSource, capture, read
from semops.prompts import SYSTEM, Prompter
from semops.runtime import scopes
from semops.runtime.columns import dtypes_of
from semops.runtime.leaving import tracked
from semops.runtime.query import Query
from semops.serialize import check_dtypes

interrupts: list[None] = []
"""One entry for each interrupt that came while Polars dropped a source; Polars raises one of its own, except in
``collect_batches``."""


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
                try:
                    time.sleep(0)
                except KeyboardInterrupt:
                    interrupts.append(None)
                raise


def _run(source: SemSource, pushed: Pushed) -> Iterator[pl.DataFrame]:
    found, wanted = scopes.find(source)
    query = start(read(source, pushed), found[0].memo if found else AnswerMemo(), wanted)
    query.keeps_rows = in_scope = scopes.join(query, found)
    try:
        yield from shown(query)
    finally:
        if not in_scope:
            profile = query.finish()
            session.record(profile)
            # A limit closes the stream before its end; any other error says enough.
            if sys.exc_info()[0] in {None, GeneratorExit}:
                warn(profile.warning())


def shown(query: Query) -> Iterator[pl.DataFrame]:
    """Run a query and show how far it is, where that is wanted."""
    watched = progress.wanted(session.settings().progress)
    if watched:
        progress.display.watch(query)
        query.on_end = functools.partial(progress.display.forget, query)
    try:
        for frame in query.frames():
            if watched:
                progress.display.touch(query)
            yield frame
    finally:
        query.on_end()


def start(node: Node, memo: AnswerMemo, wanted: Wanted, *, ordered: bool | None = None) -> Query:
    """Return a query that runs a logical plan on the process's engine.

    Parameters
    ----------
    node
        What to run.
    memo
        Answers shared with other queries of the run.
    wanted
        What is known about how many rows will be pulled.
    ordered
        Whether rows come in order; None as the settings say.
    """
    return Query(
        physical(node),
        start_engine,
        memo,
        wanted,
        session.settings().executor,
        session.answer_cache(),
        ordered=session.settings().ordered if ordered is None else ordered,
    )


def physical(node: Node) -> PhysicalPlan:
    """Return how a logical plan will run."""
    return lower(optimize(node), pipelining=session.settings().executor == "pipelined")


def plan(source: SemanticSource, pushed: Pushed) -> PhysicalPlan:
    """Return how a source and all that is fused below it will run."""
    return physical(read(source, pushed))


def start_engine() -> tuple[EngineThread, Prompter]:
    """Return the process's engine and a prompter for it; takes seconds where none runs yet."""
    engine = session.engine()
    system = session.settings().system_prompt
    return engine, Prompter(engine.tokenizer, SYSTEM if system is None else system)


def schema_of(frame: pl.LazyFrame) -> pl.Schema:
    """Return the schema of a frame that other threads may use."""
    # Of a copy: Polars would hold the frame's lock while it waits for Python's, and a thread that starts to
    # collect the same frame holds Python's while it waits for the frame's.
    return frame.clone().collect_schema()


def semantic_frame(
    upstream: pl.LazyFrame,
    operator: Operator,
    schema: pl.Schema,
    right: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """Return a lazy frame whose node runs an operator."""
    if isinstance(operator, SemJoin):
        assert right is not None  # noqa: S101 - sem_join passes it
        read_left = tuple(p.column for p in operator.template.placeholders if p.side == "left")
        names = dict(operator.right_names)
        added = {names[c]: dtype for c, dtype in schema_of(right).items()}
    else:
        read_left = operator.template.columns
        added = dtypes_of(operator)
    check_dtypes(schema, read_left, operator.kind)
    taken = list(schema)
    for name in operator.writes:
        if name in taken:
            raise SchemaError.name_clash(name, schema, operator.kind)
        taken.append(name)
    whole = pl.Schema({**schema, **added})
    return register_io_source(
        SemSource(upstream, tuple(schema), operator, whole, right),
        schema=whole,
        is_pure=True,
        explain_name=label(operator),
        explain_detail=operator.template.text,
    )
