"""LIMIT, cheap predicates, unused columns and repeated operators: nothing is asked in vain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest

import semops
from semops.testing import Replay, Reply, replay

SLACK = 8
"""Calls past the last row that is needed: what may be in flight when it comes."""
KS = [1, 3, 5, 10, 20]


def every_second(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
    return "text" if operator == "sem_map" else int(row["text"].removeprefix("row ")) % 2 == 1


def table(rows: int = 200) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "text": [f"row {i}" for i in range(rows)],
            "year": [1990 + i % 20 for i in range(rows)],
            "stars": [i % 7 for i in range(rows)],
        }
    )


def query(frame: pl.DataFrame) -> pl.LazyFrame:
    return (
        frame.lazy()
        .filter(pl.col("year") > 2000)
        .sem_filter("{text} is odd")
        .with_columns(pl.col("text").str.to_uppercase().alias("loud"))
        .sem_map("Summarise {text}", "summary")
        .filter(pl.col("stars") > 3)
    )


def passing(frame: pl.DataFrame) -> list[str]:
    """Rows that both cheap predicates let through, in order."""
    return frame.filter(pl.col("year") > 2000, pl.col("stars") > 3)["text"].to_list()


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("late", [False, True], ids=["quick", "first row late"])
def test_a_limit_above_filter_and_map_stops_the_query(k: int, late: bool) -> None:
    frame = table()
    candidates = passing(frame)
    odd = [text for text in candidates if every_second("", "", {"text": text})]

    def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
        found = every_second(operator, instruction, row)
        return Reply(found, 0.05 if late and row["text"] == candidates[0] else 0.0)

    with replay(answer) as log:
        found = query(frame).head(k).collect()
    assert found["text"].to_list() == odd[:k]
    assert found["summary"].to_list() == ["text"] * len(odd[:k])
    filtered = [row["text"] for row in log.rows("sem_filter")]
    assert set(filtered) <= set(candidates)
    needed = candidates.index(odd[k - 1]) + 1 if k <= len(odd) else len(candidates)
    assert len(filtered) <= needed + SLACK
    assert len(log.rows("sem_map")) <= k + SLACK


def test_without_a_limit_exactly_the_rows_are_asked_that_cheap_predicates_keep() -> None:
    frame = table()
    with replay(every_second) as log:
        found = query(frame).collect()
    assert sorted(row["text"] for row in log.rows("sem_filter")) == sorted(passing(frame))
    assert len(log.rows("sem_map")) == found.height


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize(("left", "right"), [(1, 500), (100, 5)])
@pytest.mark.parametrize("filtered", [False, True], ids=["join first", "filter first"])
def test_a_limit_above_a_join_stops_the_query(
    k: int, left: int, right: int, filtered: bool
) -> None:
    lefts = pl.DataFrame({"claim": [f"claim {i}" for i in range(left)]})
    rights = pl.DataFrame({"fact": [f"fact {j}" for j in range(right)]})

    def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> bool:
        if operator == "sem_filter":
            return True
        return (int(row["claim"].split()[1]) + int(row["fact"].split()[1])) % 3 == 0

    pairs = [(i, j) for i in range(left) for j in range(right)]
    good = [(i, j) for i, j in pairs if (i + j) % 3 == 0]
    with replay(answer) as log:
        lazy = lefts.lazy()
        if filtered:
            lazy = lazy.sem_filter("{claim} is a claim")
        found = lazy.sem_join(rights, "{claim} follows from {fact}").head(k).collect()
    assert found.rows() == [(f"claim {i}", f"fact {j}") for i, j in good[:k]]
    needed = pairs.index(good[k - 1]) + 1
    assert len(log.rows("sem_join")) <= needed + SLACK
    assert len(log.rows("sem_filter")) <= needed // right + 1 + SLACK


@pytest.mark.parametrize("k", [0, *KS])
def test_a_limit_right_above_a_map_asks_for_as_many_rows(k: int) -> None:
    with replay(every_second) as log:
        found = table().sem_map("Summarise {text}", "summary").head(k).collect()
    assert found.height == k
    assert len(log.calls) == k


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_semantic_column_that_nobody_reads_is_not_computed(engine: Any) -> None:
    lazy = table().sem_map("Summarise {text}", "summary").sem_filter("{text} is odd", name="odd")
    with replay(every_second) as log:
        assert lazy.select("text", "year").collect(engine=engine).height == 200
        assert log.calls == []
        assert lazy.drop("summary").collect(engine=engine)["odd"].sum() == 100
        assert log.rows("sem_map") == []


def test_the_same_map_twice_is_asked_once() -> None:
    lazy = table(20).sem_map("Summarise {text}", "one").sem_map("Summarise {text}", "two")
    with replay(every_second) as log:
        found = lazy.collect()
    assert len(log.calls) == 20
    assert found["one"].equals(found["two"])


def test_the_same_map_over_a_changed_column_is_asked_again() -> None:
    loud = pl.col("text").str.replace("row", "ROW")
    lazy = table(20).sem_map("Summarise {text}", "one").with_columns(loud)
    with replay(lambda operator, instruction, row: row["text"]) as log:
        found = lazy.sem_map("Summarise {text}", "two").collect()
    assert len(log.calls) == 40
    assert found["two"][3] == "ROW 3"


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_equal_tuples_are_asked_once(engine: Any) -> None:
    frame = pl.DataFrame({"text": ["a", "b"] * 50})
    with replay(lambda operator, instruction, row: row["text"]) as log:
        found = frame.sem_map("Summarise {text}", "one").collect(engine=engine)
    assert len(log.calls) == 2
    assert found["one"].to_list() == ["a", "b"] * 50


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_frame_that_is_pulled_twice_in_one_query_is_asked_once(engine: Any) -> None:
    mapped = table(20).sem_map("Summarise {text}", "one")
    with replay(every_second) as log:
        both = pl.concat([mapped, mapped]).collect(engine=engine)
        assert both.height == 40
        assert len(log.calls) == 20
        mapped.join(mapped, on="text").collect(engine=engine)
        assert len(log.calls) == 40


def settled(log: Replay) -> bool:
    return not log.engine.scheduler.queries and log.engine.scheduler.ledger.used == 0


def test_an_operator_below_other_relational_work_belongs_to_the_same_run() -> None:
    lower = table(10).sem_filter("{text} is odd").unique("text", maintain_order=True)
    with replay(every_second):
        found = lower.sem_map("Summarise {text}", "summary").collect()
    assert found.height == 5
    operators = semops.last_profile().operators
    assert {name: counts.calls for name, counts in operators.items()} == {
        "sem_filter": 10,
        "sem_map:summary": 5,
    }


def test_an_operator_in_the_right_side_of_a_join_belongs_to_the_same_run() -> None:
    right = table(6).sem_filter("{text} is odd").select(pl.col("text").alias("other"))
    with replay(
        lambda operator, _, row: every_second(operator, _, {"text": next(iter(row.values()))})
    ):
        table(4).sem_join(right, "{text} fits {other}").collect()
    operators = semops.last_profile().operators
    assert {name: counts.calls for name, counts in operators.items()} == {
        "sem_filter": 6,
        "sem_join": 12,
    }


def test_a_limit_below_other_relational_work_stops_the_lower_query() -> None:
    lower = table().sem_filter("{text} is odd").head(3).unique("text", maintain_order=True)
    with replay(every_second) as log:
        assert lower.sem_map("Summarise {text}", "summary").collect().height == 3
    assert len(log.rows("sem_filter")) <= 6 + SLACK
