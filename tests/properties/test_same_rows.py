"""Every executor, engine, memory size and policy gives the rows of row-by-row execution."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import oracle
import polars as pl
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import semops
from semops.engine import bounds
from semops.engine.backends.replay import ReplayBackend
from semops.engine.plan import Request
from semops.prompts import Prompter, joined
from semops.testing import Replay, replay

TEXTS = st.sampled_from(
    [None, "", "rain", "Ωmega rain", "große Freude", "雨が 降る", "{x} <|end|>"]
)
NUMBERS = st.sampled_from([None, -1, 0, 1, 2, 3])
VALUES = {pl.String: TEXTS, pl.Int64: NUMBERS}


@pytest.fixture(autouse=True, scope="module")
def _low_bounds() -> Iterator[None]:
    """Let bounds start low and learn early, so that answers are cut off and asked for again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "START", 2)
        patch.setattr(bounds, "MIN_OBSERVATIONS", 4)
        yield


@pytest.fixture(autouse=True, scope="module")
def _prompts_are_read() -> Iterator[None]:
    """Let the replay, which answers by a call's values, check that the prompt holds the same ones."""
    submit = ReplayBackend.submit

    def checked(self: ReplayBackend, key: int, request: Request, *args: int) -> None:
        prompter = Prompter(self.tokenizer)
        values = enumerate(request.call.row.items())
        row = [prompter.segment(name, value, first=not i) for i, (name, value) in values]
        block = joined(row)
        assert tuple(request.token_ids[: request.shared_tokens][-len(block) :]) == block, (
            request.call
        )
        submit(self, key, request, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplayBackend, "submit", checked)
        yield


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    height = draw(st.integers(0, 9))
    columns = {"id": list(range(height))}
    for name, values in (("text", TEXTS), ("more", TEXTS), ("n", NUMBERS)):
        columns[name] = draw(st.lists(values, min_size=height, max_size=height))
    schema = {"id": pl.Int64, "text": pl.String, "more": pl.String, "n": pl.Int64}
    return pl.DataFrame(columns, schema=schema)


@st.composite
def chains(draw: st.DrawFn) -> tuple[oracle.Op, ...]:
    """Up to five operators, each over the columns that are there."""
    schema: dict[str, Any] = {"id": int, "text": str, "more": str, "n": int}
    ops: list[oracle.Op] = []
    for number in range(draw(st.integers(1, 5))):
        again = [op for op in ops if isinstance(op, oracle.Map) and {*op.columns} <= {*schema}]
        if again and draw(st.booleans()):
            ops.append(replace(again[0], name=f"c{number}"))
            schema[f"c{number}"] = str
        else:
            op = draw(operators(schema, number))
            ops.append(op)
            if isinstance(op, oracle.Drop) and draw(st.integers(0, 3)):
                # What comes back under the name is another column.
                read = next(iter(schema))
                ops.append(oracle.Map(f"Say {{{read}}}", (read,), op.column, 16))
                schema[op.column] = str
    return tuple(ops)


