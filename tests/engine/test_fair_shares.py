"""Fair shares between queries whose requests differ in size: nobody starves, no memory lies idle for it."""

from __future__ import annotations

import random

import pytest
from simulated_bench import Bench, row

from semops.engine.task import QueryState

KV_TOKENS = 4_000
ANSWER = 20
PLENTY = 900
"""Rows of each query; none runs out of them."""
TURNS = 600
FIRST = 100
"""Turns until the shares are looked at."""


def endless(bench: Bench, prompt: int, first: int) -> QueryState:
    return bench.add([row(first + n, prompt, ANSWER) for n in range(PLENTY)], cap=24)


def mean_use(bench: Bench, queries: list[QueryState], turns: int = TURNS) -> list[float]:
    """Turn, and return what each query held on average, as a share of the budget."""
    held = [0] * len(queries)
    for turn in range(turns):
        bench.scheduler.turn()
        assert all(query.waiting[0] for query in queries), "a query ran out of rows"
        if turn >= FIRST:
            held = [total + query.used for total, query in zip(held, queries, strict=True)]
    return [total / (turns - FIRST) / bench.scheduler.ledger.budget for total in held]


@pytest.mark.parametrize("policy", ["svf", "sjf", "fcfs", "svf_onebit"])
@pytest.mark.parametrize("prompts", [(100, 100), (100, 130), (100, 400), (250, 620), (600, 170)])
def test_two_queries_hold_their_shares_whatever_their_sizes(
    prompts: tuple[int, int], policy: str
) -> None:
    bench = Bench(kv_tokens=KV_TOKENS, policy=policy)
    queries = [endless(bench, prompt, 10_000 * n) for n, prompt in enumerate(prompts)]
    used = mean_use(bench, queries)
    assert min(used) >= 0.7 * 0.5, used
    assert sum(used) >= 0.8, used


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("prompts", [(100, 100, 100), (100, 200, 300), (40, 300, 90)])
def test_of_three_queries_a_late_one_gets_its_share_of_what_is_released(
    prompts: tuple[int, int, int], late: int
) -> None:
    bench = Bench(kv_tokens=KV_TOKENS)
    early = [endless(bench, prompt, 10_000 * n) for n, prompt in enumerate(prompts) if n != late]
    for _ in range(30):
        bench.scheduler.turn()
    last = endless(bench, prompts[late], 10_000 * late)
    releases = 0
    while not last.started:
        ended = len(bench.order)
        bench.scheduler.turn()
        releases += len(bench.order) > ended
    needed = -(-prompts[late] // min(prompts)) + 1
    assert releases <= needed, "what is released belongs to the late one"
    used = mean_use(bench, [*early, last], 300)
    assert min(used) >= 0.7 / 3, used


@pytest.mark.parametrize("seats", [1, 2, 64])
@pytest.mark.parametrize("prompts", [(900, 1_000), (150, 1_000), (150, 1_800), (1_850, 1_900)])
def test_small_requests_do_not_take_all_that_a_large_one_waits_for(
    prompts: tuple[int, int], seats: int
) -> None:
    """Also where one request needs more than its query's share, or than the whole budget."""
    bench = Bench(kv_tokens=2_000, max_running=seats)
    small, large = (endless(bench, prompt, 10_000 * n) for n, prompt in enumerate(prompts))
    at_once = min(2_000 // prompts[0], seats)
    before, overtaken = large.started, 0
    for _ in range(TURNS):
        started = small.started
        bench.scheduler.turn()
        overtaken = 0 if large.started > before else overtaken + small.started - started
        before = large.started
        assert overtaken <= 2 * at_once + 1
    assert large.started > TURNS / 200
    assert small.started >= large.started


def test_memory_that_a_query_s_own_split_leaves_free_goes_to_others() -> None:
    """A query that its controller holds back keeps nobody else from memory that is free."""
    dice = random.Random(3)
    bench = Bench(kv_tokens=KV_TOKENS, controller="static:1:9")
    queries = [endless(bench, 150 + 10 * dice.randint(0, 3), 10_000 * n) for n in range(3)]
    used = mean_use(bench, queries, 300)
    assert min(used) >= 0.7 / 3, used
