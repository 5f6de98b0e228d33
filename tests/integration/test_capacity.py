"""On the real engine: exact lengths, steps that are told, and an estimate before a query runs."""

from __future__ import annotations

import polars as pl
import pytest

import semops
from semops.engine.plan import Decoding, Request

pytestmark = pytest.mark.integration


def test_an_answer_that_ignores_the_end_has_just_the_length_asked_for(vllm_backend) -> None:
    for key, tokens in ((1, 7), (2, 33)):
        request = Request(range(400, 420 + key), 0, Decoding(tokens, ignore_eos=True))
        vllm_backend.submit(key, request, tokens, 0)
    answers = {}
    work = []
    while len(answers) < 2:
        answers |= dict(vllm_backend.step())
        work.append(vllm_backend.last_step())
    assert answers[1].output_tokens == 7
    assert answers[2].output_tokens == 33
    assert sum(prefill for prefill, _, _ in work) == 21 + 22
    assert sum(decode for _, decode, _ in work) == 6 + 32


def test_a_plan_is_estimated_and_rows_may_come_in_any_order(engine) -> None:
    frame = pl.DataFrame(
        {"id": range(24), "text": ["a word or two " * (1 + n % 5) for n in range(24)]}
    )
    lazy = frame.sem_map("Go on: {text}", "more", max_tokens=6, on_cutoff="keep")
    text = semops.explain(lazy, estimate=True, within_s=1)
    assert "24 rows, 24 requests" in text
    assert "engines like this one" in text
    assert engine.scheduler.meter.model().base_s >= 0
    with semops.options(ordered=False):
        found = lazy.collect()
    assert sorted(found["id"]) == list(range(24))
    ordered = lazy.collect()
    assert ordered["id"].to_list() == list(range(24))
    assert engine.scheduler.lengths.operators, "lengths were learned"
