"""The engine thread: whatever happens to it, no consumer waits forever."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import polars as pl
import pytest

from semops import session
from semops.engine.backends.replay import ReplayBackend, Reply
from semops.engine.loop import EngineThread
from semops.errors import EngineError

FRAME = pl.DataFrame({"text": [f"row {i}" for i in range(20)]})


class Breaks(ReplayBackend):
    """Fails in a step, and from then on in everything."""

    broken = False
    last_call = 6

    def step(self) -> Any:
        self.broken = self.broken or len(self.calls) > self.last_call
        self._check()
        return super().step()

    def unpin(self, key: int) -> None:
        self._check()
        super().unpin(key)

    def abort(self, keys: Any) -> None:
        self._check()
        super().abort(keys)

    def _check(self) -> None:
        if self.broken:
            msg = "out of memory"
            raise MemoryError(msg)


def broken() -> Breaks:
    return Breaks(lambda *_: True, max_running=4)


def test_an_engine_goes_on_after_one_failed_step() -> None:
    made: list[ReplayBackend] = []

    def start() -> ReplayBackend:
        made.append(ReplayBackend(lambda *_: True) if made else broken())
        return made[-1]

    right = pl.DataFrame({"other": ["a", "b"]})
    query = FRAME.sem_filter("{text} is kind").sem_join(right, "{text} fits {other}")
    with session.override(start) as engine:
        assert query.collect().height == 2 * FRAME.height
        assert engine.scheduler.events.rebuilt == 1
        assert engine.scheduler.ledger.used == 0
        assert query.collect().height == 2 * FRAME.height
    assert len(made) == 2


def fails_in(method: str, after: int) -> type[ReplayBackend]:
    """A backend one of whose methods works so many times."""

    class Fails(ReplayBackend):
        left = after

    def call(self: Fails, *args: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            msg = f"no {method}"
            raise OSError(msg)
        return getattr(ReplayBackend, method)(self, *args)

    setattr(Fails, method, call)
    return Fails


def settled(engine: EngineThread) -> bool:
    """Wait until an engine has done what it was told; return whether it lives."""
    done = threading.Event()
    with suppress(EngineError):
        engine.post(lambda _: done.set())
    while engine.alive and not done.wait(0.01):
        pass
    return engine.alive


METHODS = ["submit", "step", "last_step", "abort", "pin", "unpin", "unpin_all", "progress", "close"]


@pytest.mark.parametrize("after", [0, 3, 30])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("always", [False, True])
def test_whatever_fails_in_a_backend_nobody_waits_for_ever_and_no_row_is_wrong(
    method: str, after: int, always: bool
) -> None:
    made: list[ReplayBackend] = []

    def start() -> ReplayBackend:
        kind = fails_in(method, after) if always or not made else ReplayBackend
        made.append(kind(lambda *_: True, max_running=4, kv_tokens=1_024))
        return made[-1]

    right = pl.DataFrame({"other": ["a", "b"]})
    query = FRAME.sem_filter("{text} is kind").sem_join(right, "{text} fits {other}")
    with session.override(start) as engine:
        for plan, rows in ((query, 2 * FRAME.height), (query.head(3), 3)):
            try:
                assert plan.collect().height == rows
            except (EngineError, OSError) as error:
                assert f"no {method}" in str(error)  # noqa: PT017 - it may as well succeed
        if settled(engine):
            assert engine.scheduler.ledger.used == 0
            assert not engine.scheduler.queries


@pytest.mark.parametrize("method", ["step", "abort", "pin", "unpin"])
def test_an_engine_that_does_not_do_as_told_is_started_again(method: str) -> None:
    """Once, and nothing is lost by it: neither rows nor memory."""
    made: list[ReplayBackend] = []

    def start() -> ReplayBackend:
        kind = ReplayBackend if made else fails_in(method, 0)
        made.append(kind(lambda *_: Reply(True, delay_s=0.001), max_running=4))
        return made[-1]

    right = pl.DataFrame({"other": ["a", "b"]})
    query = FRAME.sem_filter("{text} is kind").sem_join(right, "{text} fits {other}")
    with session.override(start) as engine:
        next(query.collect_batches(chunk_size=1))  # and leaves the rest, which is aborted
        assert query.collect().height == 2 * FRAME.height
        assert engine.scheduler.events.rebuilt == 1


def test_a_lost_gpu_ends_the_query_with_the_rows_so_far() -> None:
    class LosesDevice(Breaks):
        last_call = 40

        def _check(self) -> None:
            if self.broken:
                msg = "CUDA error: an illegal memory access was encountered"
                raise RuntimeError(msg)

    made: list[ReplayBackend] = []

    def start() -> ReplayBackend:
        made.append(LosesDevice(lambda *_: True, max_running=4))
        return made[-1]

    frame = pl.DataFrame({"n": range(100), "text": [f"row {i}" for i in range(100)]})
    with session.override(start), pytest.raises(EngineError, match="CUDA error") as caught:
        frame.sem_filter("{text} is kind").collect()
    rows = caught.value.partial
    assert 0 < rows.height < 100
    assert rows["n"].to_list() == list(range(rows.height))
    assert len(made) == 1


def test_a_backend_that_breaks_ends_all_queries_with_its_error() -> None:
    right = pl.DataFrame({"other": ["a", "b"]})
    query = FRAME.sem_filter("{text} is kind").sem_join(right, "{text} fits {other}")
    with session.override(broken) as engine:
        with pytest.raises(EngineError, match="the engine failed: MemoryError: out of memory"):
            query.collect()
        assert isinstance(engine.failure, MemoryError)
        assert not engine.alive
        with pytest.raises(EngineError, match="out of memory"):
            query.collect()


def test_a_backend_that_does_not_start_raises_where_the_engine_is_made() -> None:
    def fails() -> ReplayBackend:
        msg = "no such model"
        raise FileNotFoundError(msg)

    with pytest.raises(FileNotFoundError, match="no such model"):
        EngineThread(fails)


def test_an_engine_closes_twice_and_then_takes_no_more() -> None:
    engine = EngineThread(lambda: ReplayBackend(lambda *_: True))
    done = threading.Event()
    engine.post(lambda _: done.set())
    assert done.wait(5)
    engine.close()
    engine.close()
    assert not engine.alive
    with pytest.raises(EngineError, match="was closed"):
        engine.post(lambda _: None)


def test_a_backend_that_does_not_close_leaves_the_answers_and_no_second_error() -> None:
    class Stays(ReplayBackend):
        def close(self) -> None:
            msg = "still in use"
            raise RuntimeError(msg)

    with session.override(lambda: Stays(lambda *_: True)) as engine:
        assert FRAME.sem_filter("{text} is kind").collect().height == FRAME.height
    assert not engine.alive
