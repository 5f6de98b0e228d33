"""Settings, options for a block, profiles, and the life of the engine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import semops
from semops import session
from semops.config import ENGINE_FIELDS, OPTION_FIELDS, Settings
from semops.engine.backends.replay import ReplayBackend, Reply
from semops.engine.models import resolve
from semops.errors import ConfigError, EngineError
from semops.testing import replay

FRAME = pl.DataFrame({"text": ["a", "b"]})


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start from default settings, and give back what was there."""
    monkeypatch.setattr(session, "_settings", None)
    monkeypatch.setattr(session, "_engine", None)
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SEMOPS_{name.upper()}", raising=False)
    yield
    semops.close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[ReplayBackend]:
    """Let the process's own engine be a replay, and list those that were started."""
    backends: list[ReplayBackend] = []

    def start(current: Settings) -> ReplayBackend:
        backends.append(ReplayBackend(lambda *_: True))
        return backends[-1]

    monkeypatch.setattr(session, "_start_vllm", start)
    return backends


def test_settings_add_up_and_defaults_stay() -> None:
    semops.configure(kv_memory="2GiB")
    semops.configure(prompt_style="raw")
    settings = session.settings()
    assert (settings.kv_memory, settings.prompt_style) == (2 * 2**30, "raw")
    assert settings.executor == "pipelined"


def test_an_argument_wins_over_the_environment_and_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEMOPS_EXECUTOR", "blocking")
    monkeypatch.setenv("SEMOPS_KV_TOKENS", "1024")
    semops.configure(kv_tokens=2_048)
    assert session.settings().executor == "blocking"
    assert session.settings().kv_tokens == 2_048


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1024", 1_024), ("2 KiB", 2_048), ("1.5MB", 1_500_000), ("3g", 3 * 10**9), (7, 7)],
)
def test_sizes_may_have_units(size: Any, expected: int) -> None:
    semops.configure(kv_memory=size)
    assert session.settings().kv_memory == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, r"'colour' is no setting; there are .*executor.*prompt_style"),
        ({"executor": "fast"}, r"executor='fast'.*'pipelined' or 'blocking'"),
        ({"kv_memory": "much"}, r"kv_memory='much'.*'2GiB'"),
        ({"kv_tokens": 0}, r"kv_tokens=0.*greater than or equal to 1.*in tokens"),
        ({"controller": "x"}, r"controller='x'.*'demand'"),
        ({"controller": "my demand"}, r"controller='my demand'.*'demand'"),
        ({"kv_memory": 0}, r"kv_memory=0.*greater than or equal to 1"),
        ({"kv_memory": "0 GiB"}, r"kv_memory.*greater than or equal to 1"),
        ({"model": ""}, r"model=''.*at least 1 character"),
    ],
)
def test_a_wrong_setting_is_an_error_that_lists_what_is_allowed(
    changes: dict[str, Any], message: str
) -> None:
    before = session.settings()
    with pytest.raises(ConfigError, match=message):
        semops.configure(**changes)
    assert session.settings() == before


def test_a_wrong_environment_variable_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEMOPS_EXECUTOR", "fast")
    with pytest.raises(ConfigError, match=r"executor='fast'.*'pipelined' or 'blocking'"):
        session.settings()


def test_an_empty_environment_variable_is_as_if_it_were_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEMOPS_KV_TOKENS", "")
    monkeypatch.setenv("SEMOPS_MODEL", "")
    assert session.settings().kv_tokens is None
    assert session.settings().model is None


def test_options_hold_for_a_block_and_nest() -> None:
    with semops.options(executor="blocking", on_error="raise"):
        with semops.options(executor="pipelined"):
            assert session.settings().executor == "pipelined"
            assert session.settings().on_error == "raise"
        assert session.settings().executor == "blocking"
    assert session.settings().executor == "pipelined"


def test_equal_options_nest_too() -> None:
    with semops.options(executor="blocking"):
        with semops.options(executor="pipelined"):
            with semops.options(executor="blocking"):
                pass
            assert session.settings().executor == "pipelined"
        assert session.settings().executor == "blocking"


def test_options_end_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), semops.options(executor="blocking"):
        raise ZeroDivisionError
    assert session.settings().executor == "pipelined"


@pytest.mark.parametrize("name", sorted(ENGINE_FIELDS))
def test_what_the_engine_is_can_not_be_an_option(name: str) -> None:
    allowed = ", ".join(sorted(OPTION_FIELDS))
    with (
        pytest.raises(
            ConfigError, match=rf"{name} can't be set for a block; options takes {allowed}"
        ),
        semops.options(**{name: None}),
    ):
        pass


def test_a_wrong_option_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'pipelined' or 'blocking'"), semops.options(executor=1):
        pass
    assert session.settings().executor == "pipelined"


