"""Semantic queries on your own data, on your own machine.

Importing semops adds ``sem_filter``, ``sem_map`` and ``sem_join`` to Polars frames. Nothing is started
before the first query is collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semops.capacity_report import CapacityReport, capacity
from semops.errors import (
    CapacityError,
    ConfigError,
    EngineError,
    MissingExtraError,
    PlanError,
    SchemaError,
    SemopsError,
    SemopsWarning,
    TemplateError,
    UnsupportedError,
)
from semops.frames import explain, sem_filter, sem_join, sem_map
from semops.polars_methods import register
from semops.profile import Profile
from semops.session import close, configure, last_profile, options, profile

if TYPE_CHECKING:
    from semops.sql import attach, explain_sql

__version__ = "0.1.0"

__all__ = [
    "CapacityError",
    "CapacityReport",
    "ConfigError",
    "EngineError",
    "MissingExtraError",
    "PlanError",
    "Profile",
    "SchemaError",
    "SemopsError",
    "SemopsWarning",
    "TemplateError",
    "UnsupportedError",
    "attach",
    "capacity",
    "close",
    "configure",
    "explain",
    "explain_sql",
    "last_profile",
    "options",
    "profile",
    "sem_filter",
    "sem_join",
    "sem_map",
]

_SQL = ("attach", "explain_sql")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Load the DuckDB front end when it is first used: its dependencies are optional."""
    if name not in _SQL:
        msg = f"module 'semops' has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        from semops import sql
    except ModuleNotFoundError as error:
        if error.name not in {"duckdb", "sqlglot"}:
            raise
        msg = f"semops.{name} needs {error.name}: pip install 'kalypso-semops[sql]'."
        raise MissingExtraError(msg) from error
    return getattr(sql, name)


register()
