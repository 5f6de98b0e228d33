"""Continuous batching, step by step as vLLM's scheduler does it, without a model and without a clock.

Each step first serves the running requests in the order of their admission: one token each, or the next
chunk of a prompt. Where one finds no block, the request with the largest (priority, arrival) is preempted:
it gives all its blocks back and starts over. What is left of the token budget goes to waiting requests,
smallest (priority, arrival) first, as long as the whole prompt of the next one fits.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from semops.engine.block_pool import BlockHash
    from semops.engine.prefix_cache import PrefixCache


@dataclass(slots=True, eq=False)
class Generation:
    """A prompt and its answer in the making."""

    key: int
    prompt_tokens: int
    hashes: list[BlockHash]
    """Of the full blocks of the prompt; those of the answer are appended."""
    wanted: int
    """Tokens that will be decoded."""
    priority: int
    arrival: int
    blocks: list[int] = field(default_factory=list)
    """Blocks that it holds, in the order of its tokens."""
    room: int = 0
    """Tokens that fit into them."""
    stored: int = 0
    """How many of them are full and cached."""
    computed: int = 0
    """Tokens whose KV is there."""
    target: int = 0
    """Tokens whose KV must be there before the next token is decoded."""
    generated: int = 0
    cached: int | None = None
    """Tokens found in the cache when it was first admitted."""
    lost: int = 0
    """Tokens that were there when it was preempted."""
    step: int = -1
    """The step that served it last."""
    taken: int = 0
    """Tokens that it got in that step."""

    def __post_init__(self) -> None:
        self.target = self.prompt_tokens

    def block_hash(self, number: int) -> BlockHash:
        """Return the hash of a full block; one with answer tokens is this request's alone."""
        while len(self.hashes) <= number:
            self.hashes.append(hash((-1, self.arrival, len(self.hashes))))
        return self.hashes[number]


@dataclass(slots=True)
class Totals:
    """Sums over all steps so far.

    Once all requests have ended, ``prefill_tokens + decode_tokens`` is ``prompt_tokens - cached_tokens +
    recomputed_tokens`` plus all answer tokens but the last of each answer.
    """

    steps: int = 0
    prefill_tokens: int = 0
    """Tokens computed in chunks: of prompts, and again of preempted answers."""
    decode_tokens: int = 0
    """Tokens computed one a step to decode the next."""
    cached_tokens: int = 0
    """Prompt tokens found in the cache, at first admissions."""
    prompt_tokens: int = 0
    """Prompt tokens of admitted requests."""
    preemptions: int = 0
    recomputed_tokens: int = 0
    """Tokens that preempted requests had and did not find again in the cache."""


@dataclass(slots=True)
class StepWork:
    """What one step did."""

    prefill: int = 0
    """Prompt tokens computed (``P``)."""
    decode: int = 0
    """Tokens decoded after an answer's first (``D``)."""
    context: int = 0
    """KV tokens that running requests hold (``K``)."""
    budget: int = 0
    """Tokens that are left of the step."""
    preempted: bool = False
    finished: list[Generation] = field(default_factory=list)