@st.composite
def operators(draw: st.DrawFn, schema: dict[str, Any], number: int) -> oracle.Op:
    """One operator; ``schema`` becomes that of its output."""
    names, numbers = list(schema), [name for name, kind in schema.items() if kind is int]
    kinds = ["filter", "filter", "verdict", "map", "map", "join", "head", "compute"]
    kinds += ["keep"] * bool(numbers) + ["select", "drop", "drop", "rename"] * (len(names) > 1)
    kind = draw(st.sampled_from(kinds))
    column = draw(st.sampled_from(names))
    read = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)))
    asked = " and ".join(f"{{{name}}}" for name in read)
    new = f"c{number}"
    nulls = draw(st.sampled_from(["null", "null", "text"]))
    least = draw(st.sampled_from([0.0, 0.0, 1.0]))
    match kind:
        case "keep":
            return oracle.Keep(draw(st.sampled_from(numbers)), draw(st.integers(-1, 2)))
        case "compute":
            name = draw(st.sampled_from([new, column]))
            if schema[column] is bool:
                column = name = names[0]
            if schema[column] not in {int, str}:
                return oracle.Head(3)
            schema[name] = schema[column]
            return oracle.Compute(column, name)
        case "head":
            return oracle.Head(draw(st.integers(0, 6)))
        case "select":
            kept = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
            old = dict(schema)
            schema.clear()
            schema.update({name: old[name] for name in kept})
            return oracle.Select(tuple(kept))
        case "drop":
            del schema[column]
            return oracle.Drop(column)
        case "rename":
            schema[new] = schema.pop(column)
            return oracle.Rename(column, new)
        case "filter":
            share = draw(st.sampled_from([None, f"p{number}"]))
            schema.update({share: float} if share else {})
            return oracle.Filter(f"{asked} is good", read, None, share, nulls, least)
        case "verdict":
            schema.update({new: bool, f"p{number}": float})
            return oracle.Filter(f"{asked} is good", read, new, f"p{number}", nulls, least)
        case "map":
            schema[new] = str
            cap = draw(st.sampled_from([2, 5, 16]))
            return oracle.Map(f"Say something about {asked}", read, new, cap, nulls=nulls)
    free = {"text", "more", f"r{number}", f"s{number}"} - {*schema}
    texts = tuple(
        draw(st.lists(st.sampled_from(sorted(free)), min_size=2, max_size=2, unique=True))
    )
    rows = draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
    right = tuple(tuple(zip(texts, row, strict=True)) for row in rows)
    schema.update(dict.fromkeys(texts, str))
    text = f"{asked} goes with {{{texts[0]}}}"
    return oracle.Join(text, read, texts[:1], right, texts)


def engines() -> st.SearchStrategy[dict[str, Any]]:
    """From memory for one request to plenty, in blocks of different sizes."""
    return st.fixed_dictionaries(
        {
            "kv_tokens": st.sampled_from([256, 320, 640, 65_536]),
            "block_tokens": st.sampled_from([1, 16, 32]),
            "max_running": st.integers(1, 16),
            "pinning": st.sampled_from(["auto", "virtual"]),
            "controller": st.sampled_from(["demand", "kalypso", "static", "static:1:9"]),
            "ordering": st.sampled_from(["svf", "svf_onebit", "sjf", "fcfs"]),
            "admission": st.sampled_from(["ledger", "ledger", "peak", "lookahead", "optimistic"]),
        }
    )


def settle(log: Replay) -> None:
    """Check that within two seconds nothing is held any more."""
    gc.collect()  # Polars may leave a generator that it is done with in a cycle
    scheduler = log.engine.scheduler
    until = time.monotonic() + 2
    while (scheduler.queries or scheduler.ledger.used) and time.monotonic() < until:
        time.sleep(0.001)
    assert not scheduler.queries
    assert not scheduler.running
    assert scheduler.ledger.used == 0
    assert log.backend._pins == {}
    assert log.backend._pool.referenced == 0


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@given(
    frame=frames(),
    ops=chains(),
    engine=engines(),
    executor=st.sampled_from(["pipelined", "blocking"]),
    polars_engine=st.sampled_from(["in-memory", "streaming"]),
)
@pytest.mark.filterwarnings("ignore::semops.SemopsWarning")
def test_rows_and_their_order_are_those_of_row_by_row_execution(
    frame: pl.DataFrame,
    ops: tuple[oracle.Op, ...],
    engine: dict[str, Any],
    executor: str,
    polars_engine: Any,
) -> None:
    rows, calls = oracle.run(frame, ops, oracle.scramble)
    with (
        replay(oracle.scramble, **engine) as log,
        semops.options(executor=executor),
        semops.profile() as profile,
    ):
        lazy = oracle.build(frame, ops)
        found = lazy.collect(engine=polars_engine)
        settle(log)
    expected = pl.DataFrame(rows, schema=lazy.collect_schema(), orient="row")
    assert_frame_equal(found, expected, check_exact=False, abs_tol=1e-6)
    retries = sum(counts.retries for counts in profile.operators.values())
    event(f"retries: {retries > 0}")
    assert len(log.calls) <= calls + retries
    assert log.engine.scheduler.events.deadlocks == 0
