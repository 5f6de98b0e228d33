"""One frame in several runs at once: each run gets all its rows, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Mapping
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
