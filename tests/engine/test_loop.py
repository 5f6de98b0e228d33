"""The engine thread: whatever happens to it, no consumer waits forever."""

from __future__ import annotations

import threading
from typing import Any

import polars as pl
import pytest

from semops import session
from semops.engine.backends.replay import ReplayBackend
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
