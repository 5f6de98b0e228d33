"""Rows in any order: the same rows, as they finish."""

from __future__ import annotations

import polars as pl
import pytest

import semops
from semops.testing import Reply, replay

FRAME = pl.DataFrame({"id": range(40), "text": [f"row {n}" for n in range(40)]})


def slow_first(operator: str, instruction: str, row: dict) -> Reply:
    """The first row takes long."""
    return Reply("answer " + row["text"], 0.4 if row["text"] == "row 0" else 0.0)


def query() -> pl.LazyFrame:
    return FRAME.sem_map("Say something about {text}", "said")


def test_rows_come_as_they_finish() -> None:
    with replay(slow_first, max_running=4), semops.options(ordered=False):
        found = query().collect()
    assert found["id"].to_list() != list(range(40))
    assert found["id"].to_list()[-1] == 0
    assert found.sort("id").equals(expected())


def expected() -> pl.DataFrame:
    with replay(slow_first, max_running=4):
        found = query().collect()
    assert found["id"].to_list() == list(range(40)), "row order is the default"
    return found


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
@pytest.mark.parametrize("ordering", ["svf", "sjf", "svf_onebit", "fcfs"])
def test_the_rows_are_the_same(executor: str, ordering: str) -> None:
    right = pl.DataFrame({"other": ["a", "b", "c"]})

    def answer(operator: str, instruction: str, row: dict) -> object:
        return "said" if operator == "sem_map" else len(str(row)) % 3 != 0

    def run(*, ordered: bool) -> pl.DataFrame:
        lazy = (
            FRAME.sem_filter("{text} is good")
            .sem_join(right, "{text} fits {other}")
            .sem_map("Say something about {text} and {other}", "said")
        )
        with (
            replay(answer, ordering=ordering, kv_tokens=512),
            semops.options(executor=executor, ordered=ordered),
        ):
            return lazy.collect()

    found, wanted = run(ordered=False), run(ordered=True)
    assert found.sort("id", "other").equals(wanted.sort("id", "other"))
    assert wanted.height


def test_a_limit_takes_any_rows_and_stops_early() -> None:
    with replay(slow_first) as log, semops.options(ordered=False):
        found = query().head(3).collect()
        assert found.height == 3
    assert len(log.calls) < 40


def test_an_instruction_longer_than_the_context_is_told_before_anything_runs() -> None:
    long = "word " * 400
    with replay(slow_first, context_tokens=256, kv_tokens=512) as log:
        with pytest.raises(
            semops.CapacityError, match=r"sem_map:said: its instruction .* context is 256"
        ):
            FRAME.sem_map(long + "{text}", "said").collect()
        assert log.calls == []
