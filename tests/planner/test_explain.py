"""Golden texts of plans. ``SEMOPS_UPDATE_GOLDEN=1`` writes them anew; look at the diff then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import semops
from semops.errors import PlanError
from semops.testing import replay

GOLDEN = Path(__file__).parents[1] / "golden"

PAPERS = pl.DataFrame({"title": ["a"], "text": ["b"], "year": [2001], "stars": [4]})
CLAIMS = pl.DataFrame({"claim": ["c"], "source": ["d"]})


def filter_and_map() -> pl.LazyFrame:
    kept = PAPERS.sem_filter("{text} is about whales")
    return kept.sem_map("Summarise {text}", "summary", max_tokens=40)


def cheap_predicates() -> pl.LazyFrame:
    lazy = PAPERS.lazy().filter(pl.col("year") > 2000).sem_filter("{text} is about whales")
    return lazy.sem_map("Summarise {text}", "summary").filter(pl.col("stars") > 3)


def join_of_two_tables() -> pl.LazyFrame:
    pairs = PAPERS.sem_filter("{text} is a study").sem_join(CLAIMS, "{text} supports {claim}")
    return pairs.sem_map("Quote from {text} what supports {claim}", "quote").drop("source")


def raw_style() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter(
        "{text}\nSentiment:", answers=("positive", "negative"), prompt_style="raw"
    )
    return lazy.sem_map("Summarise {text}", "summary")


def prefixes_not_shared() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter("{title} fits {text}").sem_map("Sum up {text}", "summary")
    return lazy.sem_map("Compare {title} and {year}", "compared")


def relational_work_between() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter("{text} is about whales")
    loud = pl.col("title").str.to_uppercase().alias("loud")
    return lazy.with_columns(loud).sem_map("Translate {loud}", "translation")


def work_that_is_not_row_wise() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter("{text} is about whales")
    return lazy.with_columns(pl.col("stars").rank().alias("rank")).sem_map("Explain {rank}", "why")


def limit_in_the_middle() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter("{text} is about whales").head(5)
    return lazy.sem_map("Summarise {text}", "summary")


def repeated_and_unread() -> pl.LazyFrame:
    lazy = PAPERS.sem_map("Summarise {text}", "one").sem_map("Summarise {text}", "two")
    return lazy.sem_map("Translate {text}", "unread").select("title", "two")


def verdict_columns() -> pl.LazyFrame:
    lazy = PAPERS.sem_filter("{text} is kind", name="kind", probability="share")
    return lazy.filter(pl.col("share") > 0.9).sem_map("Thank for {text}", "thanks")


PLANS = [
    filter_and_map,
    cheap_predicates,
    join_of_two_tables,
    raw_style,
    prefixes_not_shared,
    relational_work_between,
    work_that_is_not_row_wise,
    limit_in_the_middle,
    repeated_and_unread,
    verdict_columns,
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
def test_a_plan_reads_as_its_golden_text(plan: Callable[[], pl.LazyFrame], executor: str) -> None:
    with semops.options(executor=executor):
        text = semops.explain(plan()) + "\n"
    golden = GOLDEN / f"{plan.__name__}.{executor}.txt"
    if os.environ.get("SEMOPS_UPDATE_GOLDEN"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


def test_no_golden_text_is_left_over() -> None:
    expected = {f"{plan.__name__}.{e}.txt" for plan in PLANS for e in ("pipelined", "blocking")}
    assert {path.name for path in GOLDEN.glob("*.*.txt")} == expected


def test_a_plan_without_a_semantic_operator_on_top_says_so() -> None:
    with pytest.raises(PlanError, match="no semantic operator is on top"):
        semops.explain(PAPERS.lazy())
    with pytest.raises(PlanError, match="not row-wise"):
        semops.explain(filter_and_map().group_by("year").len())


def test_explaining_asks_nothing() -> None:
    with replay(lambda *_: True) as log:
        semops.explain(filter_and_map())
    assert log.calls == []
