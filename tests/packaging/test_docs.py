"""Documentation that lists things lists all of them."""

from __future__ import annotations

import ast
import doctest
from pathlib import Path

import pytest

from semops.config import Settings
from semops.runtime.calibrate import CONTENT_FREE
from semops.testing import replay

ROOT = Path(__file__).parents[2]
MODULES = sorted(ROOT.glob("semops/**/*.py"))


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_module_is_in_structures(path):
    """Each module stands in docs/structures.md with the first sentence of its docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "a module says what it is for"
    first = " ".join(docstring.split("\n\n")[0].split())
    line = f"- `{path.relative_to(ROOT)}`: {first}"
    assert line in (ROOT / "docs/structures.md").read_text().splitlines()


def test_every_setting_is_documented():
    """Each setting stands in docs/settings.md with its description."""
    text = (ROOT / "docs/settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `{name}` | `SEMOPS_{name.upper()}` |" in text
        assert field.description in text


@pytest.mark.parametrize("page", ["answers.md", "sql.md"])
def test_examples_of_a_page_run(page):
    """A page's examples give what they say, with a function that says yes to all but empty rows."""

    def answer(operator, instruction, row):
        if operator == "sem_map":
            return "fine"
        return 0.5 if row["text"] in CONTENT_FREE else 0.9

    with replay(answer):
        path = str(ROOT / "docs" / page)
        done = doctest.testfile(path, module_relative=False, optionflags=doctest.ELLIPSIS)
    assert done.attempted > 5
    assert done.failed == 0
