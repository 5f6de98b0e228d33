"""The replay backend: a Python function answers instead of a model.

It has a block pool and a prefix cache like a real engine, so cached tokens, memory pressure and
pinning can be tested, and it logs every call.
"""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semops.engine.backend import Capabilities
from semops.engine.block_pool import BlockPool, block_hashes
from semops.engine.plan import Answer, Call, Finish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semops.engine.plan import Decoding, Request

_WORDS = re.compile(r"\s*\w{1,8}|\s*[^\w\s]|\s+")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with something special about it.

    Examples
    --------
    >>> Reply("Paris", delay_s=0.5).answer
    'Paris'
    """

    answer: Any = None
    """Verdict, probability of yes, text, or a value for a typed map; None for an undecided verdict."""
    delay_s: float = 0.0
    """How long the answer takes, in seconds."""
    cut_off: bool = False
    """Whether the text never ends, whatever the cap."""
    failure: str | None = None
    """An error message: the request fails."""


class WordTokenizer:
    """Splits text into short words; ids are hashes, so ids don't decode.

    Examples
    --------
    >>> len(WordTokenizer().encode("a few words"))
    3
    """

    def encode(self, text: str) -> list[int]:
        """Return one id a word of at most eight letters."""
        return [zlib.crc32(word.encode()) & 0x7FFFFFFF for word in _WORDS.findall(text)]

    @property
    def start_ids(self) -> tuple[int, ...]:
        """None."""
        return ()

    def chat_frame(self, system: str) -> tuple[list[int], list[int]]:
        """Return the ids of the system prompt, and of a reply's start."""
        return self.encode(system), self.encode("Reply:")

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the ids as text."""
        return " ".join(map(str, token_ids))


@dataclass(slots=True, eq=False)
class _Running:
    request: Request
    max_tokens: int
    hashes: list[int]
    cached: int
    extra: int
    answer: Answer
    ready_s: float


@dataclass(slots=True, eq=False)
class _Waiting:
    key: int
    request: Request
    max_tokens: int
    priority: int


class ReplayBackend:
    """Answers by calling a function.

    Parameters
    ----------
    answer
        ``answer(operator, instruction, row)`` returns a verdict (bool, or a probability of yes), a
        text, a value for a typed map, or a :class:`Reply`; None is undecided, and an exception a
        failed request.
    kv_tokens, block_tokens, context_tokens, max_running
        As in :class:`~semops.engine.backend.Capabilities`.
    pinning
        Whether prefixes can be pinned.
    model
        Name of the model that it stands for.
    clock, sleep
        Time, in seconds.
    """

    def __init__(
        self,
        answer: Callable[[str, str, Mapping[str, Any]], Any],
        *,
        kv_tokens: int = 65_536,
        block_tokens: int = 16,
        context_tokens: int = 8_192,
        max_running: int = 64,
        pinning: bool = True,
        model: str = "replay",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        blocks = kv_tokens // block_tokens
        self._answer = answer
        self._capabilities = Capabilities(
            backend="replay",
            model=model,
            block_tokens=block_tokens,
            kv_tokens=blocks * block_tokens,
            context_tokens=min(context_tokens, blocks * block_tokens),
            max_running=max_running,
            pinning=pinning,
            identity=f"replay:{model}",
            reasons=() if pinning else ("pinning switched off by the caller",),
        )
        self._tokenizer = WordTokenizer()
        self._pool = BlockPool(blocks)
        self._waiting: deque[_Waiting] = deque()
        self._running: dict[int, _Running] = {}
        self._pins: dict[int, list[int]] = {}
        self._clock = clock
        self._sleep = sleep
        self.calls: list[Call] = []
        """Every call of the function, in order."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do."""
        return self._capabilities

    @property
    def tokenizer(self) -> WordTokenizer:
        """The tokenizer."""
        return self._tokenizer

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        """Queue a request."""
        self._waiting.append(_Waiting(key, request, max_tokens, priority))

    def step(self) -> list[tuple[int, Answer]]:
        """Start what fits and return what is ready, sleeping a little where nothing is."""
        self._start_waiting()
        now = self._clock()
        done = [key for key, running in self._running.items() if running.ready_s <= now]
        if not done:
            if self._running:
                first = min(running.ready_s for running in self._running.values())
                self._sleep(min(max(first - now, 0.0), 0.005))
            return []
        answers = []
        for key in done:
            running = self._running.pop(key)
            self._pool.release(running.hashes, running.extra)
            answers.append((key, running.answer))
        return answers

    def last_step(self) -> None:
        """Return None: nothing is computed."""

    def abort(self, keys: Sequence[int]) -> None:
        """Forget requests."""
        gone = set(keys)
        self._waiting = deque(w for w in self._waiting if w.key not in gone)
        for key in gone:
            running = self._running.pop(key, None)
            if running is not None:
                self._pool.release(running.hashes, running.extra)

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Keep the cached blocks of a prefix."""
        hashes = block_hashes(token_ids, self._capabilities.block_tokens)
        held = hashes[: self._pool.matched(hashes)]
        if not self._pool.acquire(held, 0):
            return 0
        self._pins.setdefault(key, []).extend(held)
        return len(held) * self._capabilities.block_tokens

    def unpin(self, key: int) -> None:
        """Let blocks go."""
        for block in reversed(self._pins.pop(key, [])):
            self._pool.release([block], 0)

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

    def _start_waiting(self) -> None:
        block = self._capabilities.block_tokens
        if len(self._waiting) > 1:
            self._waiting = deque(sorted(self._waiting, key=lambda w: w.priority))
        while self._waiting:
            head = self._waiting[0]
            hashes = block_hashes(head.request.token_ids, block)
            total = -(-(head.request.prompt_tokens + head.max_tokens) // block)
            # As in vLLM, at least one token of the prompt is computed.
            usable = (head.request.prompt_tokens - 1) // block
            cached = min(self._pool.matched(hashes), usable) * block
            extra = total - len(hashes)
            if not self._pool.acquire(hashes, extra):
                return
            self._waiting.popleft()
            answer, delay_s = self._ask(head.request, head.max_tokens, cached)
            self._running[head.key] = _Running(
                head.request,
                head.max_tokens,
                hashes,
                cached,
                extra,
                answer,
                self._clock() + delay_s,
            )

    def _ask(self, request: Request, max_tokens: int, cached: int) -> tuple[Answer, float]:
        call = request.call or Call("", "", {})
        self.calls.append(call)
        try:
            found = self._answer(call.operator, call.instruction, call.row)
            if request.decoding.choices:
                _check_verdict(found)
        except Exception as error:  # noqa: BLE001 - a failing function is a failing backend
            found = Reply(failure=f"{type(error).__name__}: {error}")
        reply = found if isinstance(found, Reply) else Reply(found)
        if reply.failure is not None:
            return Answer("", Finish.ERROR, detail=reply.failure), reply.delay_s
        prompt = request.prompt_tokens
        if request.decoding.choices:
            yes, no = request.decoding.choices
            logprobs = _logprobs(reply.answer)
            answer = Answer("", Finish.STOP, 1, prompt, cached, {yes: logprobs[0], no: logprobs[1]})
            return answer, reply.delay_s
        if reply.answer is None:
            return Answer(
                "", Finish.ERROR, detail="the replay function gave no text"
            ), reply.delay_s
        try:
            text = _text(reply.answer, request.decoding)
            text.encode()
        except (TypeError, ValueError) as error:
            failure = f"{type(error).__name__}: {error}"
            return Answer("", Finish.ERROR, detail=failure), reply.delay_s
        length = max(len(self._tokenizer.encode(text)), 1)
        if reply.cut_off or length > max_tokens:
            short = "".join(_WORDS.findall(text)[:max_tokens])
            return Answer(short, Finish.LENGTH, max_tokens, prompt, cached), reply.delay_s
        return Answer(text, Finish.STOP, length, prompt, cached), reply.delay_s


def _text(answer: object, decoding: Decoding) -> str:
    """Return a value as the model would write it."""
    if decoding.json_schema and not isinstance(answer, str):
        return json.dumps(answer, ensure_ascii=False, default=str)
    return str(answer)


def _check_verdict(found: object) -> None:
    answer = found.answer if isinstance(found, Reply) else found
    if answer is not None and not isinstance(answer, (bool, int, float)):
        msg = f"a predicate needs True, False, a probability or None, the function gave {answer!r}"
        raise TypeError(msg)


def _logprobs(verdict: float | None) -> tuple[float, float]:
    """Return the log probabilities of yes and no."""
    if verdict is None:
        return (math.log(0.5), math.log(0.5))
    share = min(max(float(verdict), 1e-6), 1 - 1e-6)
    return (math.log(share), math.log(1 - share))
