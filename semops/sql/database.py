"""What the SQL reader asks of DuckDB for one statement, and the stages that it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from semops.planner.sql_calls import Column, Unplanned
from semops.planner.sql_parameters import used
from semops.planner.sql_stage import Pair
from semops.sql.operators import allowed_options
from semops.sql.pushdown import source_of
from semops.sql.scan import Scan
from semops.sql.stage_table import Memos, StageTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.planner.sql_stage import Base, Stage
    from semops.sql.caller import Caller
    from semops.sql.gather import Running

_STATE = """
SELECT txid_current(), (SELECT count(*) FROM duckdb_variables())
    + (SELECT count(*) FROM duckdb_functions() WHERE database_name = 'temp' AND NOT internal)
    + (SELECT count(*) FROM duckdb_types() WHERE database_name = 'temp' AND NOT internal)
    + (SELECT count(*) FROM duckdb_sequences() WHERE temporary),
    (SELECT count(*) FROM duckdb_views() WHERE NOT internal AND NOT temporary)
    + (SELECT count(*) FROM duckdb_functions()
        WHERE NOT internal AND function_type IN ('macro', 'table_macro')),
    (SELECT list(table_name) FROM duckdb_tables() WHERE temporary),
    (SELECT list(view_name) FROM duckdb_views() WHERE temporary AND NOT internal)
"""
_SETTINGS = "SELECT name, value FROM duckdb_settings() WHERE scope = 'LOCAL' AND value IS NOT NULL"
_FUNCTIONS = """
SELECT lower(function_name), CASE WHEN stability = 'VOLATILE' THEN 'volatile' WHEN function_name = 'unnest' THEN 'rows'
    ELSE function_type END, coalesce(macro_definition, '')
FROM duckdb_functions()
WHERE function_type IN ('aggregate', 'window', 'macro') OR stability = 'VOLATILE' OR function_name = 'unnest'
"""
_CALLED = re.compile(r'(\w+)"?\s*\(')
_PARSED = """
SELECT json_serialize_sql(?::VARCHAR, skip_null := true, skip_empty := true, skip_default := true)
"""


@dataclass(frozen=True, slots=True)
class Session:
    """What a cursor of a connection doesn't share with it."""

    own: frozenset[str] | None
    """Temporary tables and views; None in an open transaction, with variables or other temporary objects, where
    all is its own."""
    settings: Mapping[str, str]

    def must_stay(self, query: str) -> bool:
        """Return whether a query has to run on the connection itself."""
        if self.own is None:
            return True
        lowered = query.lower()
        return any(name in lowered for name in self.own)


def session_of(connection: duckdb.DuckDBPyConnection, *, supersede: bool) -> Session:
    """Look at a connection's session.

    Parameters
    ----------
    connection
        The connection.
    supersede
        Whether rows of an earlier ``execute`` that nobody fetched may be dropped, as the next one does.
    """

    def rows(query: str) -> list[tuple[Any, ...]]:
        return (connection.execute if supersede else connection.sql)(query).fetchall()

    first, special, indirect, tables, views = rows(_STATE)[0]
    (second,) = rows("SELECT txid_current()")[0]
    cursor = connection.cursor()
    try:
        theirs = dict(cursor.execute(_SETTINGS).fetchall())
    finally:
        cursor.close()
    ours = dict(rows(_SETTINGS))
    settings = {
        name: value
        for name, value in ours.items()
        if theirs.get(name) != value and name.lower() != "schema"  # part of the search path
    }
    own = [*(tables or []), *(views or [])]
    # A view or a macro may name one of them, and not every name can be found in a text for sure.
    hidden = bool(own) and (indirect or any(not name.isascii() or '"' in name for name in own))
    if first == second or special or hidden:
        return Session(None, settings)
    return Session(frozenset(name.lower() for name in own), settings)


