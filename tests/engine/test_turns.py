"""Ordering and admission modes in the scheduler: what starts first, and what never changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_program import Driver, Op, RowProgram, doc, rows
from simulated_bench import Bench, row

from semops.engine.ordering import MODES, ORDERINGS
from semops.errors import ConfigError


def one_at_a_time(policy: str, data: list[dict[str, Any]], **options: Any) -> list[int]:
    """The order in which an unordered query's tuples go, on an engine with one seat."""
    bench = Bench(policy=policy, oracle=True, max_running=1, **options)
    bench.add(data, ordered=False)
    return bench.run()


MIXED = [row(0, 300, 2), row(1, 10, 40), row(2, 100, 3), row(3, 5, 10)]
"""Volumes about 600, 1200, 300, 100."""


def test_policies_order_the_tuples_of_an_unordered_query() -> None:
    assert one_at_a_time("fcfs", MIXED) == [0, 1, 2, 3]
    assert one_at_a_time("oracle_sjf", MIXED) == [0, 2, 3, 1]
    # Nothing is known of lengths yet: volume is prompt times a constant.
    assert one_at_a_time("svf", MIXED) == [3, 1, 2, 0]
    assert one_at_a_time("sjf", MIXED) == [0, 1, 2, 3]


def test_by_default_a_query_keeps_row_order_whatever_the_policy() -> None:
    for policy in ("svf", "sjf", "oracle_sjf", "svf_onebit"):
        bench = Bench(policy=policy, oracle=True, max_running=1)
        bench.add(MIXED)
        assert bench.run() == [0, 1, 2, 3]