def test_options_are_taken_when_an_operator_is_built() -> None:
    with semops.options(prompt_style="raw", on_error="raise"):
        built = FRAME.sem_filter("{text} is kind")
    assert "raw style" in semops.explain(built)
    assert "raw style" not in semops.explain(FRAME.sem_filter("{text} is kind"))
    with replay(lambda *_: Reply(failure="no luck")):
        with pytest.raises(Exception, match="no luck"):
            built.collect()
        with pytest.warns(semops.SemopsWarning, match="2 failed in the engine"):
            assert FRAME.sem_filter("{text} is kind").collect().height == 0


def test_the_engine_starts_once_and_closes(started: list[ReplayBackend]) -> None:
    assert started == []
    FRAME.sem_filter("{text} is kind").collect()
    FRAME.sem_filter("{text} is kind").collect()
    assert len(started) == 1
    semops.close()
    semops.close()
    FRAME.sem_filter("{text} is kind").collect()
    assert len(started) == 2


def test_a_running_engine_can_not_be_changed(started: list[ReplayBackend]) -> None:
    FRAME.sem_filter("{text} is kind").collect()
    semops.configure(prompt_style="chat")
    with pytest.raises(ConfigError, match=r"kv_tokens can't change.*semops\.close\(\) first"):
        semops.configure(kv_tokens=99)
    semops.close()
    semops.configure(kv_tokens=99)


def test_an_engine_that_does_not_start_says_why_and_may_be_tried_again(
    started: list[ReplayBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    works = session._start_vllm

    def fails(current: Settings) -> ReplayBackend:
        msg = "no model"
        raise EngineError(msg)

    monkeypatch.setattr(session, "_start_vllm", fails)
    with pytest.raises(Exception, match="no model"):
        FRAME.sem_filter("{text} is kind").collect()
    monkeypatch.setattr(session, "_start_vllm", works)
    assert FRAME.sem_filter("{text} is kind").collect().height == 2


def test_closing_ends_running_queries_with_an_error(
    started: list[ReplayBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def slow(*_: Any) -> Reply:
        asked.set()
        return Reply(True, delay_s=60)

    monkeypatch.setattr(session, "_start_vllm", lambda _: ReplayBackend(slow))
    errors: list[BaseException] = []

    def collect() -> None:
        try:
            FRAME.sem_filter("{text} is kind").collect()
        except Exception as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    thread = threading.Thread(target=collect)
    thread.start()
    assert asked.wait(5)
    semops.close()
    thread.join(5)
    assert not thread.is_alive()
    assert "the engine was closed while the query ran" in str(errors[0])


def test_a_profile_collects_the_runs_of_its_block() -> None:
    lazy = FRAME.sem_filter("{text} is kind")
    with replay(lambda *_: True):
        with semops.profile() as outer:
            lazy.collect()
            with semops.profile() as inner:
                lazy.collect()
        lazy.collect()
    assert inner.operators["sem_filter"].calls == 2
    assert outer.operators["sem_filter"].calls == 4
    assert semops.last_profile().operators["sem_filter"].calls == 2


def test_errors_of_rows_are_a_frame() -> None:
    def answer(operator: str, instruction: str, row: Any) -> Any:
        return Reply(failure="no luck") if row["text"] == "b" else None

    with replay(answer), pytest.warns(semops.SemopsWarning, match="1 undecided, 1 failed"):
        FRAME.sem_filter("{text} is kind").collect()
    errors = semops.last_profile().errors().sort("row")
    assert errors.columns == ["row", "operator", "reason", "detail"]
    assert errors["row"].to_list() == [0, 1]
    assert errors["reason"].to_list() == ["undecided", "backend"]
    assert errors["detail"][1] == "no luck"


FORKED = """
import os, signal
import polars as pl
from semops.testing import replay

lazy = pl.DataFrame({"text": ["a"]}).sem_filter("{text} ok")

def fork():
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            lazy.collect()
        except Exception as error:
            os._exit(7 if "spawn" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

with replay(lambda *_: True):
    assert lazy.collect().height == 1
    fork()
    assert lazy.collect().height == 1
fork()  # the engine has ended, and Polars' threads are missing all the same
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")
def test_a_forked_process_says_so_instead_of_waiting_for_ever() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=60, check=False)
    assert done.returncode == 0


def test_options_of_operators_hold_for_the_thread_that_sets_them() -> None:
    seen = []
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with semops.options(prompt_style="raw", on_error="raise"):
            inside.set()
            done.wait(5)
            seen.append(session.settings().prompt_style)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(5)
    assert session.settings().prompt_style == "chat"
    done.set()
    thread.join()
    assert seen == ["raw"]
    assert session.settings().prompt_style == "chat"


def test_without_a_home_folder_only_what_needs_one_says_so(monkeypatch):
    """A container's user may have neither a name nor HOME."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # nobody knows the user
    lazy = pl.DataFrame({"text": ["a"]}).sem_map("Shorten {text}", "short")
    with replay(lambda *_: "fine"):
        assert lazy.collect()["short"].to_list() == ["fine"]
        with (
            semops.options(cache=True),
            pytest.raises(ConfigError, match=r"no home folder.*CACHE_DIR"),
        ):
            lazy.collect()
    with pytest.raises(ConfigError, match="no home folder"):
        resolve("offline", session.settings().cache_dir)
