"""Pipelines by hand: the same rows as plain Python gives, and an engine that is empty afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semops.engine.answers import AnswerMemo
from semops.engine.backends.simulator import SimulatorBackend
from semops.engine.scheduler import Scheduler
from semops.engine.token_program import Rows, TokenOperator, TokenProgram, answering, run

FIRST = TokenOperator("first", [1] * 5)
SECOND = TokenOperator("second", [2] * 5)
MAP = TokenOperator("map", [3] * 5, max_tokens=40)


def says(operator: str, rows: Rows) -> bool | int:
    number = sum((place + 1) * row["id"] for place, row in enumerate(rows))
    return 1 + number % 40 if operator == "map" else (number + len(operator)) % 3 > 0


def table(count: int, tokens: int, first: int) -> list[dict[str, Any]]:
    return [
        {"id": first + i, "tokens": range((first + i) * 1_000, (first + i) * 1_000 + tokens + i)}
        for i in range(count)
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 12),
    st.integers(0, 5),
    st.sampled_from([400, 900, 8_000]),
    st.sampled_from(["auto", "virtual"]),
    st.sampled_from(["demand", "kalypso", "static:1:3"]),
    st.integers(1, 8),
)
def test_rows_are_those_of_row_by_row_execution(
    left: int, right: int, kv_tokens: int, pinning: str, controller: str, max_running: int
) -> None:
    lefts, rights = table(left, 40, 10), table(right, 10, 500)
    engine = SimulatorBackend(answering(says), kv_tokens=kv_tokens, max_running=max_running)
    scheduler = Scheduler(engine, controller, pinning, engine.clock)
    program = TokenProgram([[FIRST, MAP], [SECOND]], [rights], head=range(20))
    counts = run(program, lefts, scheduler)
    expected = [
        (a["id"], b["id"])
        for a in lefts
        if says("first", (a,))
        for b in rights
        if says("second", (a, b))
    ]
    assert [tuple(row["id"] for row in item.rows) for item in program.results] == expected
    for item in program.results:
        assert item.answers["map"].output_tokens == says("map", item.rows[:1])
    assert counts["map"].calls == sum(bool(says("first", (a,))) for a in lefts)
    assert (engine.pool.referenced, engine.progress(), scheduler.ledger.used) == (0, (0, 0), 0)
    assert scheduler.events.deadlocks == 0


def test_a_map_reuses_what_the_filter_computed() -> None:
    engine = SimulatorBackend(answering(says))
    program = TokenProgram([[FIRST, MAP]])
    counts = run(program, table(20, 320, 10), Scheduler(engine, clock=engine.clock))
    assert counts["first"].cached_tokens == 0
    whole_blocks = [len(item.prompt) // 16 * 16 for item in program.results]
    assert counts["map"].cached_tokens == sum(whole_blocks)


def test_an_instruction_may_depend_on_the_rows() -> None:
    asks = TokenOperator("ask", lambda rows: [rows[0]["id"]] * rows[0]["id"], max_tokens=4)
    engine = SimulatorBackend(answering(lambda *_: 2))
    program = TokenProgram([[asks]])
    run(program, table(3, 32, 10), Scheduler(engine, clock=engine.clock))
    found = [item.answers["ask"].prompt_tokens for item in program.results]
    assert found == [32 + 10, 33 + 11, 34 + 12]


def test_pipelines_may_share_answers() -> None:
    engine = SimulatorBackend(answering(says))
    scheduler, memo, rows = Scheduler(engine, clock=engine.clock), AnswerMemo(), table(5, 32, 10)
    run(TokenProgram([[FIRST]]), rows, scheduler, memo)
    counts = run(TokenProgram([[FIRST]]), rows, scheduler, memo)
    assert (counts["first"].calls, counts["first"].reused) == (0, 5)


def test_what_the_program_raises_comes_out() -> None:
    class Failing(TokenProgram):
        def emit(self, item: Any) -> None:
            raise RuntimeError("full")

    engine = SimulatorBackend(answering(lambda *_: True))
    with pytest.raises(RuntimeError, match="full"):
        run(Failing([[FIRST]]), table(2, 20, 1), Scheduler(engine, clock=engine.clock))
