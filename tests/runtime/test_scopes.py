"""One frame in several runs at once: each run gets all its rows, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import semops
from semops.testing import Reply, replay

ROWS = 60
FRAME = pl.DataFrame({"text": [f"row {i}" for i in range(ROWS)]})


def slow(operator: str, instruction: str, row: Mapping[str, Any]) -> Reply:
    return Reply(True if operator != "sem_map" else f"<{row['text']}>", delay_s=0.002)


def query() -> pl.LazyFrame:
    return FRAME.sem_filter("{text} ok").sem_map("Say {text}", "said")


def test_a_stream_goes_on_when_a_collect_of_its_frame_ends() -> None:
    lazy = query()
    with replay(slow, max_running=4):
        collect = threading.Thread(target=lambda: lazy.head(8).collect())
        collect.start()
        stream = iter(lazy.collect_batches(chunk_size=1, maintain_order=True))
        taken = [next(stream)]
        collect.join()
        taken += list(stream)
    assert pl.concat(taken).rows() == [(text, f"<{text}>") for text in FRAME["text"]]


def test_threads_that_share_a_frame_get_all_that_they_want(tmp_path: Path) -> None:
    """Whole, limited and streamed runs; a run that ends early ends no other one."""
    lazy = query()
    expected = [(text, f"<{text}>") for text in FRAME["text"]]
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(4):
            kind = (number + turn) % 4
            if kind == 0:
                found, wanted = lazy.collect().rows(), expected
            elif kind == 1:
                found, wanted = lazy.head(3).collect().rows(), expected[:3]
            elif kind == 2:
                file = tmp_path / f"{number}.parquet"
                lazy.sink_parquet(file)
                found, wanted = pl.read_parquet(file).rows(), expected
            else:
                longer = lazy.sem_filter("{said} ok")  # asks for the schema
                found, wanted = longer.select("text", "said").collect().rows(), expected
            if found != wanted:
                wrong.append((kind, len(found)))

    with replay(lambda *call: slow(*call).answer):
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("rows", [3, ROWS])
def test_what_a_collect_leaves_is_given_back_and_counted_once(rows: int) -> None:
    with replay(slow) as log, semops.profile() as profile:
        query().head(rows).collect()
        scheduler = log.engine.scheduler
        for _ in range(200):
            if not scheduler.ledger.used and not scheduler.running:
                break
            threading.Event().wait(0.01)
        assert scheduler.ledger.used == 0
    assert profile.rows == rows
    assert profile.operators["sem_filter"].calls <= rows + 16
