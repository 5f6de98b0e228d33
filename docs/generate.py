"""Write docs/structures.md and docs/settings.md from the code: ``python docs/generate.py``."""

from __future__ import annotations

import ast
from pathlib import Path

from semops.config import ENGINE_FIELDS, OPTION_FIELDS, Settings

DOCS = Path(__file__).parent

STRUCTURES = """# Modules

One line each, from their own docstrings; written by `docs/generate.py`, checked by a test.

"""
SETTINGS = """# Settings

Explicit argument over environment over default. `semops.configure(...)` sets them for the process;
`with semops.options(...)` sets those marked for a block. Settings of the engine can't change while it runs:
call `semops.close()` first.

| setting | environment | default | change | meaning |
|---|---|---|---|---|
"""


def structures() -> str:
    """Return one line a module."""
    lines = []
    for path in sorted((DOCS.parent / "semops").rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = " ".join(docstring.split("\n\n")[0].split())
        lines.append(f"- `{path.relative_to(DOCS.parent)}`: {first}\n")
    return STRUCTURES + "".join(lines)


def settings() -> str:
    """Return one row a setting."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = f"`{field.default}`" if name == "cache_dir" else f"`{field.default!r}`"
        when = "any time"
        if name in OPTION_FIELDS:
            when = "`options` too"
        elif name in ENGINE_FIELDS:
            when = "before the engine starts"
        variable = f"`SEMOPS_{name.upper()}`"
        rows.append(f"| `{name}` | {variable} | {default} | {when} | {field.description} |\n")
    return SETTINGS + "".join(rows)


if __name__ == "__main__":
    (DOCS / "structures.md").write_text(structures())
    (DOCS / "settings.md").write_text(settings())
