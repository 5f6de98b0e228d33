"""What is logged holds no row and no answer, whatever goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import polars as pl
import pytest

import semops
from semops import session
from semops.engine.backends.replay import ReplayBackend
from semops.testing import Reply, replay

MARK = "Zanzibar"
FRAME = pl.DataFrame({"text": [f"{MARK} {number}" for number in range(12)]})


def bad(operator, instruction, row):
    number = int(row["text"].split()[1])
    if operator == "sem_filter":
        return [True, None, Reply(failure="no luck")][number % 3] if number > 2 else True
    return Reply(f"{MARK} " * 600, cut_off=True) if number % 2 else f"{MARK}!"


class BreaksOnce(ReplayBackend):
    broken = False

    def step(self):
        if len(self.calls) > 5 and not BreaksOnce.broken:
            BreaksOnce.broken = True
            raise RuntimeError(f"a kernel failed over {MARK}")
        return super().step()


@pytest.mark.filterwarnings("ignore::semops.SemopsWarning")
def test_no_row_and_no_answer_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, "semops")
    query = FRAME.sem_filter("{text} is so").sem_map("Shorten {text}", "s", max_tokens=8)
    with replay(bad), semops.options(cache=tmp_path / "a.sqlite"):
        query.collect()
    BreaksOnce.broken = False
    with session.override(lambda: BreaksOnce(lambda *_: True, max_running=2)):
        FRAME.sem_filter("{text} is so").collect()
    assert BreaksOnce.broken
    for record in caplog.records:
        assert MARK not in record.getMessage()
    seen = capfd.readouterr()
    assert MARK not in seen.out + seen.err
    assert MARK.encode() not in (tmp_path / "a.sqlite").read_bytes().replace(
        f"{MARK}!".encode(), b""
    )
