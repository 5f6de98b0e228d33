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

    def step(self) -> Any:
        self.broken = self.broken or len(self.calls) > 6
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
    return Breaks(lambda *_: True)


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
