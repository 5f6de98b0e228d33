"""Answers that are known already, so that equal requests are computed once."""

from __future__ import annotations

import functools
import hashlib
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semops.engine.plan import Answer, Decoding, Request
    from semops.engine.task import Task

LIMIT = 65_536
"""Answers kept; the oldest goes first."""


@dataclass(slots=True)
class AnswerMemo:
    """Answers, and who is asking, by request; queries of one run share it."""

    known: dict[bytes, Answer] = field(default_factory=dict)
    leaders: dict[bytes, Task] = field(default_factory=dict)
    """The task whose request is in the engine; equal ones follow it."""

    def store(self, key: bytes, answer: Answer) -> None:
        """Keep an answer."""
        if len(self.known) >= LIMIT:
            del self.known[next(iter(self.known))]
        self.known[key] = answer


def request_key(request: Request) -> bytes:
    """Return what makes two requests equal: prompt and decoding.

    Examples
    --------
    >>> from semops.engine.plan import Decoding, Request
    >>> short, long = (Request([1, 2], 0, Decoding(max_tokens)) for max_tokens in (8, 9))
    >>> request_key(short) == request_key(long)
    False
    """
    digest = hashlib.blake2b(array("q", request.token_ids).tobytes(), digest_size=16)
    digest.update(_text_of(request.decoding))
    return digest.digest()


@functools.lru_cache(maxsize=1024)
def _text_of(decoding: Decoding) -> bytes:
    return repr(decoding).encode()
