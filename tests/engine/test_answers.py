"""When two requests are equal, and which answers are kept."""

from __future__ import annotations

import pytest

from semops.engine import answers
from semops.engine.answers import AnswerMemo, request_key
from semops.engine.plan import Answer, Call, Decoding, Finish, Request

BASE = Request((1, 2, 3), 2, Decoding(8))


@pytest.mark.parametrize(
    "other",
    [
        Request([1, 2, 3], 2, Decoding(8)),
        Request((1, 2, 3), 0, Decoding(8)),
        Request((1, 2, 3), 2, Decoding(8), Call("sem_map", "x", {})),
    ],
    ids=["list", "shared tokens", "call"],
)
def test_requests_with_the_same_prompt_and_decoding_are_equal(other: Request) -> None:
    assert request_key(other) == request_key(BASE)


@pytest.mark.parametrize(
    "other",
    [
        Request((1, 2, 4), 2, Decoding(8)),
        Request((1, 2), 2, Decoding(8)),
        Request((1, 2, 3), 2, Decoding(9)),
        Request((1, 2, 3), 2, Decoding(8, (4, 5))),
        Request((1, 2, 3), 2, Decoding(8, stop=("\n",))),
    ],
    ids=["token", "length", "cap", "choices", "stop"],
)
def test_requests_that_may_be_answered_otherwise_differ(other: Request) -> None:
    assert request_key(other) != request_key(BASE)


def test_the_oldest_answer_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LIMIT", 2)
    memo = AnswerMemo()
    for key in (b"a", b"b", b"c"):
        memo.store(key, Answer(str(key), Finish.STOP))
    assert set(memo.known) == {b"b", b"c"}
