"""Recorded runs: saved and loaded unchanged, without text, and good enough to share what was shared."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from semops.engine.backends.simulator import Simulated, SimulatorBackend
from semops.engine.block_pool import block_hashes
from semops.engine.plan import Answer, Decoding, Finish, Request
from semops.engine.trace import Recorder, RequestRecord, StepTrace, load, save, stand_in

IDS = st.lists(st.integers(0, 1), max_size=12)


def recorded(prompts: list[range], answer_tokens: int = 3, cap: int = 8) -> StepTrace:
    engine = SimulatorBackend(lambda _: Simulated(answer_tokens), chunk_tokens=64, max_running=4)
    with engine.record() as recorder:
        for number, ids in enumerate(prompts):
            engine.submit(number, Request(ids, 16, Decoding(cap)), cap, 0)
        while any(engine.progress()):
            engine.step()
    return recorder.trace()


def test_a_trace_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    trace = recorded([range(100), range(50), range(100)])
    assert len(trace.requests) == 3
    save(trace, tmp_path / "trace.json")
    assert load(tmp_path / "trace.json") == trace


def test_a_trace_adds_up() -> None:
    trace = recorded([range(100), range(1_000, 1_100), range(100)])
    assert trace.computed_tokens == sum(step.prefill for step in trace.steps)
    assert trace.cached_tokens == 96
    assert sum(step.decode for step in trace.steps) == 3 * 2
    assert trace.chunk_tokens == 64
    assert [r.finish for r in trace.requests] == [Finish.STOP] * 3


def test_an_answer_at_its_cap_is_recorded_as_cut_off() -> None:
    [record] = recorded([range(20)], answer_tokens=9).requests
    assert (record.output_tokens, record.max_tokens, record.finish) == (8, 8, Finish.LENGTH)


def test_nothing_is_recorded_outside_of_the_block() -> None:
    engine = SimulatorBackend(lambda _: Simulated())
    engine.submit(0, Request(range(10), 0, Decoding(1)), 1, 0)
    with engine.record() as recorder:
        engine.step()
    engine.submit(1, Request(range(10), 0, Decoding(1)), 1, 0)
    engine.step()
    trace = recorder.trace()
    assert (len(trace.steps), trace.requests) == (1, ())


def test_failed_requests_and_empty_steps_are_left_out() -> None:
    recorder = Recorder(SimulatorBackend(lambda _: Simulated()).capabilities, 64)
    recorder.submitted(1, Request([1], 0, Decoding(1)), 1)
    recorder.answered(1, Answer("", Finish.ERROR))
    recorder.step(0, 0, 0, 0.1)
    trace = recorder.trace()
    assert (trace.steps, trace.requests) == ((), ())


@given(IDS, IDS, st.integers(1, 4))
def test_stand_ins_share_the_blocks_that_the_prompts_shared(
    first: list[int], second: list[int], block: int
) -> None:
    records = []
    for ids in (first, second):
        hashes = tuple(block_hashes(ids, block))
        prompt = hash(tuple(ids))
        records.append(RequestRecord(prompt, hashes, len(ids), 0, 0, 1, False, 1, 0, Finish.STOP))
    stands = [stand_in(record, block) for record in records]
    assert [len(ids) for ids in stands] == [len(first), len(second)]
    shared = [a == b for a, b in zip(*(r.blocks for r in records), strict=False)]
    found = zip(*(block_hashes(ids, block) for ids in stands), strict=False)
    assert [a == b for a, b in found] == shared
