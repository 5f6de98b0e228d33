"""What is proven of smallest volume first holds exactly, in the model that runs the scheduler's policies."""

from __future__ import annotations

import itertools
import math
import operator
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semops.engine.ordering import MODES, ORDERINGS
from semops.engine.ordering.fitting import GUARDED
from semops.engine.ordering.policies import one_bit_lengths
from semops.engine.ordering.queueing import Arrival, Outcome, serve
from semops.engine.ordering.volume import volume

Burst = list[tuple[int, int]]
"""(prompt, answer) tokens."""


def run(burst: Burst, memory: int, policy: str, mode: str = "peak", **more: float) -> Outcome:
    arrivals = [Arrival(s, o) for s, o in burst]
    return serve(arrivals, memory, ORDERINGS[policy], MODES[mode], **more)


def total(outcome: Outcome) -> int:
    assert min(outcome.ends) > 0
    return sum(outcome.ends)


def lower_bound(burst: Burst, memory: int) -> float:
    """No schedule has a smaller sum of completion times."""
    volumes = sorted(volume(s, o) for s, o in burst)
    prefixes = itertools.accumulate(volumes)
    return max(sum(o for _, o in burst), sum(prefix / memory for prefix in prefixes))


def alpha(burst: Burst, memory: int) -> float:
    return max(s + o for s, o in burst) / memory


def check_bounds(burst: Burst, memory: int, mode: str) -> None:
    outcome = run(burst, memory, "svf", mode)
    share = alpha(burst, memory)
    order = sorted(range(len(burst)), key=lambda i: (volume(*burst[i]), i))
    before = 0.0
    for number in order:
        if share < 1:
            # Every step that it waits is filled by requests of at most its volume.
            assert outcome.starts[number] * (1 - share) * memory <= 2 * before
        before += volume(*burst[number])
    if share < 1:
        assert total(outcome) <= (1 + 2 / (1 - share)) * lower_bound(burst, memory)


