"""The simulator: continuous batching on a virtual clock, with a calibrated time model.

It steps as vLLM does: running requests first (one token each, or the next chunk of their prompt), then
waiting ones by priority; prompts in chunks under one token budget; physical blocks of which every full one
is cached and the least recently used one is evicted; preemption of the lowest priority where a running
request finds no block. Nothing sleeps: a step of a second takes microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from semops.engine.backend import Capabilities
from semops.engine.backends.replay import WordTokenizer
from semops.engine.batching import Batcher, Generation, StepWork, Totals
from semops.engine.block_pool import block_hashes
from semops.engine.plan import Answer, Finish, Request
from semops.engine.prefix_cache import PrefixCache
from semops.engine.time_model import TimeModel
from semops.engine.trace import Recorder

__all__ = ["Simulated", "SimulatorBackend", "TimeModel", "Totals"]

IDLE_S = 1e-3
"""How far a step that can do nothing moves the clock, in seconds; whoever waits for memory sees time pass."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the simulated model answers."""

    output_tokens: int = 1
    """Length of the answer without a cap, in tokens."""
    yes: bool = True
    """The verdict, for predicates."""
    text: str = ""


class SimulatorBackend:
    """The :class:`~semops.engine.backend.Backend` protocol on a virtual clock.

    Parameters
    ----------
    answer
        Gives what the model would answer to a request; a function of the request alone.
    time_model
        Seconds of a step.
    kv_tokens, block_tokens, context_tokens, max_running
        As in :class:`~semops.engine.backend.Capabilities`.
    chunk_tokens
        Most tokens of one step; at least ``max_running``.
    pinning
        Whether prefixes can be pinned.
    jump
        Whether :meth:`step` goes on while nothing can end, start or need a block. It computes the same in
        less time, for a caller that submits only when answers come.

    Examples
    --------
    >>> from semops.engine.plan import Decoding
    >>> engine = SimulatorBackend(lambda request: Simulated(output_tokens=3))
    >>> engine.submit(1, Request(range(100), 0, Decoding(8)), 8, 0)
    >>> answers = []
    >>> while not answers:
    ...     answers = engine.step()
    >>> answers[0][1].output_tokens, engine.totals.steps
    (3, 3)
    """

    def __init__(
        self,
        answer: Callable[[Request], Simulated],
        time_model: TimeModel | None = None,
        *,
        kv_tokens: int = 65_536,
        block_tokens: int = 16,
        context_tokens: int | None = None,
        max_running: int = 256,
        chunk_tokens: int = 2_048,
        pinning: bool = True,
        jump: bool = False,
    ) -> None:
        blocks = kv_tokens // block_tokens
        usable = blocks * block_tokens
        self._answer = answer
        self._time_model = time_model or TimeModel()
        self._capabilities = Capabilities(
            backend="simulator",
            model="simulated",
            block_tokens=block_tokens,
            kv_tokens=usable,
            context_tokens=min(context_tokens or usable, usable),
            max_running=max_running,
            chunk_tokens=max(chunk_tokens, max_running),
            pinning=pinning,
            reasons=() if pinning else ("pinning switched off by the caller",),
        )
        self._tokenizer = WordTokenizer()
        self.pool = PrefixCache(blocks)
        """The KV memory."""
        self._batcher = Batcher(
            self.pool,
            block_tokens=block_tokens,
            max_running=max_running,
            chunk_tokens=chunk_tokens,
        )
        self._jump = jump
        self._requests: dict[int, tuple[Request, Simulated, int]] = {}
        """Request, answer and bound, by key."""
        self._refused: list[tuple[int, Answer]] = []
        self._pins: dict[int, list[int]] = {}
        self._arrivals = 0
        self._recorder: Recorder | None = None
        self._last_step = None if jump else (0, 0, 0)
        self.now_s = 0.0
        """The virtual clock, in seconds."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""
        return self._capabilities

    @property
    def tokenizer(self) -> WordTokenizer:
        """The tokenizer."""
        return self._tokenizer

    @property
    def totals(self) -> Totals:
        """Sums over all steps so far."""
        return self._batcher.totals

    def clock(self) -> float:
        """Return the virtual time, in seconds."""
        return self.now_s

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        """Queue a request; smaller priorities go first."""
        if key in self._requests:
            raise ValueError(f"the request key {key} is in use")
        prompt_tokens = len(request.token_ids)
        room = self._capabilities.context_tokens - prompt_tokens
        if room < 1 or not prompt_tokens:
            detail = f"the prompt has {prompt_tokens} tokens, the context is {room + prompt_tokens}"
            self._refused.append((key, Answer("", Finish.ERROR, 0, prompt_tokens, detail=detail)))
            return
        self._arrivals += 1
        answer = self._answer(request)
        bound = 1 if request.decoding.choices else max(1, min(max_tokens, room))
        wanted = max(1, min(answer.output_tokens, bound))
        hashes = block_hashes(request.token_ids, self._capabilities.block_tokens)
        self._batcher.add(Generation(key, prompt_tokens, hashes, wanted, priority, self._arrivals))
        self._requests[key] = (request, answer, bound)
        if self._recorder is not None:
            self._recorder.submitted(key, request, bound)

    def step(self) -> list[tuple[int, Answer]]:
        """Run one step and advance the clock by what it takes."""
        answers, self._refused = self._refused, []
        batcher = self._batcher
        if not batcher.running and not batcher.waiting:
            return answers
        work = batcher.step()
        # With quiet steps skipped the time is that of several.
        self._last_step = None if self._jump else (work.prefill, work.decode, work.context)
        if not work.prefill and not work.decode:
            self.now_s += IDLE_S
            return answers
        self._pass_time(work.prefill, work.decode, work.context)
        if work.finished:
            answers += self._answers(work)
        elif self._jump and not answers:
            self._run_quiet_steps(work.context)
        return answers

    def last_step(self) -> tuple[int, int, int] | None:
        """Return prefill, decode and context tokens of the last step; None where steps are skipped."""
        return self._last_step

    def abort(self, keys: Sequence[int]) -> None:
        """Forget requests; what they computed stays cached."""
        gone = frozenset(keys)
        self._batcher.remove(gone)
        self._refused = [entry for entry in self._refused if entry[0] not in gone]
        for key in gone:
            self._requests.pop(key, None)

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Keep the cached blocks of a prefix."""
        block = self._capabilities.block_tokens
        held = self.pool.lookup(block_hashes(token_ids, block))
        self.pool.touch(held)
        self.unpin(key)
        if held:
            self._pins[key] = held
        return len(held) * block

    def unpin(self, key: int) -> None:
        """Let blocks go."""
        self.pool.release(self._pins.pop(key, []))

    def unpin_all(self) -> int:
        """Let all pinned blocks go."""
        count = len(self._pins)
        for key in list(self._pins):
            self.unpin(key)
        return count

    def cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many leading tokens of a prompt are cached now."""
        block = self._capabilities.block_tokens
        return len(self.pool.lookup(block_hashes(token_ids, block))) * block

    def progress(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""
        return len(self._batcher.running), self._batcher.waiting

    def busy_waiting(self) -> bool:
        """Return False: nothing waits for anything but memory."""
        return False

    @contextmanager
    def record(self) -> Iterator[Recorder]:
        """Record steps and requests in a block; :meth:`Recorder.trace` returns them."""
        recorder = Recorder(self._capabilities, self._batcher.chunk_tokens)
        self._recorder = recorder
        try:
            yield recorder
        finally:
            self._recorder = None

    def close(self) -> None:
        """Forget everything."""
        self.abort(list(self._requests))
        self.unpin_all()
        self._refused.clear()

    def _pass_time(self, prefill: int, decode: int, context: int) -> None:
        seconds = self._time_model.seconds(prefill, decode, context)
        self.now_s += seconds
        if self._recorder is not None:
            self._recorder.step(prefill, decode, context, seconds)

    def _run_quiet_steps(self, context: int) -> None:
        steps = self._batcher.quiet_steps()
        if not steps:
            return
        running = len(self._batcher.running)
        self._batcher.skip(steps)
        for number in range(1, steps + 1):
            self._pass_time(0, running, context + number * running)

    def _answers(self, work: StepWork) -> list[tuple[int, Answer]]:
        answers = []
        for item in work.finished:
            request, simulated, bound = self._requests.pop(item.key)
            answer = _answer(item, request, simulated, bound)
            answers.append((item.key, answer))
            if self._recorder is not None:
                self._recorder.answered(item.key, answer)
        return answers


def _answer(item: Generation, request: Request, simulated: Simulated, bound: int) -> Answer:
    cached = item.cached or 0
    choices = request.decoding.choices
    if choices:
        chosen = choices[0] if simulated.yes else choices[1]
        rest = math.log(0.1 / max(len(choices) - 1, 1))
        logprobs = {token: math.log(0.9) if token == chosen else rest for token in choices}
        return Answer(simulated.text, Finish.STOP, 1, item.prompt_tokens, cached, logprobs)
    finish = Finish.LENGTH if simulated.output_tokens > bound else Finish.STOP
    return Answer(simulated.text, finish, item.wanted, item.prompt_tokens, cached)
