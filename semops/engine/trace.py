"""What an engine did, step by step and request by request, to calibrate and check the simulator.

A trace holds no text and no token ids: prompts are known by the hashes of their blocks, which is enough to
replay what they share.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semops.engine.block_pool import block_hashes
from semops.engine.plan import Finish

if TYPE_CHECKING:
    import os

    from semops.engine.backend import Capabilities
    from semops.engine.plan import Answer, Request


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One engine step."""

    prefill: int
    """Prompt tokens computed (``P``)."""
    decode: int
    """Tokens decoded after an answer's first (``D``)."""
    context: int
    """KV tokens that running requests held (``K``)."""
    seconds: float
    """How long it took."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was answered."""

    prompt: int
    """Hash of the whole prompt."""
    blocks: tuple[int, ...]
    """Hash of each full block and all before it."""
    prompt_tokens: int
    shared: int
    """Hash of the leading tokens that all requests of its tuple share."""
    shared_tokens: int
    """How many they are."""
    max_tokens: int
    """The bound in force."""
    choices: bool
    """Whether one of several tokens was decoded."""
    output_tokens: int
    cached_tokens: int
    finish: Finish


@dataclass(frozen=True, slots=True)
class StepTrace:
    """A recorded run.

    Examples
    --------
    >>> step = StepRecord(prefill=100, decode=0, context=100, seconds=0.2)
    >>> trace = StepTrace("vllm", "m", 16, 4_096, 2_048, 16, 512, steps=(step, step))
    >>> trace.seconds, trace.computed_tokens
    (0.4, 0)
    """

    backend: str
    model: str
    block_tokens: int
    kv_tokens: int
    context_tokens: int
    max_running: int
    chunk_tokens: int
    """Most tokens of one step."""
    steps: tuple[StepRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    """In the order in which they were queued."""

    @property
    def seconds(self) -> float:
        """Time in steps, in seconds."""
        return sum(step.seconds for step in self.steps)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the prefix cache."""
        return sum(request.cached_tokens for request in self.requests)

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that had to be computed."""
        return sum(request.prompt_tokens for request in self.requests) - self.cached_tokens


def stand_in(request: RequestRecord, block_tokens: int) -> tuple[int, ...]:
    """Return token ids that share whole blocks exactly where the recorded prompts did.

    Examples
    --------
    >>> record = RequestRecord(7, (5, 6), 5, 8, 4, 1, False, 1, 0, Finish.STOP)
    >>> stand_in(record, block_tokens=2)
    (5, 5, 6, 6, 7)
    """
    whole = tuple(block for block in request.blocks for _ in range(block_tokens))
    return whole + (request.prompt,) * (request.prompt_tokens - len(whole))


def save(trace: StepTrace, path: str | os.PathLike[str]) -> None:
    """Write a trace as JSON."""
    Path(path).write_text(json.dumps(asdict(trace)) + "\n")


def load(path: str | os.PathLike[str]) -> StepTrace:
    """Read a trace that :func:`save` wrote."""
    document: dict[str, Any] = json.loads(Path(path).read_text())
    steps = tuple(StepRecord(**step) for step in document.pop("steps"))
    requests = tuple(
        RequestRecord(
            **{**request, "blocks": tuple(request["blocks"]), "finish": Finish(request["finish"])}
        )
        for request in document.pop("requests")
    )
    return StepTrace(**document, steps=steps, requests=requests)


@dataclass(slots=True)
class Recorder:
    """Collects a trace; a backend's ``record()`` gives one."""

    capabilities: Capabilities
    chunk_tokens: int
    steps: list[StepRecord] = field(default_factory=list)
    _requests: dict[int, RequestRecord | None] = field(default_factory=dict)
    """By number, in the order of submission; None until answered."""
    _open: dict[int, tuple[int, Request, int]] = field(default_factory=dict)
    """Number, request and bound of those in the engine, by key."""

    def step(self, prefill: int, decode: int, context: int, seconds: float) -> None:
        """Take a step in, unless it computed nothing."""
        if prefill or decode:
            self.steps.append(StepRecord(prefill, decode, context, seconds))

    def submitted(self, key: int, request: Request, max_tokens: int) -> None:
        """Note that a request was queued."""
        number = len(self._requests)
        self._requests[number] = None
        self._open[key] = (number, request, max_tokens)

    def answered(self, key: int, answer: Answer) -> None:
        """Note the answer of a request; one queued before the recording began is left out."""
        number, request, max_tokens = self._open.pop(key, (-1, None, 0))
        if request is None or answer.finish is Finish.ERROR:
            return
        self._requests[number] = RequestRecord(
            prompt=hash(tuple(request.token_ids)),
            blocks=tuple(block_hashes(request.token_ids, self.capabilities.block_tokens)),
            prompt_tokens=request.prompt_tokens,
            shared=hash(tuple(request.token_ids[: request.shared_tokens])),
            shared_tokens=request.shared_tokens,
            max_tokens=max_tokens,
            choices=bool(request.decoding.choices),
            output_tokens=answer.output_tokens,
            cached_tokens=answer.cached_tokens,
            finish=answer.finish,
        )

    def trace(self) -> StepTrace:
        """Return what was recorded so far."""
        capabilities = self.capabilities
        return StepTrace(
            backend=capabilities.backend,
            model=capabilities.model,
            block_tokens=capabilities.block_tokens,
            kv_tokens=capabilities.kv_tokens,
            context_tokens=capabilities.context_tokens,
            max_running=capabilities.max_running,
            chunk_tokens=self.chunk_tokens,
            steps=tuple(self.steps),
            requests=tuple(r for r in self._requests.values() if r is not None),
        )
