"""A name that was dropped and comes back names another column, from its first to its last use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
import pytest

import semops
from semops.engine.backends.replay import ReplayBackend
from semops.engine.plan import Request
from semops.prompts import Prompter, joined
from semops.testing import replay

LEFT = pl.DataFrame({"text": ["a", "b"], "title": ["t1", "t2"]})
RIGHT = pl.DataFrame({"title": ["r1", "r2"]})
FACTS = pl.DataFrame({"fact": ["f"]})


def answer(operator: str, instruction: str, row: Mapping[str, Any]) -> Any:
    return (
        f"{instruction[0]}({'|'.join(map(str, row.values()))})" if operator == "sem_map" else True
    )


@pytest.fixture(autouse=True)
def _prompts_hold_the_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The replay answers by a call's values; a model reads the prompt, so it must hold the same."""
    submit = ReplayBackend.submit

    def checked(self: ReplayBackend, key: int, request: Request, *args: int) -> None:
        segment = Prompter(self.tokenizer).segment
        values = enumerate(request.call.row.items())
        block = joined([segment(name, value, first=not i) for i, (name, value) in values])
        assert tuple(request.token_ids[: request.shared_tokens][-len(block) :]) == block
        submit(self, key, request, *args)

    monkeypatch.setattr(ReplayBackend, "submit", checked)
    return


CASES: dict[str, tuple[Callable[[], pl.LazyFrame], list[tuple[Any, ...]]]] = {
    "map": (
        lambda: (
            LEFT.sem_map("A {text}", "m")
            .sem_filter("{m} ok")
            .drop("m")
            .sem_map("B {title}", "m")
            .sem_map("C {m}", "k")
        ),
        [("a", "t1", "B(t1)", "C(B(t1))"), ("b", "t2", "B(t2)", "C(B(t2))")],
    ),
    "column of the table": (
        lambda: (
            LEFT.sem_filter("{text} ok")
            .drop("text")
            .sem_map("B {title}", "text")
            .sem_map("C {text}", "k")
        ),
        [("t1", "B(t1)", "C(B(t1))"), ("t2", "B(t2)", "C(B(t2))")],
    ),
    "right column": (
        lambda: (
            LEFT.head(1)
            .sem_filter("{title} {text} ok")
            .drop("title")
            .sem_join(RIGHT, "{text} {title}")
            .sem_map("M {title}", "k")
        ),
        [("a", "r1", "M(r1)"), ("a", "r2", "M(r2)")],
    ),
    "right column named as a map": (
        lambda: (
            LEFT.head(1)
            .sem_map("A {text}", "m")
            .sem_filter("{m} ok")
            .drop("m")
            .sem_join(RIGHT.rename({"title": "m"}), "{text} {m}")
            .select(pl.col("m"))
        ),
        [("r1",), ("r2",)],
    ),
    "map after a join": (
        lambda: (
            LEFT.sem_map("A {text}", "m")
            .sem_join(FACTS, "{m} {fact}")
            .drop("m")
            .sem_map("B {title}", "m")
            .sem_map("C {m}", "k")
            .select("m", "k")
        ),
        [("B(t1)", "C(B(t1))"), ("B(t2)", "C(B(t2))")],
    ),
    "map after a join and row-wise work": (
        lambda: (
            LEFT.sem_map("A {text}", "m")
            .sem_join(FACTS, "{m} {fact}")
            .drop("m")
            .with_columns(title=pl.col("title").str.to_uppercase())
            .sem_map("B {title}", "m")
            .sem_map("C {m}", "k")
            .select("m", "k")
        ),
        [("B(T1)", "C(B(T1))"), ("B(T2)", "C(B(T2))")],
    ),
    "verdict, then text": (
        lambda: (
            LEFT.sem_filter("{text} ok", name="v", probability="p")
            .filter(pl.col("v") & (pl.col("p") > 0.5))
            .sem_filter("{v} ok")
            .drop("v", "p")
            .sem_map("B {title}", "v")
            .filter(pl.col("v").str.contains("t1"))
            .sem_map("D {v}", "p")
        ),
        [("a", "t1", "B(t1)", "D(B(t1))")],
    ),
}


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
@pytest.mark.parametrize("case", CASES)
def test_a_name_that_comes_back_is_another_column(case: str, executor: str) -> None:
    build, expected = CASES[case]
    with replay(answer), semops.options(executor=executor):
        assert build().collect().rows() == expected


def test_a_projection_that_hides_nothing_used_again_is_not_work() -> None:
    plan = semops.explain(LEFT.sem_filter("{text} ok").drop("text").sem_map("B {title}", "m"))
    with replay(answer) as log:
        out = LEFT.sem_filter("{text} ok").drop("text").sem_map("B {title}", "m").collect()
    assert out.columns == ["title", "m"]
    assert "stage 2" not in plan
    assert len(log.calls) == 4