@st.composite
def bursts(draw: st.DrawFn) -> tuple[Burst, int]:
    """Bursts of ordinary requests, with some that are far longer or far larger."""
    memory = draw(st.sampled_from([60, 200, 1_000]))
    small = st.tuples(st.integers(1, memory // 8), st.integers(1, memory // 8))
    wide = st.tuples(st.integers(memory // 3, memory // 2), st.integers(1, 3))
    long = st.tuples(st.integers(1, 3), st.integers(memory // 3, memory // 2))
    return draw(st.lists(st.one_of(small, wide, long), min_size=1, max_size=40)), memory


@pytest.mark.parametrize("mode", ["peak", "lookahead"])
@settings(max_examples=60, deadline=None)
@given(case=bursts())
def test_every_wait_and_the_total_are_bounded(mode: str, case: tuple[Burst, int]) -> None:
    """T1, T2: W <= 2/((1-a)M) * volume before it; total <= (1 + 2/(1-a)) * lower bound."""
    check_bounds(*case, mode)


@pytest.mark.parametrize("mode", ["peak", "lookahead"])
@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_hold_against_an_attack(mode: str, seed: int) -> None:
    """T1 on bursts that a search has made as bad as it can."""
    dice = random.Random(seed)
    memory = 200
    burst = [(dice.randint(1, 90), dice.randint(1, 10)) for _ in range(12)]

    def badness(found: Burst) -> float:
        ratio = total(run(found, memory, "svf", mode)) / lower_bound(found, memory)
        return ratio / (1 + 2 / (1 - alpha(found, memory)))

    worst = badness(burst)
    for _ in range(150):
        other = list(burst)
        place = dice.randrange(len(other))
        other[place] = (dice.randint(1, 99), dice.choice([1, 2, 5, 20, 90]))
        if badness(other) > worst:
            burst, worst = other, badness(other)
        check_bounds(other, memory, mode)
    assert worst > 0.3  # the search found something; else it tests nothing


def optimum(burst: Burst, memory: int) -> int:
    """Return the least sum of completion times, by trying every start of every request."""

    @cache
    def least(waiting: frozenset[int], active: frozenset[tuple[int, int]]) -> float:
        """``active`` holds (request, its age)."""
        if not waiting and not active:
            return 0
        best = math.inf
        for count in range(len(waiting) + 1):
            for chosen in itertools.combinations(sorted(waiting), count):
                now = active | {(i, 0) for i in chosen}
                if not now or not fits(now):
                    continue
                after = frozenset((i, age + 1) for i, age in now if age + 1 < burst[i][1])
                cost = len(waiting) + len(active) + least(waiting - set(chosen), after)
                best = min(best, cost)
        return best

    def fits(now: frozenset[tuple[int, int]]) -> bool:
        ends = {burst[i][1] - age for i, age in now}
        return all(
            sum(burst[i][0] + age + end for i, age in now if burst[i][1] - age >= end) <= memory
            for end in ends
        )

    return int(least(frozenset(range(len(burst))), frozenset()))


@pytest.mark.parametrize("seed", range(25))
def test_against_every_schedule_of_small_bursts(seed: int) -> None:
    """T3: lower bound <= optimum <= SVF <= bound * optimum, for up to six requests."""
    dice = random.Random(seed)
    memory = 20
    burst = [(dice.randint(1, 9), dice.randint(1, 4)) for _ in range(dice.randint(2, 6))]
    best = optimum(burst, memory)
    assert lower_bound(burst, memory) <= best
    for mode in ("peak", "lookahead"):
        for policy in ("svf", "sjf", "fcfs"):
            assert best <= total(run(burst, memory, policy, mode))
        svf = total(run(burst, memory, "svf", mode))
        assert svf <= (1 + 2 / (1 - alpha(burst, memory))) * best


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_shortest_first_is_as_bad_as_one_likes(share: float) -> None:
    """T4: on wide short and thin long requests SJF/SVF doubles with four times the memory."""
    ratios = []
    for memory in (64, 256, 1_024, 4_096):
        wide = int(share * memory) - 1
        burst = [(wide, 1)] * int(math.sqrt(memory) / share) + [(1, 2)] * (memory // 3)
        svf = total(run(burst, memory, "svf"))
        assert svf <= 1.7 * lower_bound(burst, memory)
        ratios.append(total(run(burst, memory, "sjf")) / svf)
    growth = [later / earlier for earlier, later in itertools.pairwise(ratios)]
    assert all(1.6 <= factor <= 2.4 for factor in growth), ratios
    assert ratios[-1] > 10


@pytest.mark.parametrize("seed", range(20))
def test_one_bit_with_the_theorys_lengths(seed: int) -> None:
    """T5: only *short* or *long* is known; the sum stays within T of the lower bound (and 5)."""
    dice = random.Random(seed)
    memory = 1_000
    longest = dice.choice([16, 64, 256])
    threshold, short, long = one_bit_lengths(longest)
    burst = [(dice.randint(1, 240), dice.randint(1, longest)) for _ in range(30)]
    arrivals = [Arrival(s, o, predicted_tokens=long if o > threshold else short) for s, o in burst]
    for mode in ("peak", "lookahead"):
        outcome = serve(arrivals, memory, ORDERINGS["svf_onebit"], MODES[mode])
        assert total(outcome) <= max(5, longest) * lower_bound(burst, memory)


def test_a_request_that_waited_too_long_goes_first() -> None:
    small = [Arrival(20, 4, at_step=n) for n in range(200)]
    late = [*small[:9], Arrival(90, 10, at_step=9), *small[9:]]
    plain = serve(late, 100, ORDERINGS["svf"], MODES["peak"])
    patient = serve(late, 100, ORDERINGS["svf"], MODES["peak"], max_wait=50)
    assert plain.starts[9] > 150
    assert 50 < patient.starts[9] - 9 < 80


def test_the_impatient_start_no_later_than_first_come_first_served() -> None:
    """Where all that wait are guarded, what passes a blocked request delays nobody."""
    dice = random.Random(0)
    for _ in range(4_000):
        comes = itertools.accumulate(dice.choice([1, 3, 10]) for _ in range(GUARDED + 1))
        arrivals = [Arrival(dice.randint(1, 60), dice.randint(1, 30), at_step=at) for at in comes]
        fair = serve(arrivals, 100, ORDERINGS["svf"], MODES["peak"], max_wait=0)
        plain = serve(arrivals, 100, ORDERINGS["fcfs"], MODES["peak"])
        assert all(map(operator.le, fair.starts, plain.starts)), arrivals


def test_passing_a_blocked_request_helps() -> None:
    arrivals = [Arrival(60, 20), Arrival(60, 20, at_step=1), Arrival(5, 10, at_step=2)]
    fair = serve(arrivals, 100, ORDERINGS["svf"], MODES["peak"], max_wait=0)
    assert fair.starts == [0, 20, 2]
    assert serve(arrivals, 100, ORDERINGS["fcfs"], MODES["peak"]).starts == [0, 20, 20]


@settings(max_examples=40, deadline=None)
@given(
    case=bursts(),
    mode=st.sampled_from(sorted(MODES)),
    policy=st.sampled_from(sorted(ORDERINGS)),
    wrong=st.floats(0.2, 5.0),
    chunk=st.sampled_from([None, 16]),
)
def test_all_are_served_and_every_token_is_accounted_for(
    case: tuple[Burst, int], mode: str, policy: str, wrong: float, chunk: int | None
) -> None:
    """Also with wrong predictions, where the worker must preempt, it ends and never exceeds its memory."""
    burst, memory = case
    arrivals = [
        Arrival(s, o, predicted_tokens=max(1.0, wrong * o), bound_tokens=max(1, int(wrong * o)))
        for s, o in burst
    ]
    outcome = serve(arrivals, memory, ORDERINGS[policy], MODES[mode], chunk=chunk, steps=200_000)
    assert min(outcome.ends) > 0
    assert outcome.memory_steps <= memory * outcome.steps
    if not outcome.preemptions and chunk is None:
        assert outcome.memory_steps == sum(volume(s, o) for s, o in burst)


def test_children_that_share_a_prefix_are_small() -> None:
    """Effective volume: what others hold already counts once among its sharers."""
    from semops.engine.ordering.volume import Job, effective_volume

    child = Job(1, 1_000, 10, cached_tokens=960, sharers=4)
    assert effective_volume(child) == volume(40 + 240, 10)
    assert effective_volume(child) < effective_volume(Job(0, 500, 10))
