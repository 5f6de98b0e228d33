"""DuckDB front end: SQL whose semantic calls are planned as pipelines."""

from __future__ import annotations

from semops.sql.connection import Connection, attach, explain_file, explain_sql

__all__ = ["Connection", "attach", "explain_file", "explain_sql"]
