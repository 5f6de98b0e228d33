"""``semops.attach``: a DuckDB connection whose statements with semantic calls are planned."""

from __future__ import annotations

import itertools
import os
import sys
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import duckdb

from semops.errors import ConfigError
from semops.planner.sql_calls import Unplanned
from semops.planner.sql_options import with_struct_options
from semops.planner.sql_parameters import names_of, numbered, used
from semops.planner.sql_reader import SqlPlan, read
from semops.sql.caller import Caller, caller_of
from semops.sql.database import StatementDatabase, check_columns
from semops.sql.failures import FETCHES, claimed, originals, raising_originals
from semops.sql.functions import register
from semops.sql.gather import Running
from semops.sql.stage_table import Memos

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_numbers = itertools.count(1)
STREAM_BUFFER = "1KB"
PLANNED_TYPES = ("SELECT", "CREATE", "INSERT", "COPY")


@dataclass(slots=True)
class _Ready:
    """A statement that can be handed to DuckDB."""

    text: str
    values: Any
    caller: Caller
    plan: SqlPlan
    database: StatementDatabase | None = None


@dataclass(eq=False, slots=True)
class _Shared:
    """What a connection and its cursors share."""

    memos: Memos = field(default_factory=Memos)
    running: Running = field(default_factory=Running)


