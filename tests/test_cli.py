"""The command ``semops``."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

import semops
from semops import doctor
from semops.cli import app
from semops.engine.answer_cache import AnswerCache
from semops.engine.plan import Answer, Finish
from semops.testing import replay

SCRIPT = """
import polars as pl, semops
frame = pl.DataFrame({"text": ["a"]}).sem_filter("{text} is kind")
def made():
    return frame.sem_map("Shorten {text}", "short")
number = 3
"""


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "query.py"
    path.write_text(SCRIPT)
    return path


def test_explain_shows_a_frame_or_what_a_function_gives(script: Path) -> None:
    code, text = run("explain", f"{script}:frame")
    assert code == 0
    assert 'sem_filter "{text} is kind"  reads text' in text
    assert "sem_map:short" in run("explain", f"{script}:made")[1]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py:frame", "neither SQL nor FILE.py:NAME"),
        ("{script}", "neither SQL nor FILE.py:NAME"),
        ("{script}:other", "Lazy frames there: frame"),
        ("{script}:number", "is a int, not a lazy frame"),
    ],
)
def test_explain_says_what_is_wrong(script: Path, target: str, message: str) -> None:
    code, text = run("explain", target.format(script=script))
    assert code == 2
    assert message in text


def test_cache_info_and_clear(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    assert "no answers are kept" in run("cache", "info", "--path", str(path))[1]
    cache = AnswerCache(path, "w")
    cache.put(b"k", Answer("x", Finish.STOP))
    cache.close()
    assert ": 1 answers," in run("cache", "info", "--path", str(path))[1]
    assert "1 answers deleted" in run("cache", "clear", "--path", str(path))[1]
    assert ": 0 answers," in run("cache", "info", "--path", str(path))[1]
    path.with_name("text").write_text("no cache" * 200)
    assert run("cache", "info", "--path", str(path.with_name("text")))[0] == 2


def test_doctor_looks_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMOPS_MODLE", "x")
    with replay(lambda *_: "fine"):
        found = {check.name: check for check in doctor.checks()}
    assert {"semops", "Polars", "vLLM", "GPU", "model", "answer cache", "DuckDB"} <= found.keys()
    assert found["SEMOPS_MODLE"] == ("SEMOPS_MODLE", "is no setting", False, "Is it SEMOPS_MODEL?")
    if found["vLLM"].ok:
        assert found["prefix reuse"].ok
        assert found["pinning"].found == "explicit"


def test_doctor_says_why_pins_are_virtual() -> None:
    with replay(lambda *_: "fine", pinning="virtual"):
        found = {check.name: check for check in doctor.checks()}
    if "pinning" in found:
        assert found["pinning"].found == "virtual"
        assert found["pinning"].advice


def test_doctor_fails_where_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> bool:
        raise semops.MissingExtraError("needs vLLM. Install it: pip install x.")

    monkeypatch.setattr(doctor.vllm_process, "installed_for_cpu", missing)
    code, text = run("doctor", "--no-start")
    assert code == 1
    assert "NO  vLLM: not usable\n    needs vLLM. Install it: pip install x." in text


def test_capacity_says_how_many_engines(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("prompt_tokens,output_tokens\n1000,100\n500,50\n")
    here = ["--kv-tokens", "50000", "--step-s", "0.02"]
    code, text = run(
        "capacity", str(path), *here, "--rate", "100", "--plot", str(tmp_path / "q.png")
    )
    assert code == 0
    assert "sustained:" in text
    assert "engines for 100 requests/s:" in text
    assert (tmp_path / "q.png").stat().st_size > 1_000
    path.write_text("a,b\n1,2\n")
    assert run("capacity", str(path), *here)[0] == 2
    assert run("capacity", str(tmp_path / "none"), *here)[0] == 2


def test_explain_takes_a_statement(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id, 'x' AS text")
    statement = "SELECT id FROM t WHERE sem_filter('{text} is kind', text) AND id > 0"
    code, text = run("explain", statement, "--database", str(path))
    assert code == 0
    assert "WHERE id > 0" in text
    assert "DuckDB: SELECT 1" in run("explain", "SELECT 1")[1]
    assert run("explain", "SELEC 1", "--database", str(path))[0] == 2
    assert run("explain", statement, "--database", str(tmp_path / "none"))[0] == 2


def test_attach_takes_connections_only() -> None:
    with pytest.raises(semops.ConfigError, match=r"duckdb.connect\('x.db'\)"):
        semops.attach("x.db")
