"""The DuckDB front end's tests need its extra."""

from __future__ import annotations

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
