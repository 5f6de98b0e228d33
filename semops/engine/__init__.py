"""The engine: scheduler, ledger and backends; it never sees a dataframe, a plan node or SQL."""

from __future__ import annotations