class Batcher:
    """Forms one batch after the other.

    Parameters
    ----------
    pool
        KV memory.
    block_tokens
        Tokens of a block.
    max_running
        Most requests in a batch.
    chunk_tokens
        Most tokens of a batch; at least ``max_running``.

    Examples
    --------
    >>> from semops.engine.prefix_cache import PrefixCache
    >>> batcher = Batcher(PrefixCache(8), block_tokens=16, max_running=4, chunk_tokens=64)
    >>> batcher.add(Generation(1, 100, [1, 2, 3, 4, 5, 6], wanted=2, priority=0, arrival=1))
    >>> [(work.prefill, work.decode) for work in (batcher.step() for _ in range(3))]
    [(64, 0), (36, 0), (0, 1)]
    """

    def __init__(
        self, pool: PrefixCache, *, block_tokens: int, max_running: int, chunk_tokens: int
    ) -> None:
        self.pool = pool
        self.block_tokens = block_tokens
        self.max_running = max_running
        self.chunk_tokens = max(chunk_tokens, max_running)
        self.totals = Totals()
        self.running: list[Generation] = []
        """In the order of admission."""
        self._waiting: list[tuple[int, int, Generation]] = []
        self._now = 0
        self._held = 0
        self._full = False
        """Whether seats or memory ended the last admission: then only a release can start another."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def add(self, item: Generation) -> None:
        """Queue a request."""
        heapq.heappush(self._waiting, (item.priority, item.arrival, item))

    def remove(self, keys: Collection[int]) -> None:
        """Forget requests; what they computed stays cached."""
        self._waiting = [entry for entry in self._waiting if entry[2].key not in keys]
        heapq.heapify(self._waiting)
        for item in [item for item in self.running if item.key in keys]:
            self.running.remove(item)
            self._release(item)

    def step(self) -> StepWork:
        """Run one step; requests that end with it have given their blocks back."""
        work = StepWork(budget=self.chunk_tokens)
        self._now += 1
        self._serve(work)
        self._full = False
        if not work.preempted:
            self._admit(work)
        work.context = self._held
        self.totals.steps += bool(work.prefill or work.decode)
        self.totals.prefill_tokens += work.prefill
        self.totals.decode_tokens += work.decode
        for item in work.finished:
            self._release(item)
        if work.finished:
            self.running = [item for item in self.running if item.generated < item.wanted]
        return work

    def quiet_steps(self) -> int:
        """Return how many steps follow in which each running request only decodes into its last block."""
        if not self.running or (self._waiting and not self._full):
            return 0
        last = self.running[-1]
        if last.target - last.computed > 1 or not last.generated:
            return 0  # amid its prompt, as only the last can be
        return max(
            min(min(i.room - i.computed, i.wanted - i.generated) for i in self.running) - 1, 0
        )

    def skip(self, steps: int) -> None:
        """Run quiet steps at once."""
        for item in self.running:
            item.computed += steps
            item.target += steps
            item.generated += steps
        self._held += steps * len(self.running)
        self.totals.steps += steps
        self.totals.decode_tokens += steps * len(self.running)

    def _serve(self, work: StepWork) -> None:
        """Give running requests their next tokens."""
        running, budget, decode, prefill = self.running, work.budget, 0, 0
        now = self._now
        index = 0
        while index < len(running) and budget:
            item = running[index]
            take = item.target - item.computed
            end = item.target
            if take > budget:
                take, end = budget, item.computed + budget
            if end >= item.room and not self._extend(item, end):
                work.budget, work.decode, work.prefill = budget, decode, prefill
                index = self._preempt_for(item, end, index, work)
                budget, decode, prefill = work.budget, work.decode, work.prefill
                if index < 0:
                    break
                self._extend(item, end)
            budget -= take
            if take == 1 and item.generated:
                decode += 1
            else:
                prefill += take
            item.computed = end
            item.step, item.taken = now, take
            if end == item.target:
                item.target += 1
                item.generated += 1
                if item.generated >= item.wanted:
                    work.finished.append(item)
            self._held += take
            index += 1
        work.budget, work.decode, work.prefill = budget, decode, prefill

    def _admit(self, work: StepWork) -> None:
        """Start waiting requests while tokens, seats and blocks last."""
        block, pool = self.block_tokens, self.pool
        while self._waiting and work.budget:
            if len(self.running) >= self.max_running:
                self._full = True
                return
            item = self._waiting[0][2]
            usable = (item.target - 1) // block  # at least one token is computed
            if usable > len(item.hashes):
                item.block_hash(usable - 1)
            hits = pool.lookup(item.hashes[:usable])
            # The whole prompt must fit before it starts; only its first chunk takes blocks.
            needed = -(-item.target // block) - len(hits) + pool.unheld(hits)
            if needed > pool.free:
                self._full = True
                return
            heapq.heappop(self._waiting)
            pool.touch(hits)
            item.blocks, item.stored = hits, len(hits)
            item.room = item.computed = len(hits) * block
            self._note_admission(item)
            take = min(item.target - item.computed, work.budget)
            self._extend(item, item.computed + take)
            self.running.append(item)
            self._held += item.computed + take
            item.computed += take
            item.step, item.taken = self._now, take
            work.budget -= take
            if take == 1 and item.generated:
                work.decode += 1
            else:
                work.prefill += take
            if item.computed == item.target:
                item.target += 1
                item.generated += 1
                if item.generated >= item.wanted:
                    work.finished.append(item)

    def _note_admission(self, item: Generation) -> None:
        if item.cached is None:
            item.cached = item.computed
            self.totals.cached_tokens += item.computed
            self.totals.prompt_tokens += item.prompt_tokens
        else:
            self.totals.recomputed_tokens += item.lost - item.computed

    def _extend(self, item: Generation, end: int) -> bool:
        """Take the blocks for tokens up to ``end`` and cache the full ones; return False without room."""
        block, pool = self.block_tokens, self.pool
        missing = -(-end // block) - len(item.blocks)
        if missing > 0:
            if missing > pool.free:
                return False
            item.blocks += pool.take(missing)
            item.room += missing * block
        for number in range(item.stored, end // block):
            pool.store(item.blocks[number], item.block_hash(number))
        item.stored = max(item.stored, end // block)
        return True

    def _preempt_for(self, item: Generation, end: int, index: int, work: StepWork) -> int:
        """Preempt until a request finds its blocks; return its new index, -1 if it is a victim itself."""
        missing = -(-end // self.block_tokens) - len(item.blocks)
        while missing > self.pool.free:
            victim = max(self.running, key=lambda other: (other.priority, other.arrival))
            place = self.running.index(victim)
            del self.running[place]
            if place < index:
                index -= 1
            self._preempt(victim, work)
            if victim is item:
                return -1
        return index

    def _preempt(self, victim: Generation, work: StepWork) -> None:
        """Take a request's blocks and what it got in this step; it waits again."""
        work.preempted = True
        self.totals.preemptions += 1
        if victim.step == self._now:
            # It decoded a token: only the last request can be amid its prompt, and none comes after it.
            work.budget += victim.taken
            victim.target -= 1
            victim.generated -= 1
            if victim in work.finished:
                work.finished.remove(victim)
            if victim.taken == 1 and victim.generated:
                work.decode -= 1
            else:
                work.prefill -= victim.taken
            self._held -= victim.taken
            victim.computed -= victim.taken
        victim.lost = victim.computed
        self._release(victim)
        self.add(victim)

    def _release(self, item: Generation) -> None:
        self._held -= item.computed
        self.pool.release(item.blocks)
        item.blocks, item.room, item.stored, item.computed = [], 0, 0, 0
