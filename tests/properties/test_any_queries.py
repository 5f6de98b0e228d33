"""Whatever queries run in whatever memory, the scheduler gives the rows of row-by-row execution."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_program import Driver, Op, RowProgram, doc

from semops.engine import bounds
from semops.engine.answers import AnswerMemo
from semops.engine.backends.replay import ReplayBackend, Reply
from semops.engine.ordering import MODES
from semops.engine.scheduler import ABORT_AFTER_S

RUNS = int(os.environ.get("RUNS", "300"))
"""Random runs of each test."""


@st.composite
def programs(draw: st.DrawFn, name: str) -> tuple[RowProgram, list[dict[str, Any]]]:
    """Up to three stages with filters, maps and local steps, and rows of any size."""
    stages = []
    for stage in range(draw(st.integers(1, 3))):
        # A product is followed by its predicate.
        first = [Op(f"{name}J{stage}")] if stage else []
        kinds = draw(st.lists(st.sampled_from(["filter", "map", "local"]), max_size=3))
        letters = {"filter": "F", "map": "M", "local": "L"}
        rest = [
            Op(
                f"{name}{letters[kind]}{stage}{number}",
                kind,
                draw(st.sampled_from([1, 5, 40])) if kind == "map" else 1,
                draw(st.integers(1, 40)),
                (lambda row: row["id"] % 3 != 0) if kind == "local" else None,
            )
            for number, kind in enumerate(kinds)
        ]
        stages.append([*first, *rest])
    sizes = st.integers(1, 150)
    rights = [
        [{"id": 50 + i, "doc": doc(i, draw(sizes))} for i in range(draw(st.integers(0, 4)))]
        for _ in stages[1:]
    ]
    numbers = draw(st.lists(st.integers(0, 6), max_size=8))
    tuples = [{"id": i, "doc": doc(i, 10 + 40 * (i % 4))} for i in numbers]
    return RowProgram(stages, rights, holds=False), tuples


def reference(
    program: RowProgram, tuples: list[dict[str, Any]], answer: Any
) -> tuple[list[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Return results and distinct calls of row-by-row execution."""
    out, calls = [], set()

    def visit(stage: int, path: tuple[Any, ...], outputs: dict[str, str], row: Any) -> None:
        for op in program.stages[stage]:
            if op.kind == "local":
                if not op.keep(row):
                    return
                continue
            values = {f"id{depth}": value for depth, value in enumerate(path)}
            calls.add((op.name, *path))
            found = answer(op.name, op.name, values)
            if op.kind == "filter":
                if not found.answer:
                    return
            else:
                long = len(found.answer.split()) > op.max_tokens
                outputs = {**outputs, op.name: "NULL" if long else found.answer}
        if stage == len(program.stages) - 1:
            out.append((*path, tuple(outputs.items())))
            return
        for right in program.rights[stage]:
            visit(stage + 1, (*path, right["id"]), outputs, right)

    for row in tuples:
        visit(0, (row["id"],), {}, row)
    return out, calls


def scrambled(operator: str, instruction: str, row: Mapping[str, Any]) -> Reply:
    """Words and verdicts by position; some are late."""
    number = sum((i + 3) * value for i, value in enumerate(row.values()))
    number = number * 31 + sum(map(ord, operator))
    delay_s = 0.02 if number % 7 == 0 else 0.0
    if "M" in operator:
        return Reply(" ".join(["word"] * (1 + number % 13)), delay_s)
    return Reply(number % 4 != 0, delay_s)


