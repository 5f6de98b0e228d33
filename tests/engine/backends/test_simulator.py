"""The simulator, against steps worked out by hand and against what must always hold.

That it takes the very steps of vLLM is in tests/integration/test_recording.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semops.engine.backends.simulator import Simulated, SimulatorBackend, TimeModel
from semops.engine.plan import Answer, Call, Decoding, Finish, Request
from semops.engine.trace import StepRecord

BLOCK = 4


class Ask(NamedTuple):
    """A request and when it comes."""

    ids: Sequence[int]
    output: int = 1
    priority: int = 0
    step: int = 0


class Engine:
    """A small simulator, with a log of what each step did."""

    def __init__(self, blocks: int = 100, **options: Any) -> None:
        self.lengths: dict[int, int] = {}
        options = {"block_tokens": BLOCK, "max_running": 8, "chunk_tokens": 64, **options}
        self.backend = SimulatorBackend(
            lambda request: Simulated(request.call.row["output"]),  # type: ignore[union-attr]
            kv_tokens=blocks * options["block_tokens"],
            **options,
        )
        self.submitted = 0
        self.steps: list[StepRecord] = []
        self.ended: list[list[int]] = []
        """Keys of the requests that ended, by step."""
        self.answers: dict[int, Answer] = {}

    def submit(self, ask: Ask) -> None:
        """Queue a request; keys count from 0."""
        call = Call("", "", {"output": ask.output})
        request = Request(ask.ids, 0, Decoding(ask.output), call)
        self.backend.submit(self.submitted, request, ask.output, ask.priority)
        self.submitted += 1

    def step(self) -> None:
        with self.backend.record() as recorder:
            answers = self.backend.step()
        self.steps += recorder.steps
        self.ended.append([key for key, _ in answers])
        self.answers |= dict(answers)

    def run(self, asks: Sequence[Ask] = (), watch: Callable[[], None] = lambda: None) -> Engine:
        """Submit each request at its step, and go on to the end."""
        todo = deque(sorted(asks, key=lambda ask: ask.step))
        for number in range(5_000):
            while todo and todo[0].step <= number:
                self.submit(todo.popleft())
            if not todo and not any(self.backend.progress()):
                return self
            self.step()
            watch()
        raise AssertionError("requests don't end")

    @property
    def work(self) -> list[tuple[int, int, int]]:
        return [(step.prefill, step.decode, step.context) for step in self.steps]

    @property
    def cached(self) -> list[int]:
        return [answer.cached_tokens for _, answer in sorted(self.answers.items())]


def doc(number: int, tokens: int) -> range:
    """Ids that no other number shares."""
    return range(number * 1_000, number * 1_000 + tokens)


# Steps by hand.


def test_a_prompt_is_computed_in_chunks_and_then_decodes_one_token_a_step() -> None:
    engine = Engine(chunk_tokens=8).run([Ask(doc(1, 20), output=3)])
    assert engine.work == [(8, 0, 8), (8, 0, 16), (4, 0, 20), (0, 1, 21), (0, 1, 22)]


def test_running_requests_go_first_and_what_is_left_admits_the_next() -> None:
    engine = Engine(chunk_tokens=8).run([Ask(doc(1, 6), output=3), Ask(doc(2, 9), output=1)])
    # 6 of the first and 2 of the second; then 1 and 7; then the first alone.
    assert engine.work == [(8, 0, 8), (7, 1, 16), (0, 1, 8)]
    assert engine.ended == [[], [1], [0]]


def test_smaller_priorities_start_first_and_equal_ones_in_their_order() -> None:
    asks = [Ask(doc(n, 8), priority=p) for n, p in enumerate([1, 0, -3, 0])]
    engine = Engine(chunk_tokens=8, max_running=1).run(asks)
    assert engine.ended == [[2], [1], [3], [0]]


def test_no_more_run_than_there_are_seats() -> None:
    engine = Engine(max_running=2).run([Ask(doc(n, 4), output=2) for n in range(5)])
    assert engine.ended == [[], [0, 1], [], [2, 3], [], [4]]


def test_hits_are_whole_blocks_and_leave_at_least_one_token_to_compute() -> None:
    asks = [Ask(doc(1, n), step=place) for place, n in enumerate([16, 16, 18, 21, 15, 3])]
    assert Engine().run(asks).cached == [0, 12, 16, 16, 12, 0]


def test_equal_prefixes_are_shared_in_the_step_that_computes_them() -> None:
    asks = [Ask((*doc(1, 8), *doc(n, 4))) for n in (2, 3, 4)]
    engine = Engine().run(asks)
    assert engine.cached == [0, 8, 8]
    assert engine.work == [(12 + 4 + 4, 0, 36)]


def test_a_prefix_is_shared_only_as_far_as_it_has_been_computed() -> None:
    engine = Engine(chunk_tokens=8, max_running=2).run([Ask(doc(1, 15)), Ask(doc(1, 16))])
    assert engine.work[0] == (8, 0, 8)
    # 7 of the first and 1 of the second, which finds three blocks: the fourth isn't full.
    assert engine.work[1] == (8, 0, 15 + 13)
    assert engine.cached == [0, 12]


def test_the_whole_prompt_must_fit_before_it_starts() -> None:
    engine = Engine(blocks=10, chunk_tokens=8)
    engine.run([Ask(doc(1, 20), output=2), Ask(doc(2, 24)), Ask(doc(3, 4), priority=5)])
    # Five blocks are left, the second needs six; the third would fit but stands behind it.
    assert engine.ended == [[], [], [], [0], [], [], [1], [2]]
    assert engine.backend.totals.preemptions == 0


def test_answers_are_cached_too_and_evicted_after_older_prompts() -> None:
    engine = Engine(blocks=6)
    engine.run([Ask(doc(1, 8))])
    engine.run([Ask(doc(2, 7), output=6)])
    # The second left three full blocks (12 of its 13 tokens), the first two; one is blank.
    assert engine.backend.pool.free == 6
    engine.submit(Ask(doc(3, 12)))
    engine.step()
    assert engine.backend.pool.evictions == 2
    assert engine.backend.cached_tokens(doc(1, 8)) == 0, "older than what the second left"
    assert engine.backend.cached_tokens(doc(2, 7)) == 4


def test_the_tail_of_a_prompt_is_evicted_before_its_head() -> None:
    engine = Engine(blocks=5)
    engine.run([Ask(doc(1, 16))])
    engine.submit(Ask(doc(2, 12)))
    engine.step()
    assert engine.backend.cached_tokens(doc(1, 16)) == 8


def test_open_blocks_are_reused_before_cached_ones() -> None:
    engine = Engine(blocks=6)
    engine.run([Ask(doc(1, 16)), Ask(doc(2, 7))])  # six blocks, of which the last is not full
    engine.submit(Ask(doc(3, 3)))
    engine.step()
    assert engine.backend.pool.evictions == 0


def test_a_prompt_cached_as_a_whole_computes_its_last_block_into_a_second_one() -> None:
    engine = Engine(blocks=6).run([Ask(doc(1, 16)), Ask(doc(1, 16), step=1)])
    assert engine.cached == [0, 12]
    engine.submit(Ask(doc(2, 8)))
    engine.step()
    # Of six blocks four were the prompt, one its copy, one blank: one had to go.
    assert engine.backend.pool.evictions == 1
    assert engine.backend.cached_tokens(doc(1, 16)) == 16


GROWING = (Ask(doc(1, 8), output=6), Ask(doc(2, 8), output=6, priority=-1))
"""Two blocks each; with five, the second request to ask for a third one finds none."""


def test_the_largest_priority_is_preempted_and_starts_over_from_what_is_still_cached() -> None:
    engine = Engine(blocks=5).run(GROWING)
    # The second goes first and takes the fifth block; the first gives its blocks back, of which the
    # second takes the tail for its 13th token.
    alone = [(0, 1, tokens) for tokens in range(9, 14)]
    assert engine.work == [(16, 0, 16), *alone, (5, 0, 9), *alone[1:]]
    assert engine.ended[5] == [1]
    assert engine.ended[10] == [0]
    totals = engine.backend.totals
    assert (totals.preemptions, totals.recomputed_tokens) == (1, 8 - 4)
    assert [answer.output_tokens for answer in engine.answers.values()] == [6, 6]
    assert engine.cached == [0, 0], "what counts is the first admission"


def test_nothing_is_admitted_in_a_step_that_preempts() -> None:
    engine = Engine(blocks=5).run([*GROWING, Ask(doc(3, 2), priority=-5, step=1)])
    assert engine.work[1:3] == [(0, 1, 9), (2, 1, 12)]


def test_a_request_that_preempts_itself_keeps_those_behind_it_from_running_in_the_step() -> None:
    engine = Engine(blocks=5)
    late = Ask(doc(2, 5), output=6, priority=5, step=1)
    engine.submit(Ask(doc(1, 8), output=9, priority=6))
    engine.step()
    engine.submit(late)
    for _ in range(5):
        engine.step()
    assert engine.work == [(8, 0, 8), (5, 1, 14), (0, 2, 16), (0, 2, 18), (0, 2, 20)]
    assert engine.backend.progress() == (1, 1), "the sixth step did nothing but preempt"
    engine.step()
    assert engine.work[5] == (0, 1, 9)
    engine.run()
    assert engine.ended[-1] == [0]


def test_a_victim_served_already_in_the_step_did_not_run_in_it() -> None:
    engine = Engine(blocks=4)
    engine.submit(Ask(doc(1, 5), output=3, priority=10))
    engine.step()
    engine.run([Ask(doc(2, 8), output=9)])
    # In the third step the first request would end, but then the second needs a block of its.
    assert engine.work[:3] == [(5, 0, 5), (8, 1, 14), (0, 1, 9)]
    assert engine.ended[2] == []
    assert engine.ended[-1] == [0]
    assert engine.work[-1] == (7, 0, 7)
    assert engine.backend.totals.recomputed_tokens == 6
    assert engine.answers[0].output_tokens == 3


# Requests, pins, time.


def test_a_predicate_decodes_one_token_with_log_probabilities_of_its_choices() -> None:
    backend = SimulatorBackend(lambda request: Simulated(7, yes=request.prompt_tokens > 5))
    for key, tokens in ((1, 4), (2, 6)):
        backend.submit(key, Request(doc(key, tokens), 0, Decoding(9, choices=(30, 40))), 9, 0)
    answers = dict(backend.step())
    assert answers[1].logprobs[30] < answers[1].logprobs[40]
    assert answers[2].logprobs[30] > answers[2].logprobs[40]
    assert [(a.output_tokens, a.finish) for a in answers.values()] == [(1, Finish.STOP)] * 2


@pytest.mark.parametrize(
    ("output", "bound", "expected"),
    [(3, 8, (3, Finish.STOP)), (8, 8, (8, Finish.STOP)), (9, 8, (8, Finish.LENGTH))],
)
def test_an_answer_ends_at_its_bound(output: int, bound: int, expected: tuple[int, Finish]) -> None:
    backend = SimulatorBackend(lambda _: Simulated(output))
    backend.submit(1, Request(doc(1, 5), 0, Decoding(100)), bound, 0)
    answers: list[tuple[int, Answer]] = []
    while not answers:
        answers = backend.step()
    assert (answers[0][1].output_tokens, answers[0][1].finish) == expected


def test_a_prompt_over_the_context_is_refused_and_an_answer_ends_with_it() -> None:
    backend = SimulatorBackend(lambda _: Simulated(50), kv_tokens=64, context_tokens=20)
    backend.submit(1, Request(doc(1, 20), 0, Decoding(100)), 100, 0)
    backend.submit(2, Request(doc(2, 17), 0, Decoding(100)), 100, 0)
    [(key, refused)] = backend.step()
    assert (key, refused.finish) == (1, Finish.ERROR)
    assert "20 tokens" in refused.detail
    answers = [answer for _ in range(5) for _, answer in backend.step()]
    assert [(a.output_tokens, a.finish) for a in answers] == [(3, Finish.LENGTH)]


def test_a_key_in_use_is_refused() -> None:
    engine = Engine()
    engine.submit(Ask(doc(1, 4)))
    engine.submitted = 0
    with pytest.raises(ValueError, match="in use"):
        engine.submit(Ask(doc(2, 4)))


def test_aborted_requests_give_no_answer_and_stay_cached() -> None:
    engine = Engine(max_running=1)
    for key in range(3):
        engine.submit(Ask(doc(key, 12), output=9))
    engine.step()
    engine.backend.abort([0, 2, 77])
    assert engine.backend.progress() == (0, 1)
    assert engine.backend.cached_tokens(doc(0, 12)) == 12
    engine.run()
    assert list(engine.answers) == [1]


def test_pinned_blocks_outlive_any_pressure_and_come_back() -> None:
    engine = Engine(blocks=10)
    engine.run([Ask(doc(1, 12))])
    assert engine.backend.pin(7, doc(1, 15)) == 12
    engine.run([Ask(doc(n, 24)) for n in range(2, 6)])
    assert engine.backend.cached_tokens(doc(1, 15)) == 12
    assert engine.backend.pool.referenced == 3
    assert engine.backend.pin(7, doc(9, 15)) == 0, "a second pin replaces the first"
    assert engine.backend.pool.referenced == 0
    assert engine.backend.unpin_all() == 0


def test_with_everything_pinned_nothing_runs_and_time_passes() -> None:
    engine = Engine(blocks=5)
    engine.run([Ask(doc(1, 16))])
    engine.backend.pin(1, doc(1, 16))
    engine.submit(Ask(doc(2, 8)))
    before = engine.backend.now_s
    assert engine.backend.step() == []
    assert engine.backend.now_s > before
    assert engine.backend.progress() == (0, 1)
    assert engine.backend.unpin_all() == 1
    engine.run()
    assert set(engine.answers) == {0, 1}


def test_the_clock_adds_up_what_the_time_model_says() -> None:
    model = TimeModel(1.0, 0.1, 0.01, 0.001)
    engine = Engine(time_model=model).run([Ask(doc(1, 10), output=2), Ask(doc(2, 5))])
    assert engine.backend.now_s == pytest.approx(1.0 + 1.5 + 0.015 + 1.0 + 0.01 + 0.011)
    idle = engine.backend.now_s
    assert engine.backend.step() == []
    assert engine.backend.now_s == idle


def test_closing_gives_everything_back() -> None:
    engine = Engine()
    engine.run([Ask(doc(1, 12))])
    engine.backend.pin(1, doc(1, 12))
    engine.submit(Ask(doc(2, 8), output=4))
    engine.step()
    engine.backend.close()
    assert (engine.backend.pool.referenced, engine.backend.progress()) == (0, (0, 0))


# What must always hold.


@st.composite
def asks(draw: st.DrawFn, blocks: int) -> list[Ask]:
    """Prompts over few prefixes, so that they share, within a pool of so many blocks."""
    found = []
    for number in range(draw(st.integers(1, 14))):
        output = draw(st.integers(1, 2 * BLOCK + 1))
        tokens = draw(st.integers(1, blocks * BLOCK - output))
        shared = draw(st.integers(0, tokens))
        ids = (*doc(draw(st.integers(1, 2)), shared), *doc(10 + number, tokens - shared))
        found.append(Ask(ids, output, draw(st.integers(-1, 1)), draw(st.integers(0, 12))))
    return sorted(found, key=lambda ask: ask.step)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(3, 12), st.integers(1, 5), st.integers(1, 20))
def test_memory_is_never_over_committed_and_everything_ends(
    data: st.DataObject, blocks: int, max_running: int, chunk: int
) -> None:
    wanted = data.draw(asks(blocks))
    engine = Engine(blocks, max_running=max_running, chunk_tokens=chunk)
    batcher, pool = engine.backend._batcher, engine.backend.pool

    def watch() -> None:
        held = {block for item in batcher.running for block in item.blocks}
        assert pool.referenced == len(held) <= blocks
        assert len(batcher.running) <= max_running
        assert all(i.computed <= len(i.blocks) * BLOCK == i.room for i in batcher.running)
        # Only the last can be amid its prompt.
        assert all(i.target - i.computed == 1 for i in batcher.running[:-1])
        assert batcher._held == sum(item.computed for item in batcher.running)

    engine.run(wanted, watch)
    assert pool.referenced == 0
    assert all(p + d <= max(chunk, max_running) for p, d, _ in engine.work)
    answers = [answer for _, answer in sorted(engine.answers.items())]
    assert [a.output_tokens for a in answers] == [ask.output for ask in wanted]
    assert all(a.cached_tokens % BLOCK == 0 for a in answers)
    assert all(a.cached_tokens < a.prompt_tokens for a in answers)
    totals = engine.backend.totals
    assert totals.cached_tokens == sum(a.cached_tokens for a in answers)
    assert totals.prompt_tokens == sum(len(ask.ids) for ask in wanted)
    assert totals.prefill_tokens == sum(p for p, _, _ in engine.work)
    assert totals.decode_tokens == sum(d for _, d, _ in engine.work)
    assert totals.steps == len(engine.work)
    asked = totals.prompt_tokens - totals.cached_tokens + sum(ask.output - 1 for ask in wanted)
    assert totals.prefill_tokens + totals.decode_tokens == asked + totals.recomputed_tokens
    if not totals.preemptions:
        assert totals.recomputed_tokens == 0


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(3, 12), st.integers(1, 5), st.integers(1, 20))
def test_jumping_changes_nothing_but_the_number_of_calls(
    data: st.DataObject, blocks: int, max_running: int, chunk: int
) -> None:
    wanted = [ask._replace(step=0) for ask in data.draw(asks(blocks))]
    slow, fast = (
        Engine(blocks, max_running=max_running, chunk_tokens=chunk, jump=jump).run(wanted)
        for jump in (False, True)
    )
    assert slow.steps == fast.steps
    assert slow.answers == fast.answers
    assert slow.backend.totals == fast.backend.totals
    assert slow.backend.now_s == fast.backend.now_s
    assert len(fast.ended) <= len(slow.ended)


def test_jumping_skips_steps() -> None:
    engine = Engine(jump=True, block_tokens=64).run([Ask(doc(1, 10), output=40)])
    assert len(engine.steps) == 40
    assert len(engine.ended) == 2


@settings(deadline=None)
@given(st.data())
def test_the_same_requests_give_the_same_run(data: st.DataObject) -> None:
    wanted = data.draw(asks(6))
    first, second = (Engine(6, chunk_tokens=9).run(wanted) for _ in range(2))
    assert (first.steps, first.answers) == (second.steps, second.answers)


@settings(deadline=None)
@given(st.data(), st.integers(8, 12))
def test_pins_hold_whatever_else_runs(data: st.DataObject, blocks: int) -> None:
    wanted = data.draw(asks(blocks - 3))
    engine = Engine(blocks).run([Ask(doc(5, 3 * BLOCK))])
    assert engine.backend.pin(1, doc(5, 3 * BLOCK)) == 3 * BLOCK
    engine.run(
        [ask._replace(step=0) for ask in wanted],
        lambda: _still_there(engine.backend),
    )
    engine.backend.unpin(1)
    assert engine.backend.pool.referenced == 0


def _still_there(backend: SimulatorBackend) -> None:
    assert backend.cached_tokens(doc(5, 3 * BLOCK)) == 3 * BLOCK
