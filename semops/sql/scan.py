"""DuckDB queries as Polars frames: pulled in small batches, on a connection of their own or at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from polars.io.plugins import register_io_source

from semops.planner.sql_parameters import used

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb

    from semops.sql.caller import Caller

BATCH_ROWS = 2_048
"""Rows of a batch: one vector of DuckDB."""
PAID_ROWS = 16
"""The same where each row was asked about."""


class Scan:
    """A query that is run each time that it is pulled.

    Parameters
    ----------
    connection
        Cursors are made of it, so that it is free meanwhile.
    settings
        Settings of the connection that its cursors don't inherit.
    caller
        Variables that the query names.
    query
        What to run.
    values
        Parameters.
    columns
        What its columns are called.
    own
        Whether only the connection itself sees what the query names.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        settings: Mapping[str, str],
        caller: Caller,
        query: str,
        values: Mapping[str, Any],
        columns: tuple[str, ...],
        *,
        own: bool,
    ) -> None:
        self.own = own
        self._connection = connection
        self._settings = settings
        self._caller = caller
        self._query = query
        self._values = values
        self._columns = columns
        self._open: list[duckdb.DuckDBPyConnection] = []

    def relation(
        self, connection: duckdb.DuckDBPyConnection | None = None, *, rows: bool = True
    ) -> tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyRelation]:
        """Return the query as a relation, and the connection that it runs on: a new cursor if none is given."""
        if connection is None:
            connection = self._connection.cursor()
            for name, value in self._settings.items():
                connection.execute(f'SET "{name}" = $value', {"value": value})
        values = used(self._query, self._values)
        # DuckDB runs a query that advances a sequence as soon as it is a relation.
        query = self._query if rows else f"SELECT * FROM ({self._query}) LIMIT 0"  # noqa: S608
        return connection, self._caller.call(connection.sql, query, params=values)

    def schema(self) -> pl.Schema:
        """Return names and types; no row is computed."""
        connection, relation = self.relation(self._connection if self.own else None, rows=False)
        try:
            table = relation.to_arrow_table()
        finally:
            if not self.own:
                connection.close()
        return self._named(table).schema

    def collect(self) -> pl.DataFrame:
        """Run the query on the connection itself, where temporary tables and open transactions are seen."""
        _, relation = self.relation(self._connection)
        return self._named(relation.to_arrow_table())

    def lazy(self) -> pl.LazyFrame:
        """Return the query as a lazy frame."""
        return register_io_source(self, schema=self.schema(), explain_name="duckdb")

    def __call__(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,  # noqa: ARG002 - a vector of DuckDB is what comes at once
    ) -> Iterator[pl.DataFrame]:
        """Run the query; called by Polars."""
        cursor, relation = self.relation()
        self._open.append(cursor)
        if n_rows is not None:
            relation = relation.limit(n_rows)
        paid = self._caller.reads_answers(self._query)
        reader = relation.to_arrow_reader(PAID_ROWS if paid else BATCH_ROWS)
        try:
            for batch in reader:
                frame = self._named(batch)
                if with_columns is not None:
                    frame = frame.select(with_columns)
                yield frame if predicate is None else frame.filter(predicate)
        finally:
            self._open.remove(cursor)
            reader.close()
            cursor.close()

    def stop(self) -> None:
        """Stop what is running; Polars may hold on to it for a while."""
        for cursor in list(self._open):
            cursor.interrupt()

    def _named(self, data: Any) -> pl.DataFrame:
        frame = pl.from_arrow(data)
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - tables and batches give frames
        frame.columns = list(self._columns)
        return frame
