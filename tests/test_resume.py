"""A run that was stopped asks only for what is missing, and never gets another request's answer."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

import semops
from semops.engine import answer_cache
from semops.errors import ConfigError
from semops.testing import Reply, replay

FRAME = pl.DataFrame({"id": range(60), "text": [f"row {i}" for i in range(60)]})


@pytest.fixture
def cache(tmp_path: Path):
    path = tmp_path / "answers.sqlite"
    with semops.options(cache=path):
        yield path


def answer(operator, instruction, row):
    return len(row["text"]) % 2 == 0 if operator == "sem_filter" else f"about {row['text']}"


def query() -> pl.LazyFrame:
    return FRAME.sem_filter("{text} is even").sem_map("Sum up {text}", "out")


def test_the_second_run_asks_nothing(cache: Path) -> None:
    with replay(answer) as first:
        expected = query().collect()
    with replay(answer) as second:
        assert query().collect().equals(expected)
    assert first.calls
    assert not second.calls
    assert semops.last_profile().operators["sem_filter"].restored == 60
    assert "answers kept by earlier runs: sem_filter 60" in str(semops.last_profile())


def test_without_the_option_nothing_is_kept(tmp_path: Path) -> None:
    with semops.options(cache=tmp_path / "a.sqlite"), semops.options(cache=False), replay(answer):
        query().collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "other",
    [
        lambda f: f.sem_map("Sum up {text}", "out", max_tokens=9),
        lambda f: f.sem_map("Sum up {text}", "out", temperature=0.5),
        lambda f: f.sem_map("Sum up {text}", "out", stop="x"),
        lambda f: f.sem_map("Sum up {text}", "out", schema=Literal["about row 1", "b"]),
        lambda f: f.sem_map("Sum up {text}", "out", prompt_style="raw"),
        lambda f: f.sem_map("Sum up {text}", "out", examples=[("x", "y")]),
        lambda f: f.sem_map("Sum up {text}!", "out"),
        lambda f: f.sem_filter("Sum up {text}", name="out"),
        lambda f: f.rename({"text": "b"}).sem_map("Sum up {b}", "out"),
    ],
    ids=[
        "tokens",
        "temperature",
        "stop",
        "schema",
        "style",
        "examples",
        "instruction",
        "filter",
        "name",
    ],
)
def test_no_false_hit(cache: Path, other) -> None:
    frame = FRAME.head(3)
    with replay(lambda *_: "first"):
        frame.sem_map("Sum up {text}", "out").collect()
    with replay(lambda operator, *_: True if operator == "sem_filter" else "b") as log:
        out = other(frame).collect()
    assert len(log.calls) == 3
    assert set(out["out"]) in ({"b"}, {True})


def test_another_model_has_other_answers(cache: Path) -> None:
    with replay(lambda *_: "first", model="a"):
        FRAME.sem_map("Sum up {text}", "out").collect()
    with replay(lambda *_: "second", model="b") as log:
        out = FRAME.sem_map("Sum up {text}", "out").collect()
    assert set(out["out"]) == {"second"}
    assert len(log.calls) == 60


def test_a_filter_and_a_map_of_the_same_instruction_are_two(cache: Path) -> None:
    with replay(answer):
        FRAME.sem_filter("{text} is even").collect()
    with replay(answer) as log:
        FRAME.sem_map("{text} is even", "out").collect()
    assert len(log.calls) == 60


def test_calibration_and_margins_decide_on_kept_answers(cache: Path) -> None:
    """They work on probabilities, so one kept answer serves all of them."""

    def chance(operator, instruction, row):
        return 0.8 if row["text"] in {"", "N/A", "…"} else 0.7

    frame = FRAME.with_columns(text=pl.concat_str(pl.lit("x"), "text"))
    with replay(chance):
        assert frame.sem_filter("{text} is even").collect().height == 60
    with replay(chance) as log:
        assert frame.sem_filter("{text} is even", calibrate=True).collect().height == 0
    assert len(log.calls) == 3


def test_errors_and_cut_offs_are_asked_again(cache: Path) -> None:
    def bad(operator, instruction, row):
        number = int(row["text"].split()[1])
        return [Reply(failure="no luck"), Reply("x " * 400, cut_off=True), "fine"][number % 3]

    with replay(bad), pytest.warns(semops.SemopsWarning):
        FRAME.sem_map("Sum up {text}", "out", max_tokens=8).collect()
    with replay(lambda *_: "good") as log:
        out = FRAME.sem_map("Sum up {text}", "out", max_tokens=8).collect()
    assert out["out"].to_list() == ["good", "good", "fine"] * 20
    assert len(log.calls) == 40


def test_an_engine_without_identity_is_told(cache: Path) -> None:
    from dataclasses import replace

    with replay(answer) as log:
        engine = log.engine.scheduler
        engine.capabilities = replace(engine.capabilities, identity="")
        with pytest.raises(ConfigError, match="nothing tells this model's weights"):
            query().collect()


RUN = """
import json, sys, time
import polars as pl, semops
from semops.testing import Reply, replay
frame = pl.DataFrame({"id": range(500), "text": [f"row {i}" for i in range(500)]})
log = open(sys.argv[2], "a")
def answer(operator, instruction, row):
    log.write(f"{operator} {row['text']}\\n"); log.flush()
    if operator == "sem_filter":
        return Reply(int(row["text"][4:]) % 3 > 0, 0.004)
    return Reply(f"about {row['text']}", 0.008)
with semops.options(cache=sys.argv[1]), replay(answer, max_running=16, kv_tokens=4096):
    print("ready", flush=True)
    out = frame.sem_filter("{text} is even").sem_map("Sum up {text}", "out").collect()
print(json.dumps(out.to_dicts()))
"""


@pytest.mark.parametrize("seed", range(int(os.environ.get("KILLS", "3"))))
def test_a_killed_run_asks_only_for_what_is_missing(tmp_path: Path, seed: int) -> None:
    cache, log = tmp_path / "answers.sqlite", tmp_path / "calls"
    command = [sys.executable, "-c", RUN, str(cache), str(log)]
    kills = 0
    draw = random.Random(seed)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0.05, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout.splitlines()[1])
    assert rows == [
        {"id": i, "text": f"row {i}", "out": f"about row {i}"} for i in range(500) if i % 3
    ]
    calls = log.read_text().splitlines()
    distinct = 500 + len(rows)
    assert len(set(calls)) == distinct
    assert len(calls) - distinct <= 16 * kills
    assert answer_cache.info(cache).answers == distinct


@pytest.mark.parametrize(
    ("word", "kept"),
    [("yes", True), (" 1", True), ("On", True), ("no", False), ("n", False), ("", False)],
)
def test_words_switch_it_on_and_off(word, kept, monkeypatch, tmp_path) -> None:
    from semops.config import Settings, cache_path

    monkeypatch.setenv("SEMOPS_CACHE", word)
    found = cache_path(Settings(cache_dir=tmp_path))
    assert found == (tmp_path / "answers.sqlite" if kept else None)


@pytest.mark.parametrize("cache", ["answers", 2, 0.5])
def test_what_is_neither_word_nor_file_is_told(cache) -> None:
    with pytest.raises(ConfigError, match="cache="), semops.options(cache=cache):
        pass


def test_a_cache_that_is_deleted_is_made_again(cache: Path) -> None:
    with replay(answer) as log:
        query().collect()
        once = len(log.calls)
        cache.unlink()
        query().collect()
        assert len(log.calls) == 2 * once
        query().collect()
        assert len(log.calls) == 2 * once
