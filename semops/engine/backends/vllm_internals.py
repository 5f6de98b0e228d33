"""The only module that touches private attributes of vLLM.

Pinning needs three leaf calls on the block pool of an in-process engine: look a prefix up, take a
reference, give it back. Whether they still do what they did is found out by a small test at start,
not by the version alone. Where anything is off, the ability is off and a reason says why; nothing here
stops the engine from working.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTED_VERSIONS = ((0, 30), (0, 33))
"""First and last vLLM minor version whose pinning is known to work."""

_BLOCKED_STATUS = frozenset(
    {
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_FSM",  # older name of the same
        "WAITING_FOR_REMOTE_KVS",
    }
)
_SELF_TEST_STEPS = 100


class VllmInternals:
    """Pins, counts and their reasons, for one engine.

    Parameters
    ----------
    engine
        A ``vllm.LLMEngine`` without requests.
    version
        Its minor version, for example ``(0, 32)``.
    """

    def __init__(self, engine: Any, version: tuple[int, int]) -> None:
        self._engine = engine
        self._held: dict[int, list[Any]] = {}
        self._pool: Any = None
        self._scheduler: Any = None
        self._find: Any = None
        self._hasher: Any = None
        self._block_tokens = 0
        self._counted = (0, 0, 0)
        reason = self._attach()
        if not reason:
            reason = self._guarded_self_test()
        self.pinning = not reason
        """Whether :meth:`pin` works."""
        reasons = [f"pinning is off: {reason}"] if reason else []
        if not TESTED_VERSIONS[0] <= version <= TESTED_VERSIONS[1]:
            low, high = (".".join(map(str, bound)) for bound in TESTED_VERSIONS)
            found = ".".join(map(str, version))
            reasons.append(f"vLLM {found} is outside the tested versions {low} to {high}")
        self.reasons = tuple(reasons)
        """Why an ability is off, one sentence each."""

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Hold the cached blocks of a prefix; return how many tokens they are.

        Only blocks that are cached now are held, so this never takes memory that isn't in use for the
        prefix already. A second pin under the same key replaces the first.
        """
        if not self.pinning:
            return 0
        return self._pin(key, token_ids)

    def unpin(self, key: int) -> None:
        """Give the blocks of a key back; they stay cached until they are evicted."""
        if blocks := self._held.pop(key, None):
            # Tail first, as vLLM does it: the head of a prefix is of use to more requests.
            self._pool.free_blocks(reversed(blocks))

    def unpin_all(self) -> int:
        """Give the blocks of every key back; return how many keys there were."""
        keys = list(self._held)
        for key in keys:
            self.unpin(key)
        return len(keys)

    def cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many leading tokens are cached now (whole blocks); 0 where pinning is off."""
        return len(self._lookup(token_ids)) * self._block_tokens if self.pinning else 0

    def free_tokens(self) -> int | None:
        """Return how many tokens fit in blocks that nobody holds; None where it can't be known."""
        if self._pool is None:
            return None
        return int(self._pool.get_num_free_blocks()) * self._block_tokens

    def counts(self) -> tuple[int, int] | None:
        """Return the numbers of running and waiting requests; None where they can't be known."""
        if self._scheduler is None:
            return None
        running, waiting = self._scheduler.get_request_counts()
        return int(running), int(waiting)

    def waits_for_other(self) -> bool:
        """Return whether a request waits for a grammar or for KV from elsewhere, not for memory."""
        if self._scheduler is None:
            return False
        requests = self._scheduler.requests.values()
        return any(request.status.name in _BLOCKED_STATUS for request in requests)

    def watch_steps(self) -> str:
        """Count what each step computes from now on; return why that can't be known, if so."""
        scheduler = self._scheduler
        if scheduler is None:
            return "the engine core runs in another process"
        try:
            _ = scheduler.running, scheduler.requests
            schedule = scheduler.schedule
        except AttributeError as error:
            return f"this vLLM is built differently ({error})"

        def counted(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self._counted = _counts(scheduler, output)
            return output

        scheduler.schedule = counted
        return ""

    def unwatch_steps(self) -> None:
        """Undo :meth:`watch_steps`."""
        if self._scheduler is not None:
            vars(self._scheduler).pop("schedule", None)
        self._counted = (0, 0, 0)

    def take_counts(self) -> tuple[int, int, int]:
        """Return prefill, decode and context tokens of the last step, while steps are watched."""
        counts, self._counted = self._counted, (0, 0, 0)
        return counts

    def forget(self) -> None:
        """Drop every reference to the engine, so that its memory can be freed."""
        self._held.clear()
        self._engine = self._pool = self._scheduler = self._find = self._hasher = None
        self.pinning = False

    def _attach(self) -> str:
        core = getattr(getattr(self._engine, "engine_core", None), "engine_core", None)
        scheduler = getattr(core, "scheduler", None)
        if scheduler is None:
            return "the engine core runs in another process"
        try:
            scheduler.get_request_counts()
            _ = scheduler.requests.values
            self._scheduler = scheduler
            manager = scheduler.kv_cache_manager
            self._block_tokens = int(scheduler.block_size)
            self._hasher = getattr(core, "request_block_hasher", None)
            self._find = manager.coordinator.find_longest_cache_hit
            groups = len(manager.kv_cache_config.kv_cache_groups)
            manager.block_pool.get_num_free_blocks()
            self._pool = manager.block_pool
        except (AttributeError, TypeError) as error:
            return f"this vLLM is built differently ({type(error).__name__}: {error})"
        if groups != 1:
            return f"the model has {groups} kinds of KV cache, pinning knows one"
        if self._hasher is None:
            return "prefix caching is off"
        return ""

    def _lookup(self, token_ids: Sequence[int]) -> list[Any]:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        # A request that is never queued: only it knows how its blocks are hashed.
        params = SamplingParams(max_tokens=1)
        probe = Request("semops-probe", list(token_ids), params, None, block_hasher=self._hasher)
        hashes = probe.block_hashes
        found = self._find(hashes, len(hashes) * self._block_tokens)
        return [block for group in found[0] for block in group if not block.is_null]

    def _pin(self, key: int, token_ids: Sequence[int]) -> int:
        blocks = self._lookup(token_ids)
        self._pool.touch(blocks)
        self.unpin(key)
        if blocks:
            self._held[key] = blocks
        return len(blocks) * self._block_tokens

    def _guarded_self_test(self) -> str:
        try:
            return self._self_test()
        except Exception as error:  # noqa: BLE001 - private calls of an unknown version can fail in any way
            return f"the self-test failed ({type(error).__name__}: {error})"
        finally:
            self._held.clear()

    def _self_test(self) -> str:
        """Run one request and pin what it leaves; every count must move by exactly what is held."""
        pool, block = self._pool, self._block_tokens
        free = pool.get_num_free_blocks()
        blocks = min(2, free - 1)
        config = self._engine.vllm_config.model_config
        if blocks < 1 or blocks * block + 2 > config.max_model_len:
            return "the KV memory or context is too small for the self-test"
        tokens = [i % config.get_vocab_size() for i in range(blocks * block + 1)]
        if problem := self._run(tokens):
            return problem
        if pool.get_num_free_blocks() != free:
            return "the self-test failed (a finished request holds blocks)"
        held = self._pin(-1, tokens)
        pinned = list(self._held.get(-1, ()))
        if held != blocks * block or pool.get_num_free_blocks() != free - blocks:
            return f"the self-test failed (pinned {held} tokens of {blocks * block})"
        self.unpin(-1)
        counts = {item.ref_cnt for item in pinned}
        if pool.get_num_free_blocks() != free or counts != {0}:
            return "the self-test failed (blocks don't come back when unpinned)"
        if not self._engine.reset_prefix_cache() or self._lookup(tokens):
            return "the self-test failed (the prefix cache can't be emptied)"
        return ""

    def _run(self, tokens: list[int]) -> str:
        from vllm import SamplingParams

        name = "semops-self-test"
        prompt = {"type": "token", "prompt_token_ids": tokens}
        params = SamplingParams(temperature=0, max_tokens=1, detokenize=False)
        self._engine.add_request(name, prompt, params)
        for _ in range(_SELF_TEST_STEPS):
            if not self._engine.has_unfinished_requests():
                return ""
            self._engine.step()
        self._engine.abort_request([name])
        return "the self-test failed (its request did not end)"


def _counts(scheduler: Any, output: Any) -> tuple[int, int, int]:
    """Return the prompt tokens, the decoded tokens and the held KV tokens of a scheduled step."""
    prefill = decode = 0
    for name, tokens in output.num_scheduled_tokens.items():
        if tokens == 1 and scheduler.requests[name].num_output_tokens:
            decode += 1
        else:
            prefill += tokens
    context = sum(request.num_computed_tokens for request in scheduler.running)
    return prefill, decode, context