def test_a_learned_length_changes_the_order() -> None:
    """A map whose answers are a fifth of the prompt: after some rows, long prompts mean long answers."""
    dice = random.Random(0)
    sizes = [dice.randint(20, 400) for _ in range(200)]
    bench = Bench(policy="sjf", max_running=4, kv_tokens=4_000)
    bench.add([row(n, size, size // 5 + 1) for n, size in enumerate(sizes)], ordered=False)
    bench.run()
    bench.order.clear()
    last = [row(1_000, 390, 79), row(1_001, 30, 7), row(1_002, 200, 41)]
    bench.add(last, ordered=False)
    assert sorted(bench.run()) == [1_000, 1_001, 1_002]
    lengths = bench.scheduler.lengths.lengths("map", 200, [394, 34, 204], "predicted")
    assert lengths[1] < lengths[2] < lengths[0]
    assert bench.scheduler.lengths.seconds > 0


def test_smaller_queries_go_first_and_fair_shares_before_that() -> None:
    """A query of large rows is not starved by one of small rows: each has its share of the seats."""
    bench = Bench(max_running=4, kv_tokens=20_000)
    bench.add([row(n, 900, 20) for n in range(12)])
    bench.add([row(100 + n, 20, 20) for n in range(40)])
    order = bench.run()
    assert {n >= 100 for n in order[:2]} == {True}  # small first
    large = [place for place, n in enumerate(order) if n < 100]
    assert large[3] < 15  # but each gets its half


def test_a_tuple_that_waited_too_long_goes_first() -> None:
    bench = Bench(policy="svf", max_running=1)
    bench.scheduler.patience.max_wait_s = 0.5
    data = [row(0, 1_500, 5), *(row(n, 20, 5) for n in range(1, 80))]
    bench.add(data, ordered=False)
    place = bench.run().index(0)
    assert 3 < place < 40


def test_small_tuples_fill_what_a_blocked_old_one_leaves_free() -> None:
    """The oldest goes first; beside the one that runs there is room for small ones only, and they take it."""
    data = [row(0, 900, 40), row(1, 900, 40), *(row(n, 40, 5) for n in range(2, 12))]

    def order(patience_s: float) -> list[int]:
        bench = Bench(policy="svf", oracle=True, kv_tokens=1_500)
        bench.scheduler.ordering = ORDERINGS["oracle_sjf"]._replace(key=ORDERINGS["fcfs"].key)
        bench.scheduler.patience.max_wait_s = patience_s
        for estimator in bench.add(data, cap=45, ordered=False).bounds.values():
            estimator.p99 = 40
            estimator.p99_ratio = 1.0
        return bench.run()

    assert order(1e9)[0] == 0, "a blocked head stops all others"
    assert order(0.0)[:10] == list(range(2, 12)), (
        "unless it waited too long and they don't delay it"
    )


def timed(bench: Bench, data: list[dict[str, Any]]) -> float:
    """Add a query and turn until it ends; return its time in seconds."""
    started_s = bench.scheduler.clock()
    query = bench.add(data)
    while query.key in bench.scheduler.queries:
        bench.scheduler.turn()
    return bench.scheduler.clock() - started_s


@pytest.mark.parametrize("turns", [0, 1, 7, 30, 100])
@pytest.mark.parametrize("answer", [1, 8, 40])
@pytest.mark.parametrize("prompt", [300, 900])
def test_five_rows_beside_two_hundred_end_soon(prompt: int, answer: int, turns: int) -> None:
    """Within four times what they take alone, also where their rows are the larger ones."""
    size = {"max_running": 16, "kv_tokens": 30_000}
    short = [row(1_000 + n, prompt, answer) for n in range(5)]
    alone_s = timed(Bench(**size), short)
    bench = Bench(**size)
    bench.add([row(n, 300, answer) for n in range(200)])
    for _ in range(turns):
        bench.scheduler.turn()
    assert timed(bench, short) <= 4 * alone_s
    bench.run()


@settings(max_examples=40, deadline=None)
@given(
    data=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=30),
    policy=st.sampled_from(sorted(ORDERINGS)),
    mode=st.sampled_from(sorted(MODES)),
    ordered=st.booleans(),
    seats=st.sampled_from([1, 3, 64]),
    kv_tokens=st.sampled_from([600, 2_000, 50_000]),
)
def test_all_tuples_end_once_under_every_policy_and_mode(
    data: list[tuple[int, int]], policy: str, mode: str, ordered: bool, seats: int, kv_tokens: int
) -> None:
    bench = Bench(policy=policy, mode=mode, oracle=True, max_running=seats, kv_tokens=kv_tokens)
    half = len(data) // 2
    for first, part in ((0, data[:half]), (half, data[half:])):
        bench.add([row(first + n, s, o) for n, (s, o) in enumerate(part)], ordered=ordered)
    assert sorted(bench.run()) == list(range(len(data)))


FILTER, JOIN, MAP = Op("F"), Op("J"), Op("M", "map", max_tokens=16)


@settings(max_examples=40, deadline=None)
@given(
    policy=st.sampled_from(sorted(set(ORDERINGS) - {"oracle_sjf"})),
    mode=st.sampled_from(sorted(MODES)),
    controller=st.sampled_from(["demand", "kalypso", "static:1:9"]),
    ordered=st.booleans(),
    kv_tokens=st.sampled_from([256, 512, 4_096]),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=10),
)
def test_answers_never_depend_on_ordering(
    policy: str, mode: str, controller: str, ordered: bool, kv_tokens: int, sizes: list[int]
) -> None:
    """A filter, a join and a map give the same tuples, asked once each, under every policy and mode."""

    def answer(operator: str, instruction: str, found: Any) -> Any:
        return "w " * (1 + sum(found.values()) % 9) if operator == "M" else sum(found.values()) % 3

    def run(**options: Any) -> tuple[list[Any], list[Any]]:
        driver = Driver(answer, controller=controller, kv_tokens=kv_tokens, **options)
        driver.scheduler.ledger.check_integrity([])
        program = RowProgram([[FILTER], [JOIN, MAP]], [rows(3, 12, 500)])
        data = [{"id": n, "doc": doc(n, size)} for n, size in enumerate(sizes)]
        driver.add(program, data, ordered=ordered)
        driver.finish()
        asked = sorted((c.operator, *c.row.values()) for c in driver.backend.calls)
        return program.results, asked

    found, asked = run(policy=policy, mode=mode)
    expected, wanted = run()
    assert found == expected
    assert set(asked) == set(wanted)


@pytest.mark.parametrize("mode", sorted(MODES))
def test_modes_admit_more_the_further_they_trust(mode: str) -> None:
    """Long caps, short answers: reservations of the cap admit fewest, an optimist most."""
    bench = Bench(mode=mode, kv_tokens=2_000, max_running=64)
    bench.add([row(n, 50, 10) for n in range(60)], cap=400)
    most = 0
    while bench.scheduler.queries:
        bench.scheduler.turn()
        most = max(most, len(bench.scheduler.running))
    low, high = {"peak": (3, 5), "ledger": (5, 35), "lookahead": (5, 40), "optimistic": (30, 64)}[
        mode
    ]
    assert low <= most <= high


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ConfigError, match="ordering='lifo' is not known; choose one of 'fcfs'"):
        Bench(policy="lifo")
    with pytest.raises(ConfigError, match="admission='none' is not known; choose one of 'ledger'"):
        Bench(mode="none")


def test_priorities_put_depth_before_lead_before_the_key() -> None:
    bench = Bench(max_running=16, kv_tokens=50_000)
    seen: list[tuple[int, int]] = []
    submit = bench.backend.submit

    def noted(key: int, request: Any, bound: int, priority: int) -> None:
        seen.append((request.token_ids[0] // 10_000, priority))
        submit(key, request, bound, priority)

    bench.backend.submit = noted  # type: ignore[method-assign]
    bench.add([row(n, 100, 5) for n in range(12)])
    bench.add([row(100 + n, 50, 5) for n in range(3)])
    bench.run()
    first = [priority for number, priority in seen if number < 100]
    assert first == sorted(first), "row order is kept inside a query"
    by_number = dict(seen)
    assert by_number[100] < by_number[11], "a query with few requests goes before one with many"
    assert max(abs(p) for _, p in seen) < 2**62
