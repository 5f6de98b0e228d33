"""The functions registered in DuckDB: what runs where a statement isn't planned.

DuckDB calls them with a vector of rows on any of its threads. Each vector becomes a small frame that runs
through the same planner and engine as every other; what was answered before is not asked again.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import duckdb
import polars as pl
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from semops import session
from semops.engine.demand import Wanted
from semops.errors import SchemaError, SemopsWarning
from semops.planner.ir import Project
from semops.planner.polars_reader import outermost, read
from semops.planner.sql_calls import check_options, split_options
from semops.planner.sql_options import OPERATORS
from semops.polars_source import start
from semops.sql.failures import kept
from semops.sql.gather import interruptible
from semops.sql.operators import asked
from semops.template import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.operators import Operator
    from semops.planner.ir import Node
    from semops.sql.gather import Running
    from semops.sql.stage_table import Memos

TYPES = {"sem_filter": "BOOLEAN", "sem_map": "VARCHAR"}
ARROW = {"sem_filter": pa.bool_(), "sem_map": pa.string()}
HUGEINT = pa.decimal128(38, 0)
"""How DuckDB hands over HUGEINT, whose largest values Polars' decimals can't hold."""
LIMIT = 262_144
"""Answers kept a connection; the oldest go first."""


class Answers:
    """Answers of a connection's functions, by engine, operator and arguments."""

    def __init__(self) -> None:
        self._by_engine: WeakKeyDictionary[Any, dict[Operator, dict[Any, Any]]] = (
            WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    def of(self, operator: Operator) -> dict[Any, Any]:
        """Return an operator's answers by the engine in force, which is started if need be."""
        engine = session.engine()
        with self._lock:
            return self._by_engine.setdefault(engine, {}).setdefault(operator, {})

    def store(self, answers: dict[Any, Any], new: dict[Any, Any]) -> None:
        """Keep answers; NULL is none."""
        with self._lock:
            answers.update((key, value) for key, value in new.items() if value is not None)
            for key in list(itertools.islice(answers, max(len(answers) - LIMIT, 0))):
                del answers[key]


class Function:
    """One semantic function.

    Parameters
    ----------
    operator
        ``sem_filter`` or ``sem_map``.
    memos
        Answers that queries running at one time share.
    running
        The semantic queries of the connection.
    """

    def __init__(self, operator: str, memos: Memos, running: Running) -> None:
        self._operator = operator
        self._memos = memos
        self._running = running
        self._answers = Answers()

    def __call__(self, *columns: Any) -> pa.Array:
        """Answer a vector of rows; called by DuckDB."""
        with kept():
            return self._answer(*columns)

    def _answer(self, *columns: Any) -> pa.Array:
        instructions, *arguments = columns
        found: list[Any] = [None] * len(instructions)
        for instruction, rows in _by_value(instructions.to_pylist()):
            if instruction is None:
                continue
            placeholders = parse(instruction).columns
            data, options = split_options(self._operator, instruction, placeholders, arguments)
            groups = [(None, rows)] if options is None else _by_value(options.to_pylist(), rows)
            for given, same in groups:
                checked = {} if given is None else check_options(given)
                frame = _frame(placeholders, data, same, len(instructions))
                answers = self._ask(frame, instruction, checked)
                for row, answer in zip(same, answers, strict=True):
                    found[row] = answer
        return pa.array(found, ARROW[self._operator])

    def _ask(self, frame: pl.DataFrame, instruction: str, options: dict[str, Any]) -> list[Any]:
        """Return the answers for rows that share an instruction and options."""
        column = "answer"
        while column in frame.columns:
            column += "_"

        def source(rows: pl.DataFrame) -> Any:
            lazy = asked(rows.lazy(), self._operator, instruction, options, column)
            return outermost(lazy)[0]

        answers = self._answers.of(source(frame.clear()).operator)
        keys = list(zip(*(map(_hashable, series.to_list()) for series in frame), strict=True))
        known = {key: answers[key] for key in set(keys) if key in answers}
        missing: dict[Any, int] = {}
        for row, key in enumerate(keys):
            if key not in known:
                missing.setdefault(key, row)
        if missing:
            node = Project(read(source(frame[list(missing.values())])), (column,))
            new = dict(zip(missing, self._run(node, column), strict=True))
            self._answers.store(answers, new)
            known.update(new)
        return [known[key] for key in keys]

    def _run(self, node: Node, column: str) -> list[Any]:
        query = start(node, self._memos.current(), Wanted(everything=True))
        found: list[Any] = []
        try:
            for rows in interruptible(query, query.frames(), self._running):
                if rows.height:
                    found += rows.get_column(column).to_list()
        finally:
            profile = query.finish()
            session.record(profile)
        if profile.warning() is not None:
            # One text for all vectors, so that Python shows it once.
            warnings.warn(
                f"some answers of {self._operator} in DuckDB are NULL; with semops.profile() as p: ... "
                f'tells how many and why, {{"on_error": "raise"}} stops at the first.',
                SemopsWarning,
                stacklevel=2,
            )
        return found


def register(connection: duckdb.DuckDBPyConnection, memos: Memos, running: Running) -> None:
    """Add the functions to a database, unless it has them."""
    names = connection.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name IN ('sem_filter', 'sem_map')"
    ).fetchall()
    for operator in OPERATORS:
        if (operator,) not in names:
            connection.create_function(
                operator,
                Function(operator, memos, running),
                None,  # any number of arguments
                duckdb.sqltype(TYPES[operator]),
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )


def _by_value(
    values: list[Any], rows: Sequence[int] | None = None
) -> list[tuple[Any, Sequence[int]]]:
    """Group rows by their value; nearly always it is one."""
    chosen = range(len(values)) if rows is None else rows
    if not chosen:
        return []
    first = values[chosen[0]]
    if all(values[row] == first for row in chosen):
        return [(first, chosen)]
    found: dict[str, tuple[Any, list[int]]] = {}
    for row in chosen:
        found.setdefault(repr(values[row]), (values[row], []))[1].append(row)
    return list(found.values())


def _frame(
    names: Sequence[str], columns: Sequence[Any], rows: Sequence[int], height: int
) -> pl.DataFrame:
    """Return some rows of the arguments as a frame."""
    series = []
    for name, column in zip(names, columns, strict=True):
        part = column if len(rows) == height else column.take(pa.array(rows))
        if part.type == HUGEINT:
            part = part.cast(pa.string())
        try:
            data = pl.from_arrow(part)
        except pl.exceptions.ComputeError:
            msg = f"the argument for {{{name}}} has no text form; cast it first: value::VARCHAR."
            raise SchemaError(msg) from None
        assert isinstance(data, pl.Series)  # noqa: S101 - a column gives one
        series.append(data.alias(name))
    return pl.DataFrame(series)


def _hashable(value: Any) -> Any:
    """Return what stands for a value in a key; 1, 1.0 and True are three."""
    return value if isinstance(value, str) or value is None else (type(value).__name__, repr(value))
