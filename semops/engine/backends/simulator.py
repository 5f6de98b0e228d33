"""The simulator: continuous batching on a virtual clock, with a calibrated time model.

It steps as vLLM does: running requests first (one token each, or the next chunk of their prompt), then
waiting ones by priority; prompts in chunks under one token budget; a block pool in which every full block
is cached and the least recently used one is evicted; preemption of the lowest priority where a running
request finds no block. Nothing sleeps: a step of a second takes microseconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from semops.engine.backend import Capabilities
from semops.engine.backends.replay import WordTokenizer
from semops.engine.block_pool import BlockPool, block_hashes
from semops.engine.plan import Answer, Finish, Request


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Seconds of an engine step: ``t = b0 + a*P + d*D + k*K``.

    Examples
    --------
    >>> TimeModel(0.01, 1e-4, 1e-3, 0.0).seconds(prefill=100, decode=2, context=5_000)
    0.022
    """

    base_s: float = 7e-3
    """``b0``, seconds of a step whatever it does."""
    prefill_s: float = 85e-6
    """``a``, seconds a prompt token computed (``P``)."""
    decode_s: float = 40e-6
    """``d``, seconds a token decoded (``D``)."""
    context_s: float = 15e-9
    """``k``, seconds a token of KV that running requests hold (``K``)."""

    def seconds(self, prefill: int, decode: int, context: int) -> float:
        """Return the seconds of a step."""
        return (
            self.base_s
            + self.prefill_s * prefill
            + self.decode_s * decode
            + self.context_s * context
        )


@dataclass(frozen=True, slots=True)
class Simulated:
    """What the simulated model answers."""

    output_tokens: int = 1
    """Length of the answer without a cap, in tokens."""
    yes: bool = True
    """The verdict, for predicates."""
    text: str = ""


