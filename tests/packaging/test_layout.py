"""What lies where, and what an installed semops brings along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "semops").rglob("*.py"))
LINE_LIMIT = 400
HEAVY = (
    "vllm",
    "torch",
    "transformers",
    "duckdb",
    "sqlglot",
    "ray",
    "sentence_transformers",
    "matplotlib",
)


def run(code: str, cwd: Path) -> str:
    """Run code in a fresh interpreter, away from the repository unless told."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_stays_small(module: Path) -> None:
    lines = len(module.read_text("utf-8").splitlines())
    assert lines <= LINE_LIMIT, f"{lines} lines: split it, a module holds one concept"


@pytest.mark.parametrize("name", ["planner", "engine"])
def test_link_points_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("semops", name)
    assert link.resolve() == ROOT / "semops" / name


def test_no_module_exists_twice(tmp_path: Path) -> None:
    """Neither link is importable where semops is installed, and semops names itself once."""
    out = run(
        "import importlib.util, sys, semops, semops.engine, semops.planner\n"
        "print([importlib.util.find_spec(n) for n in ('engine', 'planner')])\n"
        "print(sorted({n for n, m in sys.modules.items()\n"
        "    if (getattr(m, '__file__', None) or '').startswith(semops.__path__[0] + '/')\n"
        "    and not n.startswith('semops') and not n.startswith('_editable')}))\n",
        tmp_path,
    )
    assert out.splitlines() == ["[None, None]", "[]"]


def test_wheel_holds_only_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"semops"}
    assert "semops/py.typed" in names
    assert {f"semops/{path.relative_to(ROOT / 'semops')}" for path in MODULES} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_import_is_light(tmp_path: Path) -> None:
    """`import semops` loads no optional dependency, opens no socket and starts no process."""
    out = run(
        "import sys\n"
        "seen = []\n"
        "watched = ('socket.', 'subprocess.Popen', 'os.system', 'os.fork', 'os.posix_spawn')\n"
        "sys.addaudithook(lambda event, _: event.startswith(watched) and seen.append(event))\n"
        "import semops\n"
        "print(seen)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n",
        tmp_path,
    )
    assert out.splitlines() == ["[]", "[]"]
