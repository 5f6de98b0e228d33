"""What is known to be row-wise is done on one tuple at a time; all else gives the right rows too."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import semops
from semops.testing import replay

FRAME = pl.DataFrame(
    {
        "t": ["a", "b", "c", None, "e"],
        "u": ["x", "y", "x", "y", None],
        "n": [3, 1, 2, 2, None],
        "when": ["2020-01-02", "03/04/2020", "2020-01-05", None, "2020-01-07"],
        "day": [dt.date(2020, 1, i + 1) for i in range(5)],
    }
)
text, other, number = pl.col("t"), pl.col("u"), pl.col("n")

ROW_WISE = {
    "upper": text.str.to_uppercase(),
    "arithmetic": number * 2 + 1,
    "comparison": (number > 1) & text.is_not_null(),
    "literal": pl.lit("k"),
    "literal date": pl.lit(dt.date(2020, 1, 1)),
    "null": pl.lit(None),
    "cast": number.cast(pl.Float64),
    "category": text.cast(pl.Categorical),
    "when": pl.when(number > 1).then(text).otherwise(pl.lit("z")),
    "concat_str": pl.concat_str("t", "u", ignore_nulls=True),
    "coalesce": pl.coalesce("t", "u"),
    "fill_null": text.fill_null("none"),
    "is_in list": number.is_in([1, 2]),
    "replace": text.replace({"a": "A"}),
    "struct": pl.struct("t", "n"),
    "field": pl.struct("t", "n").struct.field("n"),
    "max_horizontal": pl.max_horizontal("n", 2),
    "date": pl.col("when").str.to_date("%Y-%m-%d", strict=False),
    "year": pl.col("day").dt.year(),
    "slice": text.str.slice(0, 1),
}
NOT_ROW_WISE = {
    "rank": number.rank(),
    "cum_sum": number.cum_sum(),
    "over": number.sum().over("u"),
    "shift": number.shift(1),
    "sum": number - number.sum(),
    "first": text.first(),
    "reverse": text.reverse(),
    "sort": text.sort(descending=True),
    "sample": text.sample(fraction=1.0, shuffle=True, seed=1),
    "forward_fill": text.forward_fill(),
    "diff": number.diff(),
    "rolling": number.rolling_mean(2, min_samples=1),
    "is_duplicated": other.is_duplicated(),
    "is_in column": number.is_in(number.filter(number > 1).implode()),
    "clip to column": number.clip(number.min() + 1, 3),
    "when on mean": pl.when(number > number.mean()).then(text).otherwise(other),
    "map_elements": text.map_elements(ascii, return_dtype=pl.String),
    "map_batches": text.map_batches(lambda s: s.reverse(), return_dtype=pl.String),
    "literal column": pl.lit(pl.Series(["p", "q", "r"])),  # as long as what the filter leaves
    "count": pl.len(),
    "numbering": pl.int_range(pl.len()),
    "join": text.str.join("-"),
    "date of any format": pl.col("when").str.to_date(strict=False),
}


def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
    return f"said {row}" if operator == "sem_map" else row.get("t") != "b"


def check(work: Any, *, fused: bool) -> None:
    """Compare a query with the same steps done one by one, and look where the filter runs."""
    lazy = work(FRAME.sem_filter("{t} is fine")).sem_map("Say {new}", "said")
    below = semops.explain(lazy).partition("pipeline 1")[2]
    assert ('"{t} is fine"' in below) is fused
    with replay(answer):
        found = lazy.collect()
    middle = work(FRAME.lazy().filter(text != "b")).collect()
    texts = [None if v is None else f"said { ({'new': v}) }" for v in middle["new"].to_list()]
    expected = middle.with_columns(pl.Series("said", texts, dtype=pl.String))
    assert_frame_equal(found, expected)


@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_work_is_done_on_one_tuple_at_a_time(name: str) -> None:
    check(lambda lazy: lazy.with_columns(ROW_WISE[name].alias("new")), fused=True)


@pytest.mark.parametrize("name", NOT_ROW_WISE)
def test_other_work_is_done_on_whole_columns(name: str) -> None:
    check(lambda lazy: lazy.with_columns(NOT_ROW_WISE[name].alias("new")), fused=False)


@pytest.mark.parametrize(
    "predicate",
    [
        number == number.max(),
        number.is_first_distinct(),
        number.shift(1) == 3,
        number.cum_sum() > 4,
        number.rank() > 1,
    ],
    ids=str,
)
def test_a_predicate_over_the_column_sees_what_the_filter_leaves(predicate: pl.Expr) -> None:
    with replay(answer):
        found = FRAME.sem_filter("{t} is fine").filter(predicate).collect()
    assert_frame_equal(found, FRAME.filter(text != "b").filter(predicate))


FRAME_WORK = {
    "unique": (lambda lazy: lazy.unique("u", maintain_order=True), False),
    "sort": (lambda lazy: lazy.sort("n", nulls_last=True), False),
    "row index": (lambda lazy: lazy.with_row_index("i"), False),
    "reverse": (lambda lazy: lazy.reverse(), False),
    "tail": (lambda lazy: lazy.tail(2), False),
    "slice": (lambda lazy: lazy.slice(1, 2), False),
    "aggregate": (lambda lazy: lazy.select(pl.col("t").max(), pl.col("n").sum()), False),
    "group": (lambda lazy: lazy.group_by("u", maintain_order=True).agg(pl.col("t").max()), False),
    "literals": (lambda lazy: lazy.select(t=pl.lit("k")), False),
    "head": (lambda lazy: lazy.head(2), True),
    "filter": (lambda lazy: lazy.filter(number > 1), True),
    "filter never": (lambda lazy: lazy.filter(pl.lit(False)), None),
    "select": (lambda lazy: lazy.select("n", "t"), True),
    "rename": (lambda lazy: lazy.rename({"n": "t", "t": "was"}), True),
    "swap": (lambda lazy: lazy.select(t="u", u="t"), True),
    "head and filter": (lambda lazy: lazy.head(3).filter(number > 2), True),
    "filter and head": (lambda lazy: lazy.filter(number > 1).head(1), None),
    "overwrite": (lambda lazy: lazy.with_columns(t=other), True),
}


@pytest.mark.parametrize("name", FRAME_WORK)
@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_work_on_frames_gives_the_rows_of_steps_done_one_by_one(name: str, engine: Any) -> None:
    work, fused = FRAME_WORK[name]
    lazy = work(FRAME.sem_filter("{t} is fine")).sem_map("Say {t}", "said")
    if fused is not None:
        below = semops.explain(lazy).partition("pipeline 1")[2]
        assert ('"{t} is fine"' in below) is fused
    with replay(answer):
        found = lazy.collect(engine=engine)
    middle = work(FRAME.lazy().filter(text != "b")).collect()
    texts = [None if v is None else f"said { ({'t': v}) }" for v in middle["t"].to_list()]
    expected = middle.with_columns(pl.Series("said", texts, dtype=pl.String))
    assert_frame_equal(found, expected)
