"""DuckDB connections with tables, and answers that are easy to predict, for tests."""

from __future__ import annotations

import semops

GOOD = "sem_filter('{review} is good', review)"
TOPIC = "sem_map('topic of {review}', review)"


def says(operator, instruction, row):
    """Say no to texts that end in 3; map a text into brackets."""
    text = str(next(iter(row.values())))
    return f"<{text}>" if operator == "sem_map" else not text.endswith("3")


def connected(rows=200, *, distinct=None, database=":memory:"):
    """Return a connection with the table t(id, g, review)."""
    import duckdb

    con = semops.attach(duckdb.connect(database))
    con.execute(
        "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, 'r' || (i % $distinct) AS review "
        "FROM range($rows) r(i)",
        {"rows": rows, "distinct": distinct or rows},
    )
    return con
