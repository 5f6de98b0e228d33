"""The protocol between the scheduler and whatever runs the model.

A backend is driven by one thread. It takes token ids and gives back answers with the number of
prompt tokens that were found in its prefix cache. Optional abilities are named in its
:class:`Capabilities`, each with the reason where it is off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semops.engine.plan import Answer, Request


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend is and what it can do."""

    backend: str
    """Registry name, for example ``vllm``."""
    model: str
    """Model identity as shown to the user."""
    block_tokens: int
    """Tokens in one KV block; prefixes are shared in whole blocks."""
    kv_tokens: int
    """Usable KV memory, in tokens."""
    context_tokens: int
    """Longest prompt plus answer, in tokens."""
    max_running: int
    """Most requests that are decoded together."""
    chunk_tokens: int = 2_048
    """Most tokens computed in one step."""
    pinning: bool = False
    """Whether :meth:`Backend.pin` works."""
    prefix_reuse: bool = True
    """Whether a prefix is found again at all."""
    identity: str = ""
    """What tells these weights from others, between processes; empty where that isn't known."""
    reasons: tuple[str, ...] = ()
    """Why an ability is off, one sentence each."""


class Tokenizer(Protocol):
    """Text to token ids and back; safe to call from several threads."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text; special tokens inside the text are split into plain ones."""

    @property
    def start_ids(self) -> Sequence[int]:
        """Ids that every text given to the model begins with, outside a chat; often none."""

    def chat_frame(self, system: str) -> tuple[Sequence[int], Sequence[int]]:
        """Return the ids before and after the user's message of a chat.

        Raises
        ------
        UnsupportedError
            If the model has no chat template; use ``prompt_style="raw"``.
        """

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids."""


class Backend(Protocol):
    """Runs requests; every method is called by the one engine thread."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do; constant after start."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        """Queue a request under a key of the caller's.

        ``max_tokens`` is the bound in force, at most ``request.decoding.max_tokens``. Smaller
        priorities go first. A request that can't be run gives an ``ERROR`` answer at the next
        :meth:`step`; this method does not raise for it.
        """

    def step(self) -> list[tuple[int, Answer]]:
        """Advance all queued requests by one engine step; return those that ended."""

    def last_step(self) -> tuple[int, int, int] | None:
        """Return prefill, decode and context tokens of the last step, zeros before the first.

        None where that isn't known.
        """

    def abort(self, keys: Sequence[int]) -> None:
        """Forget requests; no answer comes for them. Unknown keys are ignored."""

    def pin(self, key: int, token_ids: Sequence[int]) -> int:
        """Keep the cached blocks of a prefix from eviction; return how many tokens are held."""

    def unpin(self, key: int) -> None:
        """Undo :meth:`pin`; unknown keys are ignored."""

    def unpin_all(self) -> int:
        """Drop every pin, whoever made it; return how many there were."""

    def progress(self) -> tuple[int, int]:
        """Return the numbers of running and of waiting requests."""

    def busy_waiting(self) -> bool:
        """Return whether waiting requests wait for something other than memory (a grammar)."""

    def close(self) -> None:
        """Release everything; safe to call twice."""