@dataclass(slots=True)
class Totals:
    """Sums over all steps so far."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True, eq=False)
class _Sequence:
    key: int
    request: Request
    max_tokens: int
    priority: int
    arrival: int
    answer: Simulated
    hashes: list[int]
    held: list[int] = field(default_factory=list)
    """Hashes of the full blocks that it references."""
    private: int = 0
    """Blocks that it holds and that are not full."""
    computed: int = 0
    """Tokens whose KV is there."""
    generated: int = 0
    cached: int | None = None
    """Tokens found in the cache when it was first admitted."""

    @property
    def length(self) -> int:
        """Tokens to compute before the next one can be decoded."""
        return self.request.prompt_tokens + self.generated

    @property
    def wanted(self) -> int:
        """Tokens that it will decode."""
        return min(self.answer.output_tokens, self.max_tokens)


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
        Most tokens of one step.
    pinning
        Whether prefixes can be pinned.

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
            pinning=pinning,
            reasons=() if pinning else ("pinning switched off by the caller",),
        )
        self._tokenizer = WordTokenizer()
        self._chunk = chunk_tokens
        self.pool = BlockPool(blocks)
        self._waiting: list[tuple[int, int, _Sequence]] = []
        self._running: list[_Sequence] = []
        self._pins: dict[int, list[int]] = {}
        self._arrivals = 0
        self.now_s = 0.0
        """The virtual clock, in seconds."""
        self.totals = Totals()

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""
        return self._capabilities

    @property
    def tokenizer(self) -> WordTokenizer:
        """The tokenizer."""
        return self._tokenizer

    def clock(self) -> float:
        """Return the virtual time, in seconds."""
        return self.now_s

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        """Queue a request."""
        self._arrivals += 1
        hashes = block_hashes(request.token_ids, self._capabilities.block_tokens)
        sequence = _Sequence(
            key, request, max_tokens, priority, self._arrivals, self._answer(request), hashes
        )
        heapq.heappush(self._waiting, (priority, sequence.arrival, sequence))

    def step(self) -> list[tuple[int, Answer]]:
        """Run one step and advance the clock by what it takes."""
        if not self._running and not self._waiting:
            return []
        budget = self._chunk
        prefill = decode = 0
        finished: list[_Sequence] = []
        for sequence in list(self._running):
            if sequence not in self._running:
                continue  # preempted for one before it
            take = min(sequence.length - sequence.computed, budget)
            if take <= 0 or not self._grow(sequence, take, preempt=True):
                continue
            budget -= take
            decodes = sequence.generated > 0 and take == 1
            decode += decodes
            prefill += 0 if decodes else take
            self._advance(sequence, take, finished)
        prefill += self._admit(budget, finished)
        context = sum(sequence.computed for sequence in self._running)
        if prefill or decode:
            self.now_s += self._time_model.seconds(prefill, decode, context)
            self.totals.steps += 1
            self.totals.prefill_tokens += prefill
            self.totals.decode_tokens += decode
        for sequence in finished:
            self._running.remove(sequence)
            self._release(sequence)
        return [(sequence.key, _to_answer(sequence)) for sequence in finished]

    def abort(self, keys: Sequence[int]) -> None:
        """Forget requests; what they computed stays cached."""
        gone = set(keys)
        self._waiting = [entry for entry in self._waiting if entry[2].key not in gone]
        heapq.heapify(self._waiting)
        for sequence in [s for s in self._running if s.key in gone]:
            self._running.remove(sequence)
            self._release(sequence)

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Keep the cached blocks of a prefix."""
        self.unpin(key)
        hashes = block_hashes(token_ids, self._capabilities.block_tokens)
        held = hashes[: self.pool.matched(hashes)]
        self.pool.acquire(held, 0)
        self._pins[key] = held
        return len(held) * self._capabilities.block_tokens

    def unpin(self, key: int) -> None:
        """Let blocks go."""
        self.pool.release(self._pins.pop(key, []), 0)

    def unpin_all(self) -> int:
        """Let all pinned blocks go."""
        count = len(self._pins)
        for key in list(self._pins):
            self.unpin(key)
        return count

    def progress(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""
        return len(self._running), len(self._waiting)

    def busy_waiting(self) -> bool:
        """Return False: nothing waits for anything but memory."""
        return False

    def close(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._running.clear()
        self._pins.clear()

    def _admit(self, budget: int, finished: list[_Sequence]) -> int:
        """Start waiting requests while tokens, seats and blocks last; return tokens computed."""
        block = self._capabilities.block_tokens
        computed = 0
        while self._waiting and budget > 0 and len(self._running) < self._capabilities.max_running:
            sequence = self._waiting[0][2]
            usable = (sequence.length - 1) // block  # at least one token is computed
            hits = min(self.pool.matched(sequence.hashes), usable)
            # As vLLM does by default: the whole prompt must fit before it starts.
            fits = math.ceil(sequence.length / block) - hits
            cached = sequence.hashes[:hits]
            if not self.pool.has_room(cached, fits):
                break
            self.pool.acquire(cached, 0)
            heapq.heappop(self._waiting)
            sequence.held = list(cached)
            sequence.computed = hits * block
            if sequence.cached is None:
                sequence.cached = hits * block
                self.totals.cached_tokens += hits * block
                self.totals.prompt_tokens += sequence.request.prompt_tokens
            self._running.append(sequence)
            take = min(sequence.length - sequence.computed, budget)
            if not self._grow(sequence, take, preempt=False):
                break
            budget -= take
            computed += take
            self._advance(sequence, take, finished)
        return computed

    def _advance(self, sequence: _Sequence, tokens: int, finished: list[_Sequence]) -> None:
        """Count computed tokens; where the last one was, a token is decoded."""
        sequence.computed += tokens
        if sequence.computed < sequence.length:
            return
        sequence.generated += 1
        if sequence.generated >= sequence.wanted:
            finished.append(sequence)

    def _grow(self, sequence: _Sequence, tokens: int, *, preempt: bool) -> bool:
        """Take the blocks for more tokens, from lower priorities where there is no other way."""
        block = self._capabilities.block_tokens
        end = sequence.computed + tokens
        full = end // block
        new = [self._hash(sequence, number) for number in range(len(sequence.held), full)]
        private = int(end % block > 0)
        while not self.pool.acquire(new, private - sequence.private):
            if not preempt:
                return False
            victim = max(self._running, key=lambda s: (s.priority, s.arrival))
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.held += new
        sequence.private = private
        return True

    def _hash(self, sequence: _Sequence, number: int) -> int:
        """Return the hash of a full block; one that holds answer tokens is its request's alone."""
        if number < len(sequence.hashes):
            return sequence.hashes[number]
        return hash((sequence.arrival, number))

    def _preempt(self, sequence: _Sequence) -> None:
        self._running.remove(sequence)
        self._release(sequence)
        sequence.computed = 0
        self.totals.preemptions += 1
        heapq.heappush(self._waiting, (sequence.priority, sequence.arrival, sequence))

    def _release(self, sequence: _Sequence) -> None:
        self.pool.release(sequence.held, sequence.private)
        sequence.held, sequence.private = [], 0


def _to_answer(sequence: _Sequence) -> Answer:
    request, answer = sequence.request, sequence.answer
    cached = sequence.cached or 0
    if request.decoding.choices:
        yes, no = request.decoding.choices
        logprobs = {yes: math.log(0.9), no: math.log(0.1)}
        if not answer.yes:
            logprobs = {yes: math.log(0.1), no: math.log(0.9)}
        return Answer(answer.text, Finish.STOP, 1, request.prompt_tokens, cached, logprobs)
    cut = answer.output_tokens > sequence.max_tokens
    finish = Finish.LENGTH if cut else Finish.STOP
    return Answer(answer.text, finish, sequence.wanted, request.prompt_tokens, cached)
