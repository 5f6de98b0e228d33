"""Prompts: shared by construction, pure, and data stays data."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spelling import Spelling

import semops
from semops.engine.backends.replay import ReplayBackend, WordTokenizer
from semops.engine.plan import Request
from semops.errors import ConfigError
from semops.operators import Asking, Operator, SemFilter, SemJoin, SemMap, left_reads, reads
from semops.prompts import SYSTEM, Prompter, instruction_text
from semops.template import bind_join, parse
from semops.testing import replay

RAW = Asking(style="raw")


def prompt(operator: Operator, row: dict[str, Any]) -> str:
    row_block, rest = Prompter(Spelling(), "S").prompt(operator, row)
    return Spelling().decode([*row_block, *rest])


def test_a_chat_prompt_is_head_row_instruction_tail() -> None:
    operator = SemFilter(parse("{text} fits {title}"))
    assert prompt(operator, {"title": "T", "text": "a\nb", "other": 1}) == (
        "<s>S<u>text: a\nb\ntitle: T\n\n"
        'Is this true of the record? "text" fits "title"\nReply True or False.<a>'
    )
    assert prompt(SemMap(parse("Shorten {text}"), "s"), {"text": "a"}) == (
        '<s>S<u>text: a\n\nShorten "text"<a>'
    )


def test_a_raw_prompt_is_continued_by_the_model() -> None:
    operator = SemFilter(parse("{text}\nSentiment:"), ("positive", "negative"), asking=RAW)
    assert prompt(operator, {"text": "fine"}) == "text: fine\nSentiment:"
    operator = SemFilter(parse("Is {text} kind? Answer:"), asking=RAW)
    assert prompt(operator, {"text": "fine"}) == 'text: fine\n\nIs "text" kind? Answer:'


def test_other_answers_are_named() -> None:
    operator = SemFilter(parse("{text} is kind"), ("yes", "no"))
    assert instruction_text(operator).endswith("Reply yes or no.")


def test_a_joins_left_columns_come_before_its_right_ones() -> None:
    template = bind_join(
        parse("{fact} follows from {claim} by {id:left}"), ["claim", "id"], ["fact"]
    )
    operator = SemJoin(template, (("fact", "fact"),))
    assert reads(operator) == ("claim", "id", "fact")
    assert left_reads(operator) == ("claim", "id")
    renamed = SemJoin(
        bind_join(parse("{id:right} is {id:left}"), ["id"], ["id"]), (("id", "id_right"),)
    )
    assert reads(renamed) == ("id", "id_right")


def test_choices_are_the_first_tokens_and_must_differ() -> None:
    prompter = Prompter(Spelling())
    operator = SemFilter(parse("{text} is kind"), ("yes", "no"))
    assert prompter.choices(operator) == (ord("y"), ord("n"))
    with pytest.raises(ConfigError, match="begin with the same token"):
        prompter.choices(SemFilter(parse("{text} is kind"), ("nope", "no")))
    words = Prompter(WordTokenizer())
    raw = words.choices(SemFilter(parse("{text} is kind"), ("yes", "no"), asking=RAW))
    assert raw == tuple(WordTokenizer().encode(text)[0] for text in (" yes", " no"))


class Noting(ReplayBackend):
    """Keeps every request."""

    def submit(self, key: int, request: Request, max_tokens: int, priority: int) -> None:
        self.requests = [*getattr(self, "requests", []), request]
        super().submit(key, request, max_tokens, priority)


def requests(lazy: pl.LazyFrame) -> list[Request]:
    from semops import session

    made: list[Noting] = []

    def start() -> Noting:
        made.append(Noting(lambda operator, *_: "x y" if operator == "sem_map" else True))
        return made[0]

    with session.override(start):
        lazy.collect()
    return made[0].requests


FRAME = pl.DataFrame({"text": ["first text", "second text"], "title": ["one", "two"]})
OTHER = pl.DataFrame({"fact": ["p", "q"]})


def prompts(lazy: pl.LazyFrame, instruction: str) -> set[tuple[int, ...]]:
    found = requests(lazy)
    return {
        tuple(r.token_ids)
        for r in found
        if r.call is not None and r.call.instruction == instruction
    }


def test_no_neighbour_limit_or_executor_changes_a_prompt() -> None:
    asked = "Shorten {text}"
    alone = prompts(FRAME.sem_map(asked, "s"), asked)
    assert len(alone) == 2
    chain = FRAME.sem_filter("{title} fits {text}").sem_map("Praise {title}", "praise")
    assert prompts(chain.sem_map(asked, "s"), asked) == alone
    assert prompts(FRAME.sem_join(OTHER, "{title} {fact}").sem_map(asked, "s"), asked) == alone
    assert prompts(FRAME.sem_map(asked, "s").head(1), asked) < alone
    loud = chain.with_columns(pl.col("title").str.to_uppercase())
    assert prompts(loud.sem_map(asked, "s"), asked) == alone
    with semops.options(executor="blocking"):
        assert prompts(chain.sem_map(asked, "s"), asked) == alone


def test_operators_over_the_same_columns_share_all_but_the_instruction() -> None:
    lazy = FRAME.sem_filter("{text} is kind").sem_map("Shorten {text}", "s")
    found = requests(lazy)
    by_row: dict[str, list[Request]] = {}
    for request in found:
        by_row.setdefault(request.call.row["text"], []).append(request)
    for first, second in by_row.values():
        shared = first.shared_tokens
        assert shared == second.shared_tokens > 0
        assert tuple(first.token_ids[:shared]) == tuple(second.token_ids[:shared])


def test_pairs_of_one_left_row_share_it() -> None:
    found = requests(FRAME.sem_join(OTHER, "{fact} follows from {text} and {title}"))
    head = len(WordTokenizer().chat_frame(SYSTEM)[0])
    left = [r for r in found if r.call.row["title"] == "one"]
    first, second = (tuple(r.token_ids) for r in left)
    same = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    row = WordTokenizer().encode("text: first text") + WordTokenizer().encode("\ntitle: one")
    assert same >= head + len(row)


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_segment_is_tokenised_by_itself(first: str, second: str) -> None:
    prompter = Prompter(WordTokenizer())
    segments = prompter.segment("a", first, first=True), prompter.segment("b", second, first=False)
    assert segments[0] == tuple(WordTokenizer().encode(f"a: {first}"))
    assert segments[1] == tuple(WordTokenizer().encode(f"\nb: {second}"))


def test_what_looks_like_a_template_or_a_special_token_in_a_row_stays_text() -> None:
    frame = pl.DataFrame({"text": ["{text} {0} %s <|im_end|>"]})
    with replay(lambda *_: True) as log:
        assert frame.sem_filter("{text} is {{odd}}").collect().height == 1
    assert log.calls[0].row == {"text": "{text} {0} %s <|im_end|>"}
