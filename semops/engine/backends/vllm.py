"""vLLM in this process, behind the backend protocol.

One thread drives it: it queues requests, calls :meth:`VllmBackend.step`, and between two steps nothing
can be evicted, so that a prefix can be pinned or its next request queued in time.
"""

from __future__ import annotations

import gc
import logging
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from semops.engine.backend import Capabilities
from semops.engine.backends import vllm_options, vllm_process
from semops.engine.backends.hf_tokenizer import HfTokenizer
from semops.engine.backends.vllm_internals import VllmInternals
from semops.engine.plan import Answer, Decoding, Finish, Request
from semops.engine.trace import Recorder
from semops.engine.weights import fingerprint, folder_of
from semops.errors import EngineError, UnsupportedError

_IDLE_SLEEP_S = 2e-4
_EXIT_WAIT_S = 10.0
"""Longest wait for a step in progress when the process ends, in seconds."""

_log = logging.getLogger(__name__)
_running: weakref.ref[VllmBackend] | None = None
"""Two engines in one process share torch's process groups: closing one would break the other."""


def start(
    model: str,
    *,
    name: str = "",
    kv_bytes: int | None = None,
    kv_tokens: int | None = None,
    context_tokens: int | None = None,
    max_running: int | None = None,
    dtype: str = "auto",
    seed: int = 0,
    chunk_tokens: int | None = None,
    engine_args: Mapping[str, Any] | None = None,
) -> VllmBackend:
    """Start vLLM in this process.

    Parameters
    ----------
    model
        Folder or Hugging Face id.
    name
        What the user calls the model; ``model`` if empty.
    kv_bytes, kv_tokens
        KV memory, in bytes or in usable tokens (rounded down to whole blocks); at most one of them.
        By default 1 GiB on CPU, and on GPU what vLLM finds free.
    context_tokens
        Longest prompt plus answer, in tokens; by default the longest that the model and the KV
        memory allow. Cut to ``kv_tokens`` where that is given and smaller.
    max_running
        Most requests decoded together; by default 16 on CPU and 256 on GPU.
    dtype
        Number type of weights and KV; ``auto`` is bfloat16 on CPU.
    seed
        Seed of vLLM; the process's own random generators are left as they were.
    chunk_tokens
        Most prompt tokens computed in one step; by default 512 on CPU, vLLM's choice on GPU.
    engine_args
        Further ``vllm.EngineArgs``; they win over everything above.

    Raises
    ------
    MissingExtraError
        If vLLM isn't installed or can't be imported.
    ConfigError
        If an argument is out of range.
    CapacityError
        If the model or its KV memory doesn't fit.
    EngineError
        If vLLM can't start for another reason, or one is running in this process already.
    """
    sizes = vllm_options.Sizes(kv_bytes, kv_tokens, context_tokens, max_running, chunk_tokens)
    if _running is not None and (other := _running()) is not None and not other.closed:
        raise EngineError(
            f"vLLM runs in this process already, with {other.capabilities.model!r}, and a second "
            "engine would break it. Close the first one before starting another."
        )
    on_cpu = vllm_process.installed_for_cpu()
    options = vllm_options.engine_options(model, sizes, dtype=dtype, seed=seed, on_cpu=on_cpu)
    options |= engine_args or {}
    with vllm_process.guarded(on_cpu=on_cpu):
        vllm = vllm_process.load()
        engine = _start_engine(vllm, options)
        try:
            backend = VllmBackend(engine, vllm, name or model)
        except BaseException:
            _shut_down(engine)
            raise
    _remember(backend)
    return backend


