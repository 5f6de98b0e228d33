"""Recorded steps of a real engine, and the simulator that takes the very same ones."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from semops.engine.backends.simulator import Simulated, SimulatorBackend
from semops.engine.plan import Answer, Decoding, Finish, Request
from semops.engine.trace import StepTrace

pytestmark = pytest.mark.integration


class Ask(NamedTuple):
    ids: list[int]
    max_tokens: int
    priority: int
    step: int
    """Before which step it is queued."""


def asks(seed: int) -> list[Ask]:
    """Prompts that share prefixes and fill the memory, so that answers preempt one another."""
    dice = random.Random(seed)

    def words(count: int) -> list[int]:
        return [dice.randrange(300, 30_000) for _ in range(count)]

    prefixes = [words(tokens) for tokens in (64, 70, 130)]
    found = []
    for _ in range(24):
        ids = dice.choice(prefixes) + words(dice.randrange(0, 160))
        found.append(
            Ask(ids, dice.choice([1, 20, 60, 60]), dice.randrange(-1, 2), dice.randrange(12))
        )
    return sorted(found, key=lambda ask: ask.step)


def drive(backend: Any, wanted: list[Ask]) -> tuple[StepTrace, dict[int, Answer]]:
    # Memory that someone else holds, so that little is left.
    held = [17] * 2_016
    backend.submit(0, Request(held, 0, Decoding(1)), 1, 0)
    while any(backend.progress()):
        backend.step()
    assert backend.pin(2, held) == 2_016
    answers: dict[int, Answer] = {}
    submitted = 0
    with backend.record() as recorder:
        for step in range(2_000):
            while submitted < len(wanted) and wanted[submitted].step <= step:
                ask = wanted[submitted]
                request = Request(ask.ids, 0, Decoding(ask.max_tokens))
                backend.submit(submitted, request, ask.max_tokens, ask.priority)
                submitted += 1
            answers |= dict(backend.step())
            if step % 10 == 4:
                backend.pin(1, wanted[step % len(wanted)].ids)
            if step % 10 == 8:
                backend.unpin(1)
            if len(answers) == len(wanted):
                break
    backend.unpin_all()
    return recorder.trace(), answers


def test_the_simulator_takes_the_steps_of_vllm(vllm_backend):
    """Prefill, decoded and held tokens of each step; order, length and cached tokens of each answer."""
    assert vllm_backend._engine.reset_prefix_cache()
    wanted = asks(5)
    real, answers = drive(vllm_backend, wanted)
    lengths = {
        (*wanted[key].ids, wanted[key].max_tokens): answer.output_tokens
        + (answer.finish is Finish.LENGTH)
        for key, answer in answers.items()
    }
    sizes = vllm_backend.capabilities
    simulator = SimulatorBackend(
        lambda asked: Simulated(lengths.get((*asked.token_ids, asked.decoding.max_tokens), 1)),
        kv_tokens=sizes.kv_tokens,
        block_tokens=sizes.block_tokens,
        context_tokens=sizes.context_tokens,
        max_running=sizes.max_running,
        chunk_tokens=real.chunk_tokens,
    )
    simulated, found = drive(simulator, wanted)
    assert simulator.totals.preemptions > 0, "the test is to cover preemption"
    assert simulator.pool.evictions > 0
    steps, expected = (
        [(step.prefill, step.decode, step.context) for step in trace.steps]
        for trace in (simulated, real)
    )
    assert steps == expected
    assert list(found) == list(answers), "in the same order"
    assert simulated.requests == real.requests


def test_recording_ends_with_its_block(vllm_backend):
    with vllm_backend.record() as recorder:
        vllm_backend.submit(1, Request([5, 6, 7], 0, Decoding(2)), 2, 0)
        while any(vllm_backend.progress()):
            vllm_backend.step()
    trace = recorder.trace()
    assert trace.computed_tokens == sum(step.prefill for step in trace.steps) == 3
    assert all(step.seconds > 0 for step in trace.steps)
    assert trace.model == vllm_backend.capabilities.model
    vllm_backend.submit(1, Request([5, 6, 7], 0, Decoding(2)), 2, 0)
    while any(vllm_backend.progress()):
        vllm_backend.step()
    assert len(recorder.trace().steps) == len(trace.steps)
