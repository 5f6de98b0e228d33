"""Answers on disk: kept when they are whole, found only for the very same request."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import tempfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semops.engine import answer_cache
from semops.engine.answer_cache import AnswerCache
from semops.engine.plan import Answer, Finish
from semops.errors import ConfigError

ROOT: list[Path] = []


@pytest.fixture(autouse=True, scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> None:
    ROOT.append(tmp_path_factory.mktemp("caches"))


def whole(text: str = "Paris") -> Answer:
    return Answer(text, Finish.STOP, output_tokens=1, logprobs={7: -0.25, 9: -1.5})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "answers.sqlite"


@settings(deadline=None)
@given(st.text(), st.dictionaries(st.integers(0, 2**31), st.floats(-50, 0)))
def test_an_answer_comes_back_as_it_was(text: str, logprobs: dict[int, float]) -> None:
    cache = AnswerCache(Path(tempfile.mkdtemp(dir=ROOT[-1]), "a.sqlite"), "w")
    answer = Answer(text, Finish.STOP, output_tokens=3, logprobs=logprobs)
    cache.put(b"k", answer)
    for _ in range(2):  # before it is written, and after
        found = cache.get(b"k")
        assert found == answer
        cache.flush()
    cache.close()


def test_it_outlives_the_process(path: Path) -> None:
    first = AnswerCache(path, "w")
    first.put(b"k", whole())
    first.flush()
    # Not closed: as a killed process leaves it.
    assert AnswerCache(path, "w").get(b"k") == whole()
    first.close()


def test_other_weights_have_other_answers(path: Path) -> None:
    first = AnswerCache(path, "w")
    first.put(b"k", whole())
    first.flush()
    assert AnswerCache(path, "x").get(b"k") is None


@pytest.mark.parametrize("finish", [Finish.ERROR, Finish.LENGTH])
def test_what_failed_or_was_cut_off_is_not_kept(path: Path, finish: Finish) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", Answer("Par", finish))
    cache.flush()
    assert cache.get(b"k") is None
    assert answer_cache.info(path).answers == 0


def test_half_a_surrogate_is_not_kept(path: Path) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", whole("\ud800"))
    cache.flush()
    assert cache.get(b"k") is None
    assert not cache.problem


def test_only_its_owner_reads_it(path: Path) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", whole())
    cache.flush()
    files = sorted(file.name for file in path.parent.iterdir())
    assert files == ["answers.sqlite", "answers.sqlite-shm", "answers.sqlite-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    cache.close()


def test_it_stays_under_its_limit(path: Path) -> None:
    limit = 1 << 20
    cache = AnswerCache(path, "w", limit)
    for number in range(2_000):
        cache.put(str(number).encode(), whole("x" * 2_000))
        if number % 100 == 99:
            cache.flush()
    cache.close()
    found = answer_cache.info(path)
    assert found.bytes < 3 * limit  # the log of the last writes included
    assert 100 < found.answers < 600


def test_those_used_longest_ago_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "CHECK_EVERY", 1)
    monkeypatch.setattr(answer_cache, "_today", lambda: 100)
    cache = AnswerCache(path, "w", 1)
    cache.limit_bytes = 1 << 30
    for key in (b"old", b"used"):
        cache.put(key, whole())
    cache.flush()
    monkeypatch.setattr(answer_cache, "_today", lambda: 101)
    assert cache.get(b"used") is not None
    cache.flush()
    room = iter([2, 0])
    monkeypatch.setattr(answer_cache, "_used_bytes", lambda _: next(room))
    cache.limit_bytes = 1
    cache.put(b"new", whole())
    cache.flush()
    assert cache.get(b"old") is None
    assert cache.get(b"used") is not None


def test_clear_forgets_all(path: Path) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", whole())
    cache.flush()
    assert answer_cache.clear(path) == 1
    assert cache.get(b"k") is None
    assert answer_cache.clear(path.with_name("none")) == 0
    assert answer_cache.info(path.with_name("none")) is None


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 20, None])
def test_a_file_that_is_no_cache_is_told(path: Path, content: bytes | None) -> None:
    path.parent.mkdir()
    if content is None:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="no answer cache of this version"):
        AnswerCache(path, "w")


@pytest.mark.parametrize("name", ["file/answers.sqlite", ".", "a\0b.sqlite", "a\ud83d.sqlite"])
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't be opened"):
        AnswerCache(tmp_path / name, "w")


def test_weights_that_nothing_tells_from_others_are_told(path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing tells this model's weights from others"):
        AnswerCache(path, "")


def test_a_file_that_breaks_ends_its_use_and_nothing_else(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", whole())
    cache.flush()
    with sqlite3.connect(path) as other:
        other.execute("DROP TABLE answers")
    other.close()
    assert cache.get(b"k") is None
    assert "no such table" in cache.problem
    cache.put(b"l", whole())
    cache.flush()
    cache.close()
    assert len(caplog.records) == 1


def _fill(path: Path, start: int) -> None:
    cache = AnswerCache(path, "w")
    for number in range(start, start + 300):
        cache.put(str(number).encode(), whole(str(number)))
        if number % 10 == 0:
            cache.flush()
    cache.close()


def test_several_processes_write_at_once(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_fill, args=(path, start)) for start in (0, 200, 400)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    cache = AnswerCache(path, "w")
    assert all(cache.get(str(n).encode()) == whole(str(n)) for n in range(700))


def _open_many(folder: Path, start: Barrier, files: int) -> None:
    for number in range(files):
        start.wait(60)
        cache = AnswerCache(folder / f"{number}.sqlite", "w")
        cache.put(str(os.getpid()).encode(), whole())
        cache.close()


def test_several_processes_make_a_file_at_once(path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, files = spawn.Barrier(4), 50
    makers = [spawn.Process(target=_open_many, args=(path.parent, start, files)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
        assert maker.exitcode == 0
    found = [answer_cache.info(path.parent / f"{number}.sqlite") for number in range(files)]
    assert [one and one.answers for one in found] == [4] * files


def test_another_program_s_database_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE answers (key TEXT, text TEXT)")
        other.execute("INSERT INTO answers VALUES ('a', 'precious')")
    other.close()
    before = path.read_bytes()
    for attempt in (lambda: AnswerCache(path, "w"), lambda: answer_cache.info(path)):
        with pytest.raises(ConfigError, match="it is another database"):
            attempt()
    with pytest.raises(ConfigError, match="it is another database"):
        answer_cache.clear(path)
    assert path.read_bytes() == before


def test_a_file_that_is_gone_is_noticed(path: Path) -> None:
    cache = AnswerCache(path, "w")
    assert cache.usable
    path.unlink()
    assert not cache.usable
    second = AnswerCache(path, "w")
    assert second.usable
    assert not cache.usable


def test_a_held_file_puts_writing_off(path: Path) -> None:
    cache = AnswerCache(path, "w")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    cache.put(b"k", whole())
    cache.flush()
    assert not cache.problem
    assert cache.get(b"k") == whole()
    assert answer_cache.info(path).answers == 0  # reading needs no lock
    other.execute("COMMIT")
    other.close()
    cache.flush()
    assert answer_cache.info(path).answers == 1
    cache.close()


def test_a_damaged_answer_is_asked_for_again(path: Path) -> None:
    cache = AnswerCache(path, "w")
    cache.put(b"k", whole())
    cache.flush()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE answers SET logprobs = '[[1'")
    other.close()
    assert cache.get(b"k") is None
    assert not cache.problem