class VllmBackend:
    """A running vLLM engine; built by :func:`start`.

    Every method is called by one thread, but it needn't be the thread that started it.
    """

    def __init__(self, engine: Any, vllm: Any, name: str) -> None:
        self._engine = engine
        self._stepping = threading.Lock()
        # Also runs when the process ends without close(), and then waits for the step in progress.
        self._finalizer = weakref.finalize(self, _shut_down_for_good, engine, self._stepping)
        self._sampling = vllm.SamplingParams
        self._final_only = vllm.sampling_params.RequestOutputKind.FINAL_ONLY
        self._constraint = vllm.sampling_params.StructuredOutputsParams
        self._keys: dict[str, int] = {}
        self._requests: dict[int, tuple[str, Request]] = {}
        self._refused: list[tuple[int, Answer]] = []
        self._submitted = 0
        self._recorder: Recorder | None = None
        config = engine.vllm_config
        self._internals = VllmInternals(engine, tuple(vllm.__version_tuple__[:2]))
        self._tokenizer = HfTokenizer(engine.get_tokenizer())
        block, blocks = config.cache_config.block_size, config.cache_config.num_gpu_blocks
        kv_tokens = (blocks - 1) * block  # vLLM keeps one block as a placeholder
        self._unwatched = self._internals.watch_steps()
        """Why it can't be known what a step computes, if so."""
        self._last_step = None if self._unwatched else (0, 0, 0)
        reuse = bool(config.cache_config.enable_prefix_caching)
        self._capabilities = Capabilities(
            backend="vllm",
            model=name,
            block_tokens=block,
            kv_tokens=kv_tokens,
            # What vLLM fits by itself counts the placeholder in.
            context_tokens=min(config.model_config.max_model_len, kv_tokens),
            max_running=config.scheduler_config.max_num_seqs,
            chunk_tokens=config.scheduler_config.max_num_batched_tokens,
            pinning=self._internals.pinning,
            prefix_reuse=reuse,
            identity=_identity(config),
            reasons=self._internals.reasons,
        )

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return self._capabilities

    @property
    def tokenizer(self) -> HfTokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._engine is None

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        """Queue a request; smaller priorities go first."""
        engine = self._open()
        if key in self._requests:
            raise ValueError(f"the request key {key} is in use")
        room = self._capabilities.context_tokens - request.prompt_tokens
        if room < 1:
            found = f"the prompt has {request.prompt_tokens} tokens"
            limit = f"the context is {self._capabilities.context_tokens}, answer included"
            self._refuse(key, request, f"{found}, {limit}")
            return
        self._submitted += 1
        name = f"semops-{self._submitted}"
        prompt = {"type": "token", "prompt_token_ids": list(request.token_ids)}
        try:
            params = self._params(request.decoding, max(1, min(max_tokens, room)))
            engine.add_request(name, prompt, params, priority=priority)
        except Exception as error:  # noqa: BLE001 - the protocol answers whatever vLLM refuses
            self._refuse(key, request, f"{type(error).__name__}: {error}")
            return
        self._keys[name] = key
        self._requests[key] = (name, request)
        if self._recorder is not None:
            self._recorder.submitted(key, request, params.max_tokens)

    def step(self) -> list[tuple[int, Answer]]:
        """Run one engine step; return the requests that ended with it."""
        engine = self._open()
        recorder = self._recorder
        with self._stepping:
            started_s = time.perf_counter()
            outputs = engine.step() if engine.has_unfinished_requests() else []
            seconds = time.perf_counter() - started_s
            self._last_step = None if self._unwatched else self._internals.take_counts()
            if recorder is not None and self._last_step is not None:
                recorder.step(*self._last_step, seconds)
        answers, self._refused = self._refused, []
        for output in outputs:
            if output.finished and (key := self._keys.pop(output.request_id, None)) is not None:
                _, request = self._requests.pop(key)
                answers.append((key, _answer(output, request)))
                if recorder is not None:
                    recorder.answered(*answers[-1])
        if not answers and self._requests and self.progress()[0] == 0:
            time.sleep(_IDLE_SLEEP_S)  # a grammar compiles, or nothing fits: don't burn a core
        return answers

    def last_step(self) -> tuple[int, int, int] | None:
        """Return prefill, decode and context tokens of the last step; None where that isn't known."""
        return self._last_step

    def abort(self, keys: Sequence[int]) -> None:
        """Forget requests; what they computed stays in the prefix cache."""
        engine = self._open()
        names = [self._requests.pop(key)[0] for key in keys if key in self._requests]
        for name in names:
            del self._keys[name]
        if names:
            engine.abort_request(names)
        gone = frozenset(keys)
        self._refused = [(key, answer) for key, answer in self._refused if key not in gone]

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Keep the cached blocks of a prefix from eviction; return how many tokens are held."""
        self._open()
        return self._internals.pin(key, token_ids)

    def unpin(self, key: int) -> None:
        """Undo :meth:`pin`."""
        self._open()
        self._internals.unpin(key)

    def unpin_all(self) -> int:
        """Drop every pin; return how many there were."""
        self._open()
        return self._internals.unpin_all()

    def cached_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how many leading tokens of a prompt are cached now; 0 where it can't be known."""
        self._open()
        return self._internals.cached_tokens(token_ids)

    def progress(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""
        counts = self._internals.counts()
        return (len(self._requests), 0) if counts is None else counts

    def busy_waiting(self) -> bool:
        """Return whether a waiting request waits for a grammar or for KV from elsewhere."""
        return self._internals.waits_for_other()

    @contextmanager
    def record(self) -> Iterator[Recorder]:
        """Record steps and requests in a block; :meth:`Recorder.trace` returns them.

        Another thread may enter and leave it while the engine's own is between two steps.

        Raises
        ------
        UnsupportedError
            If what a step computes can't be known.
        """
        tokens = self._open().vllm_config.scheduler_config.max_num_batched_tokens
        with self._stepping:
            if self._unwatched:
                raise UnsupportedError(f"steps can't be recorded: {self._unwatched}.")
            recorder = self._recorder = Recorder(self._capabilities, tokens)
        try:
            yield recorder
        finally:
            with self._stepping:
                self._recorder = None

    def close(self) -> None:
        """Stop the engine and free its memory."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        self._finalizer.detach()
        with self._stepping:
            _shut_down(engine)
        del engine
        self._internals.unwatch_steps()
        self._internals.forget()
        self._keys.clear()
        self._requests.clear()
        self._refused.clear()
        # The engine is full of cycles; without this its KV memory lives until the next collection.
        gc.collect()

    def _open(self) -> Any:
        if self._engine is None:
            raise EngineError("this engine is closed. Start another one.")
        return self._engine

    def _refuse(self, key: int, request: Request, detail: str) -> None:
        answer = Answer("", Finish.ERROR, prompt_tokens=request.prompt_tokens, detail=detail)
        self._refused.append((key, answer))

    def _params(self, decoding: Decoding, max_tokens: int) -> Any:
        params: dict[str, Any] = {
            "temperature": decoding.temperature,
            "output_kind": self._final_only,
        }
        if decoding.temperature:
            params["seed"] = decoding.seed
        if decoding.choices:
            # The log probabilities are those before the mask: vLLM's default, logprobs_mode
            # "raw_logprobs".
            choices = list(decoding.choices)
            params |= {"allowed_token_ids": choices, "logprob_token_ids": choices, "max_tokens": 1}
        else:
            params |= {"max_tokens": max_tokens, "stop": list(decoding.stop)}
        if decoding.ignore_eos:
            params["ignore_eos"] = True
        if decoding.texts:
            # As one regular expression: a grammar of choices holds less than 2,000.
            params["structured_outputs"] = self._constraint(regex=_any_of(decoding.texts))
        elif decoding.json_schema:
            params["structured_outputs"] = self._constraint(json=decoding.json_schema)
        return self._sampling(**params)


def _any_of(texts: Sequence[str]) -> str:
    r"""Return the regular expression of texts, for Rust, which knows fewer escapes than Python.

    Examples
    --------
    >>> _any_of(("a.b", "c"))
    '(a\\.b|c)'
    """
    escaped = (re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text) for text in texts)
    return f"({'|'.join(escaped)})"


def _answer(output: Any, request: Request) -> Answer:
    completion = output.outputs[0]
    choices = request.decoding.choices
    scores = completion.logprobs[0] if choices and completion.logprobs else {}
    reason = completion.finish_reason
    if reason == "stop" or (reason == "length" and choices):
        finish, detail = Finish.STOP, ""
    elif reason == "length":
        finish, detail = Finish.LENGTH, ""
    else:
        finish, detail = Finish.ERROR, f"vLLM ended the request with {reason!r}"
    return Answer(
        text=completion.text,
        finish=finish,
        output_tokens=len(completion.token_ids),
        prompt_tokens=request.prompt_tokens,
        cached_tokens=max(0, output.num_cached_tokens or 0),
        logprobs={token: scores[token].logprob for token in choices if token in scores},
        detail=detail,
    )


def _identity(config: Any) -> str:
    """Return what tells the weights as they are loaded from others."""
    folder = folder_of(config.model_config.model)
    if folder is None:
        return ""
    return f"{fingerprint(folder)}:{config.model_config.dtype}:{config.cache_config.cache_dtype}"


def _start_engine(vllm: Any, options: Mapping[str, Any]) -> Any:
    try:
        return vllm.LLMEngine.from_engine_args(vllm.EngineArgs(**options))
    except Exception as error:
        vllm_process.release_after_failure()
        raise vllm_options.start_error(options, error) from error


def _remember(backend: VllmBackend) -> None:
    global _running  # noqa: PLW0603 - vLLM itself is one per process
    _running = weakref.ref(backend)


def _shut_down(engine: Any) -> None:
    try:
        engine.engine_core.shutdown()
    except Exception:  # noqa: BLE001 - after a failed step nothing of it may be whole
        _log.debug("vLLM did not shut down cleanly", exc_info=True)


def _shut_down_for_good(engine: Any, stepping: threading.Lock) -> None:
    # The lock is kept: at the end of the process a thread that goes on stepping must find neither a
    # torn-down engine nor an exception to print, but wait and be ended.
    if stepping.acquire(timeout=_EXIT_WAIT_S):
        _shut_down(engine)