class Connection:
    """A DuckDB connection whose ``sql``, ``query`` and ``execute`` plan semantic calls.

    Everything else is the connection's own: ``fetchall``, ``register``, ``table`` and so on.

    Parameters
    ----------
    connection
        The connection.

    Examples
    --------
    >>> import semops
    >>> con = semops.attach()
    >>> _ = con.execute("CREATE TABLE t AS SELECT 'so kind' AS review")
    >>> con.sql("SELECT review FROM t WHERE sem_filter('{review} is praise', review)").fetchall()
    [('so kind',)]
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, shared: _Shared) -> None:
        self._connection = connection
        self._shared = shared

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection itself; there semantic calls run as functions."""
        return self._connection

    def sql(
        self, query: Any, *, alias: str = "", params: Any = None
    ) -> duckdb.DuckDBPyRelation | None:
        """Return a query's relation; other statements are run.

        Parameters
        ----------
        query, alias, params
            As in DuckDB.

        Raises
        ------
        TemplateError, ConfigError
            If an instruction or an option is not allowed.
        duckdb.Error
            Whatever DuckDB finds wrong.
        """
        return self._sql(query, alias, params, sys._getframe(1))  # noqa: SLF001 - as DuckDB does

    def query(
        self, query: Any, *, alias: str = "", params: Any = None
    ) -> duckdb.DuckDBPyRelation | None:
        """As :meth:`sql`."""
        return self._sql(query, alias, params, sys._getframe(1))  # noqa: SLF001 - as DuckDB does

    def execute(self, query: Any, parameters: Any = None) -> Self:
        """Run a statement; the rows are fetched from this connection.

        Parameters
        ----------
        query, parameters
            As in DuckDB.

        Raises
        ------
        TemplateError, ConfigError, duckdb.Error
            As in :meth:`sql`.
        """
        frame = sys._getframe(1)  # noqa: SLF001 - as DuckDB does
        with originals():
            ready = self._ready(query, parameters, frame, supersede=True)
            if ready is None:
                caller = caller_of(frame, str(query))
                caller.call(self._connection.execute, query, parameters)
            else:
                ready.caller.call(self._connection.execute, ready.text, ready.values)
        return self

    def cursor(self) -> Connection:
        """Return another connection to the same database, planned too."""
        return Connection(_streaming(self._connection.cursor()), self._shared)

    duplicate = cursor

    def interrupt(self) -> None:
        """Stop what runs, the semantic queries of this connection and its cursors included."""
        self._connection.interrupt()  # first, so that it is DuckDB that says so where it can
        self._shared.running.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._connection, name)
        return raising_originals(found) if name in FETCHES else found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _sql(
        self, query: Any, alias: str, params: Any, frame: FrameType
    ) -> duckdb.DuckDBPyRelation | None:
        given: dict[str, Any] = {"alias": alias} if alias else {}
        with originals():
            ready = self._ready(query, params, frame, supersede=False)
            caller, text = (
                (caller_of(frame, str(query)), query)
                if ready is None
                else (ready.caller, ready.text)
            )
            values = params if ready is None else ready.values
            return claimed(caller.call(self._connection.sql, text, params=values, **given))  # type: ignore[no-any-return]

    def _ready(
        self, query: Any, values: Any, frame: FrameType, *, supersede: bool
    ) -> _Ready | None:
        """Run all statements but the last, and plan that; None where there is nothing to plan."""
        if not isinstance(query, str) or not _may_call(query):
            return None
        statements = self._connection.extract_statements(query)
        if not statements:
            return None
        *others, last = statements
        for statement in others:
            ready = self._planned(
                statement, None, caller_of(frame, statement.query), supersede=True
            )
            ready.caller.call(self._connection.execute, ready.text, ready.values)
        caller = caller_of(frame, last.query)
        return self._planned(last, values, caller, supersede=supersede or bool(others))

    def _planned(
        self, statement: Any, values: Any, caller: Caller, *, supersede: bool, run: bool = True
    ) -> _Ready:
        if not _may_call(statement.query):
            return _Ready(statement.query, values, caller, SqlPlan(statement.query))
        query = with_struct_options(statement.query)
        as_is = _Ready(query, values, caller, SqlPlan(query))
        kind = statement.type.name
        if kind not in PLANNED_TYPES:
            as_is.plan.reasons.append(f"a semantic call in {kind}")
            return as_is
        if names_of(values) != {name.lower() for name in statement.named_parameters}:
            as_is.plan.reasons.append("the statement's parameters are not those given")
            return as_is  # DuckDB says better which
        text, named = numbered(query, values)
        running = self._shared.running
        database = StatementDatabase(self._connection, caller, named, running, supersede=supersede)
        columns = None
        if kind == "SELECT":
            try:
                columns = database.describe(query, values)
            except Unplanned as reason:
                as_is.plan.reasons.append(str(reason))
                return as_is  # DuckDB says better what is wrong
        names = None if columns is None else [column.name for column in columns]
        plan = read(text, names, database, f"__sem_{next(_numbers)}_")
        if run:
            database.load_own()
        if plan.reasons:
            database.share(self._shared.memos)
        if not plan.stages:
            return _Ready(query, values, caller, plan, database)
        ready = _Ready(plan.statement, used(plan.statement, named), caller, plan, database)
        if columns is not None:
            try:
                check_columns(columns, database.describe(plan.statement))
            except Unplanned as reason:
                plan = SqlPlan(query, reasons=[f"the statement: {reason}"])
                return _Ready(query, values, caller, plan, database)
        return ready


def attach(connection: duckdb.DuckDBPyConnection | Connection | None = None) -> Connection:
    """Return a DuckDB connection whose statements with semantic calls are planned.

    Parameters
    ----------
    connection
        A connection; without one a new database in memory is opened. Its database gets the functions
        ``sem_filter`` and ``sem_map``, which also work on the connection itself.

    Raises
    ------
    ConfigError
        If it is no connection.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> con = semops.attach()
    >>> reviews = pl.DataFrame({"text": ["fine", "awful"]})
    >>> con.sql("SELECT sem_map('Translate {text}', text) AS de FROM reviews").columns
    ['de']
    """
    if isinstance(connection, Connection):
        return connection
    raw = duckdb.connect() if connection is None else connection
    if not isinstance(raw, duckdb.DuckDBPyConnection):
        raise ConfigError(
            f"attach takes a DuckDB connection, not {raw!r}. For a file: "
            f"semops.attach(duckdb.connect({str(raw)!r}))."
        )
    shared = _Shared()
    register(raw, shared.memos, shared.running)
    return Connection(_streaming(raw), shared)