class StatementDatabase:
    """A connection as one statement sees it.

    Parameters
    ----------
    connection
        Runs the statement.
    caller
        Variables that it names; stages are added to them.
    values
        Its parameters by name.
    running
        The connection's semantic queries.
    supersede
        As in :func:`session_of`.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        caller: Caller,
        values: Mapping[str, Any],
        running: Running,
        *,
        supersede: bool,
    ) -> None:
        self._connection = connection
        self.caller = caller
        self.values = values
        self._running = running
        self._memos = Memos()
        self._tables: dict[str, StageTable] = {}
        self._session = session_of(connection, supersede=supersede)
        self._effects: dict[str, frozenset[str]] | None = None

    def describe(self, query: str, values: Any = None) -> list[Column]:
        """Return the columns of a query.

        Parameters
        ----------
        query
            Is bound only: a relation over it would run, and so advance, a sequence.
        values
            Its parameters' values, if they are not the statement's.
        """
        given = used(query, self.values) if values is None else values
        try:
            described = self.caller.call(self._connection.sql, f"DESCRIBE {query}", params=given)
            rows = described.fetchall()
        except duckdb.Error as error:
            raise Unplanned(f"DuckDB can't run its part alone: {first_line(error)}") from None
        return [Column(name, dtype) for name, dtype, *_ in rows]

    def constant(self, expression: str) -> Any:
        """Return the value of a constant expression."""
        cursor = self._connection.cursor()
        query = f"SELECT {expression}"
        try:
            row = cursor.execute(query, used(query, self.values)).fetchone()
        except duckdb.Error as error:
            raise Unplanned(f"{expression} has no value of its own: {first_line(error)}") from None
        finally:
            cursor.close()
        return None if row is None else row[0]

    def parsed(self, query: str) -> str:
        """Return the tree that DuckDB parses a query into, as JSON."""
        cursor = self._connection.cursor()
        try:
            (tree,) = cursor.execute(_PARSED, [query]).fetchall()[0]
        finally:
            cursor.close()
        return str(tree)

    def effects(self, function: str) -> frozenset[str]:
        """Return what a function does beyond one value a row, as :class:`Catalog` has it."""
        if self._effects is None:
            self._effects = effects_of(self._connection.sql(_FUNCTIONS).fetchall())
        return self._effects.get(function, frozenset())

    def add(self, stage: Stage) -> None:
        """Make a stage known under its name, so that queries over it can be described."""
        for step in stage.steps:
            if isinstance(step, Pair):
                other = set(dict(step.call.options)) - set(allowed_options("sem_join"))
                if other:
                    raise Unplanned(f"a semantic join has no option {', '.join(sorted(other))}")
        bases = [stage.base] if stage.right is None else [stage.base, stage.right]
        scans = [self._scan(base) for base in bases]
        table = StageTable(stage, scans, self._memos, self._running)
        self._tables[stage.name] = table
        self.caller.tables[stage.name] = source_of(table)

    def remove(self, stage: Stage) -> None:
        """Forget a stage."""
        self._tables.pop(stage.name, None)
        self.caller.tables.pop(stage.name, None)

    def tables(self) -> list[StageTable]:
        """Return the stages, those first that others read."""
        return list(self._tables.values())

    def load_own(self) -> None:
        """Run at once what only the connection itself can see."""
        for table in self.tables():
            if any(scan.own for scan in table.scans):
                table.load()

    def share(self, memos: Memos) -> None:
        """Let the stages share answers with calls that run as functions in DuckDB."""
        for table in self.tables():
            table.memos = memos

    def _scan(self, base: Base) -> Scan:
        return Scan(
            self._connection,
            self._session.settings,
            self.caller,
            base.query,
            self.values,
            base.columns,
            own=self._session.must_stay(base.query),
        )


def check_columns(expected: list[Column], found: list[Column]) -> None:
    """Check that a planned statement gives the columns of the statement as it was written.

    Raises
    ------
    Unplanned
        If it doesn't.
    """
    for before, after in zip(expected, found, strict=True):
        if before != after:
            raise Unplanned(f"a column would be {after}, not {before}")


def effects_of(functions: list[tuple[str, str, str]]) -> dict[str, frozenset[str]]:
    """Return the effects of functions by name; a macro has those of what it calls.

    Examples
    --------
    >>> effects_of(
    ...     [("sum", "aggregate", ""), ("one", "macro", "1"), ("twice", "macro", "(2 * sum(x))")]
    ... )
    {'sum': frozenset({'aggregate'}), 'one': frozenset(), 'twice': frozenset({'aggregate'})}
    """
    found: dict[str, set[str]] = {}
    called: dict[str, set[str]] = {}
    for name, kind, definition in functions:
        effects = found.setdefault(name, set())
        if kind != "macro":
            effects.add(kind)
        # What stands in a subquery happens there.
        elif not definition.startswith("(SELECT "):
            called.setdefault(name, set()).update(_CALLED.findall(definition.lower()))
            if " OVER " in definition:
                effects.add("window")
    changed = True
    while changed:
        changed = False
        for name, others in called.items():
            new = set().union(*(found.get(other, ()) for other in others)) - found[name]
            found[name] |= new
            changed |= bool(new)
    return {name: frozenset(effects) for name, effects in found.items()}


def first_line(error: BaseException) -> str:
    """Return the first line of a message."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
