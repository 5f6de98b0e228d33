"""Without DuckDB or sqlglot semops works, and says what is missing when SQL is wanted."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("missing", ["duckdb", "sqlglot"])
def test_missing_dependency(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import semops\n"
        "try:\n    semops.attach()\n"
        "except semops.MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.strip() == (
        f"semops.attach needs {missing}: pip install 'kalypso-semops[sql]'."
    )


def test_no_other_name_is_loaded_late():
    import semops

    with pytest.raises(AttributeError, match="no attribute 'sqlite'"):
        _ = semops.sqlite
