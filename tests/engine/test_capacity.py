"""Capacity: formulas, and whether the queue that they are about behaves as they say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semops.engine.capacity import (
    EngineSize,
    Shape,
    area,
    capacity,
    chunks,
    efficiency,
    mixture,
    replicas_for,
    residence,
)
from semops.engine.ordering import MODES, ORDERINGS
from semops.engine.ordering.queueing import Arrival, Outcome, serve
from semops.engine.time_model import TimeModel
from semops.errors import ConfigError

M, CHUNK = 6_000, 64
SIZE = EngineSize(M, CHUNK)
DELTA = 400 / M
MEAN = [Shape(s, o) for s in range(20, 201, 4) for o in range(20, 201, 4)]
STEPS = 20_000


def lengths(dice: random.Random) -> tuple[int, int]:
    return dice.randint(20, 200), dice.randint(20, 200)


def poisson(rate: float, steps: int, seed: int) -> list[Arrival]:
    dice = random.Random(seed)
    found: list[Arrival] = []
    time = dice.expovariate(rate)
    while time < steps:
        found.append(Arrival(*lengths(dice), at_step=int(time)))
        time += dice.expovariate(rate)
    return found


def driven(load: float, mode: str, seed: int = 1, steps: int = STEPS) -> tuple[Outcome, float]:
    """Return a run at a share of mu, and the arrivals a step that there really were in its second half."""
    mu = capacity(MEAN, SIZE, 1.0, mode).mu
    arrivals = poisson(load * mu, steps, seed)
    outcome = serve(arrivals, M, ORDERINGS["fcfs"], MODES[mode], chunk=CHUNK, steps=steps)
    late = sum(a.at_step >= steps // 2 for a in arrivals)
    return outcome, late / (steps - steps // 2)


def slope(queue: list[int]) -> float:
    """Least squares over the second half, in requests a step."""
    half = queue[len(queue) // 2 :]
    middle, mean = (len(half) - 1) / 2, sum(half) / len(half)
    above = sum((i - middle) * (y - mean) for i, y in enumerate(half))
    return above / sum((i - middle) ** 2 for i in range(len(half)))


@given(st.integers(1, 2_000), st.integers(1, 500), st.integers(1, 600))
def test_area_is_what_a_request_holds(prompt: int, output: int, chunk: int) -> None:
    """Q1, Q4: g is the sum over the steps of a request alone; it grows with s and o, not with the chunk."""
    shape, size = Shape(prompt, output), EngineSize(10_000, chunk)
    alone = serve([Arrival(prompt, output)], 10_000, *PLAIN, chunk=chunk)
    assert area(shape, size) == alone.memory_steps
    assert residence(shape, size) == alone.steps
    assert area(Shape(prompt + 1, output), size) > area(shape, size)
    assert area(Shape(prompt, output + 1), size) > area(shape, size)
    assert area(shape, EngineSize(10_000, chunk + 1)) <= area(shape, size) or chunks(
        shape, chunk + 1
    ) == chunks(shape, chunk)


PLAIN = (ORDERINGS["fcfs"], MODES["peak"])


def test_where_chunks_are_whole_the_papers_formula_holds() -> None:
    s, o, c = 256, 30, 64
    assert area(Shape(s, o), EngineSize(M, c)) == ((1 + s / c) * s + 2 * o * s + (1 + o) * o) / 2


@pytest.mark.parametrize("mode", ["peak", "lookahead", "ledger"])
def test_every_token_of_a_long_run_is_accounted_for(mode: str) -> None:
    """Q1: without preemption the memory used is the sum of the areas, exactly."""
    arrivals = poisson(0.2, 1_000, seed=3)
    outcome = serve(arrivals, M, ORDERINGS["svf"], MODES[mode], chunk=CHUNK)
    total = sum(area(Shape(a.prompt_tokens, a.output_tokens), SIZE) for a in arrivals)
    assert outcome.memory_steps == total


@pytest.mark.parametrize("seed", [1, 2])
def test_below_one_minus_delta_the_queue_stays_bounded(seed: int) -> None:
    """Q2: at 1 - delta of mu the queue has no slope."""
    outcome, rate = driven(1 - DELTA, "lookahead", seed)
    assert slope(outcome.queue) < 0.05 * rate


@pytest.mark.parametrize("load", [1.1, 1.3])
@pytest.mark.parametrize("mode", ["lookahead", "peak", "optimistic"])
def test_above_it_the_queue_grows_by_what_is_too_much(mode: str, load: float) -> None:
    """Q2: the slope is lambda - mu * eta, within 15 %; that also measures eta."""
    outcome, rate = driven(load, mode)
    excess = rate - capacity(MEAN, SIZE, 1.0, mode).rate
    assert slope(outcome.queue) == pytest.approx(excess, rel=0.15)


def test_reservations_are_unstable_where_a_look_ahead_is_not() -> None:
    """Q3: reserving the peak at 0.8 mu is too much, and at 0.6 mu not."""
    for seed in (1, 2):
        high, rate = driven(0.8, "peak", seed)
        assert slope(high.queue) > 0.05 * rate
        low, rate = driven(0.6, "peak", seed)
        assert slope(low.queue) < 0.02 * rate
        ahead, rate = driven(0.8, "lookahead", seed)
        assert slope(ahead.queue) < 0.02 * rate


@pytest.mark.parametrize("mode", ["peak", "lookahead", "optimistic", "ledger"])
def test_efficiency_is_what_a_full_queue_gets(mode: str) -> None:
    dice = random.Random(5)
    drawn = [lengths(dice) for _ in range(6_000)]
    # The ledger reserves a quarter more than the answers take.
    bound = {(s, o): int(1.25 * o) for s, o in drawn}
    arrivals = [Arrival(s, o, bound_tokens=bound[s, o]) for s, o in drawn]
    steps = 8_000
    outcome = serve(arrivals, M, ORDERINGS["fcfs"], MODES[mode], chunk=CHUNK, steps=steps)
    done = sum(end >= 1_000 for end in outcome.ends)
    shapes = [Shape(s, o, bound_tokens=1.25 * o) for s, o in MEAN_PAIRS]
    found = capacity(shapes, SIZE, 1.0, mode)
    assert done / (steps - 1_000) == pytest.approx(found.rate, rel=0.03)


MEAN_PAIRS = [(shape.prompt_tokens, shape.output_tokens) for shape in MEAN]


def test_a_mixture_of_classes_is_their_weighted_whole() -> None:
    """Q4: the rate of a mixture from those of its classes is that of all shapes together."""
    short = [Shape(50, 20, share=3.0)]
    long = [Shape(400, 90, share=1.0)]
    rates = [capacity(part, SIZE, 0.01, "lookahead").mu for part in (short, long)]
    whole = capacity([*short, *long], SIZE, 0.01, "lookahead").mu
    assert mixture(rates, [3.0, 1.0]) == pytest.approx(whole)


def test_replicas() -> None:
    one = capacity([Shape(128, 10)], SIZE, 0.02, "lookahead")
    assert replicas_for(one.rate * 8 * 0.9, one) == 8
    assert replicas_for(one.rate * 8 * 0.9, one, slo=True) == 11
    assert replicas_for(1e-9, one) == 1


def test_units_and_limits() -> None:
    """Q4: twice the memory or half the step time is twice the rate; seats and step tokens bind where least."""
    load = [Shape(100, 50)]
    base = capacity(load, SIZE, 0.02, "lookahead")
    assert capacity(load, EngineSize(2 * M, CHUNK), 0.02, "lookahead").mu == pytest.approx(
        2 * base.mu
    )
    assert capacity(load, SIZE, 0.01, "lookahead").mu == pytest.approx(2 * base.mu)
    seats = capacity(load, EngineSize(M, CHUNK, max_running=4), 0.02, "lookahead")
    assert seats.limits.binding == "seats"
    assert seats.mu == pytest.approx(4 / (52 * 0.02))
    tokens = capacity(load, EngineSize(M, CHUNK, step_tokens=30), 0.02, "lookahead")
    assert tokens.limits.binding == "tokens"
    assert tokens.mu == pytest.approx(30 / 150 / 0.02)
    hits = capacity([Shape(100, 50, cached_tokens=96, sharers=8)], SIZE, 0.02, "lookahead")
    assert hits.mu > 2 * base.mu


def test_the_step_time_follows_from_what_a_step_computes() -> None:
    model = TimeModel(base_s=0.01, prefill_s=1e-3, decode_s=1e-4, context_s=1e-6)
    found = capacity([Shape(100, 50)], SIZE, model, "lookahead")
    a_step = min(found.limits)
    expected = 0.01 + a_step * (100 * 1e-3 + 50 * 1e-4 + found.area * 1e-6)
    assert found.step_s == pytest.approx(expected)


def test_blocks_and_overlap_count() -> None:
    shape = Shape(100, 21)
    blocks = area(shape, EngineSize(M, CHUNK, block_tokens=33)) - area(shape, SIZE)
    assert blocks == 16 * residence(shape, SIZE)
    overlap = EngineSize(M, CHUNK, overlap=True)
    assert residence(shape, overlap) == residence(shape, SIZE) - 1
    assert area(shape, overlap) == area(Shape(100, 20), SIZE)


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(ConfigError, match="choose one of 'ledger', 'peak'"):
        efficiency(MEAN, SIZE, "greedy")
    with pytest.raises(ConfigError, match="at least one request"):
        capacity([], SIZE, 0.01)
