"""DuckDB's SQL as the planner reads and writes it: a function keeps its name and its arguments.

sqlglot knows what several hundred functions mean in other databases. It renames them, and drops an argument that it
has no place for. The planner needs only those that decide whether something is asked.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.parsers.duckdb import DuckDBParser

DECIDING = frozenset({"COALESCE", "IF"})
OF_WINDOWS = frozenset({"LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"})
"""Functions that may be followed by IGNORE NULLS."""
WITH_WORDS = frozenset({"CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY"})
"""Functions with words or commas of their own kind inside."""


class SemopsDuckDB(DuckDB):
    """DuckDB's dialect, functions left as they are written."""

    DATE_PART_MAPPING: ClassVar[dict[str, str]] = {}  # type: ignore[misc]

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leave the right side of an arrow as it is: 'a.b' is one key to DuckDB."""
        return path

    class Parser(DuckDBParser):
        """Reads most functions as names with arguments."""

        FUNCTIONS: ClassVar = {
            name: build
            for name, build in DuckDBParser.FUNCTIONS.items()
            if name in DECIDING | OF_WINDOWS
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in DuckDBParser.FUNCTION_PARSERS.items()
            if name in WITH_WORDS
        }
        NO_PAREN_FUNCTIONS: ClassVar = {}

    class Generator(DuckDBGenerator):
        """Writes ``string_agg(DISTINCT x, ',')`` as it is."""

        MULTI_ARG_DISTINCT = True


DIALECT = SemopsDuckDB