def _streaming(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Let open results of a connection run ahead by a few rows only, unless its user chose otherwise.

    DuckDB's default of 10 MiB would ask about thousands of rows that a reader which was closed, or a
    ``fetchone``, never takes; and closing waits for them.
    """
    setting = "SELECT current_setting('streaming_buffer_size')"
    if connection.sql(setting).fetchall() == duckdb.connect().sql(setting).fetchall():
        connection.execute(f"SET streaming_buffer_size = '{STREAM_BUFFER}'")
    return connection


def explain_file(database: os.PathLike[str] | None, query: str) -> str:
    """Return which part of a statement over a database file runs where; the file is opened for reading.

    Without a file it may read Parquet and other files.

    Raises
    ------
    ConfigError
        If DuckDB can't open the file, or does not take the statement.
    """
    try:
        file = ":memory:" if database is None else os.fspath(database)
        with duckdb.connect(file, read_only=database is not None) as connection:
            return explain_sql(connection, query)
    except duckdb.Error as error:
        raise ConfigError(str(error)) from error


def explain_sql(
    connection: duckdb.DuckDBPyConnection | Connection, query: str, parameters: Any = None
) -> str:
    """Return which part of a statement runs where; nothing is run.

    Parameters
    ----------
    connection
        The connection that would run it.
    query
        One statement.
    parameters
        Values of its parameters.

    Examples
    --------
    >>> import semops
    >>> con = semops.attach()
    >>> _ = con.execute("CREATE TABLE t AS SELECT 1 AS id, 'so kind' AS review")
    >>> print(
    ...     semops.explain_sql(
    ...         con, "SELECT id FROM t WHERE sem_filter('{review} is praise', review) AND id > 0"
    ...     )
    ... )
    DuckDB: SELECT "c0" AS "id" FROM sem_1
    sem_1 over DuckDB: SELECT review AS "c0", id AS "c1" FROM t WHERE id > 0
      source: PYTHON[duckdb] SCAN []
      pipeline 1
        stage 1: one prefix a tuple
          sem_filter "{review} is praise"  reads review
        then select id
    """
    frame = sys._getframe(1)  # noqa: SLF001 - as DuckDB does
    attached = attach(connection)
    statements = attached.connection.extract_statements(query)
    lines: list[str] = []
    for statement in statements:
        ready = attached._planned(  # noqa: SLF001 - our own
            statement,
            parameters,
            caller_of(frame, statement.query),
            supersede=False,
            run=False,
        )
        lines += _explained(ready)
    return "\n".join(lines)


def _explained(ready: _Ready) -> list[str]:
    lines = [f"DuckDB: {ready.text.strip()}"]
    plan, database = ready.plan, ready.database
    if database is not None and plan.stages:
        for table in database.tables():
            lines.append(f"{table.stage.name} over DuckDB: {table.stage.base.query}")
            if table.stage.right is not None:
                lines.append(f"  right side from DuckDB: {table.stage.right.query}")
            if table.stage.limit is not None:
                lines.append(f"  at most {table.stage.limit} rows")
            lines.append(textwrap.indent(table.explain(), "  "))
    lines += [f"as a function in DuckDB: {reason}" for reason in plan.reasons]
    prefixes = {stage.name.rpartition("_")[0] for stage in plan.stages}
    return [_without(line, prefixes) for line in lines]


def _without(line: str, prefixes: set[str]) -> str:
    """Leave out the number that tells one statement's stages from another's."""
    for prefix in prefixes:
        line = line.replace(prefix, "sem")
    return line


def _may_call(text: str) -> bool:
    lowered = text.lower()
    return "sem_filter" in lowered or "sem_map" in lowered
