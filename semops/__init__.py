"""Semantic queries on your own data, on your own machine.

Importing semops adds ``sem_filter``, ``sem_map`` and ``sem_join`` to Polars frames. Nothing is started
before the first query is collected.
"""

from __future__ import annotations

from semops.capacity_report import CapacityReport, capacity
from semops.errors import (
    CapacityError,
    ConfigError,
    EngineError,
    MissingExtraError,
    PlanError,
    SchemaError,
    SemopsError,
    TemplateError,
    UnsupportedError,
)
from semops.frames import explain, sem_filter, sem_join, sem_map
from semops.polars_methods import SemopsWarning, register
from semops.profile import Profile
from semops.session import close, configure, last_profile, options, profile

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
    "capacity",
    "close",
    "configure",
    "explain",
    "last_profile",
    "options",
    "profile",
    "sem_filter",
    "sem_join",
    "sem_map",
]

register()