@settings(max_examples=RUNS, deadline=None)
@given(
    programs=st.lists(st.sampled_from("ABC"), min_size=1, max_size=3, unique=True).flatmap(
        lambda names: st.tuples(*(programs(name) for name in names))
    ),
    kv_tokens=st.sampled_from([768, 1_024, 2_048, 16_384]),
    block_tokens=st.sampled_from([1, 16, 32]),
    max_running=st.integers(1, 12),
    pinning=st.sampled_from(["auto", "virtual"]),
    controller=st.sampled_from(["demand", "kalypso", "kalypso:0.5:0.25", "static", "static:1:9"]),
    evicts=st.booleans(),
    late=st.integers(0, 6),
    start=st.sampled_from([1, 3, 256]),
)
def test_any_queries_in_any_memory_end_with_the_right_rows_and_nothing_held(
    programs: tuple[tuple[RowProgram, list[dict[str, Any]]], ...],
    kv_tokens: int,
    block_tokens: int,
    max_running: int,
    pinning: str,
    controller: str,
    evicts: bool,
    late: int,
    start: int,
) -> None:
    driver = Driver(
        scrambled,
        pinning=pinning,
        controller=controller,
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        max_running=max_running,
    )
    if evicts:
        driver.before_step = driver.backend._pool._free.clear  # whatever nobody uses is lost
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "START", start)
        patch.setattr(bounds, "MIN_OBSERVATIONS", 4)
        for program, tuples in programs:
            driver.add(program, tuples)
            for _ in range(late):
                driver.turn()
        driver.finish()
    expected_calls: set[tuple[Any, ...]] = set()
    for run, (program, tuples) in zip(driver.runs, programs, strict=True):
        results, calls = reference(program, tuples, scrambled)
        assert program.results == results
        expected_calls |= calls
        ended = Counter(item.ended for item in (*program.emitted, *program.dropped_items))
        assert set(ended) <= {1}
        for op in (op for stage in program.stages for op in stage if op.kind != "local"):
            reached = run.query.counts[op.name]
            assert reached.rows == reached.calls + reached.reused
    retries = sum(c.retries for run in driver.runs for c in run.query.counts.values())
    assert len(driver.backend.calls) == len(expected_calls) + retries
    assert driver.scheduler.events.deadlocks == 0
    for attempts in driver.bounds.values():
        assert attempts == sorted(attempts)
        assert len(attempts) <= math.ceil(math.log2(max(40 / attempts[0], 1))) + 1


@settings(max_examples=RUNS, deadline=None)
@given(
    programs=st.lists(st.sampled_from("AABC"), min_size=2, max_size=4).flatmap(
        lambda names: st.tuples(*(programs(name) for name in names))
    ),
    events=st.lists(
        st.tuples(
            st.integers(1, 6),
            st.sampled_from(["ends", "pauses", "goes on", "waits", "loses", "breaks"]),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    kv_tokens=st.sampled_from([768, 2_048]),
    max_running=st.integers(1, 12),
    pinning=st.sampled_from(["auto", "virtual"]),
    controller=st.sampled_from(["demand", "kalypso", "static:1:9"]),
    policy=st.sampled_from(["svf", "svf_onebit", "fcfs"]),
    mode=st.sampled_from(sorted(MODES)),
    ordered=st.booleans(),
)
def test_whatever_happens_on_the_way_changes_no_row_of_those_that_go_on(
    programs: tuple[tuple[RowProgram, list[dict[str, Any]]], ...],
    events: list[tuple[int, str, int]],
    kv_tokens: int,
    max_running: int,
    pinning: str,
    controller: str,
    policy: str,
    mode: str,
    ordered: bool,
) -> None:
    """Queries that share answers are ended half way, paused and pulled again; the engine is replaced."""
    sizes = {"kv_tokens": kv_tokens, "max_running": max_running}
    driver = Driver(
        scrambled, pinning=pinning, controller=controller, policy=policy, mode=mode, **sizes
    )
    driver.fits = False
    memo = AnswerMemo()
    for program, tuples in programs:
        driver.add(program, tuples, ordered=ordered).query.memo = memo
    for turns, event, number in events:
        for _ in range(turns):
            driver.turn()
        run = driver.runs[number % len(driver.runs)]
        match event:
            case "ends":
                driver.scheduler.end_query(run.query, InterruptedError())
            case "pauses":
                run.demand.end_pull()
            case "goes on":
                run.demand.begin_pull()
            case "waits":
                driver.clock.sleep(ABORT_AFTER_S + 0.1)
            case "loses":
                driver.backend._pool._free.clear()
            case "breaks":
                driver.replace_backend(ReplayBackend(scrambled, **driver.times, **sizes))
    for run in driver.runs:
        run.demand.begin_pull()
    for _ in range(3_000):
        if not driver.scheduler.queries:
            break
        driver.turn()
    driver.check_released()
    for run, (program, tuples) in zip(driver.runs, programs, strict=True):
        assert len(run.ended) == 1
        if run.ended == [None]:
            assert program.results == reference(program, tuples, scrambled)[0]
        else:
            assert isinstance(run.ended[0], InterruptedError)
