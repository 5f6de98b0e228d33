"""Whole queries on a real model: the same rows as one request at a time, whatever the executor."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import polars as pl
import pytest

import semops
from semops.engine.plan import Decoding, Request
from semops.prompts import SYSTEM

pytestmark = pytest.mark.integration

DATA = Path(__file__).parents[2] / "examples" / "data"
KEEP = "{text} speaks of confidential information"
ASK = "What is the purpose of {text}? Answer in a few words."
WORDS = 90


@pytest.fixture(scope="module")
def excerpts() -> pl.DataFrame:
    """Return 24 excerpts of contracts."""
    table = pl.read_parquet(DATA / "contracts.parquet").select("contract_id", "text")
    words = pl.col("text").str.split(" ").list.slice(10, WORDS).list.join(" ")
    return table.with_columns(words).head(24)


def run_alone(backend, prompt, decoding):
    """Run one request by itself on the bare backend."""
    backend.submit(10**9, Request(prompt, 0, decoding), decoding.max_tokens, 0)
    while not (answers := backend.step()):
        pass
    return answers[0][1]


@pytest.fixture(scope="module")
def naive(vllm_backend, excerpts):
    """Interpret filter and map row by row, with prompts put together here."""
    tokenizer = vllm_backend.tokenizer
    head, tail = tokenizer.chat_frame(SYSTEM)
    yes, no = (tokenizer.encode(answer)[0] for answer in ("True", "False"))
    rows = []
    for number, text in excerpts.iter_rows():
        row = [*head, *tokenizer.encode(f"text: {text}")]
        asked = '\n\nIs this true of the record? "text" speaks of confidential information'
        asked += "\nReply True or False."
        answer = run_alone(
            vllm_backend, [*row, *tokenizer.encode(asked), *tail], Decoding(1, (yes, no))
        )
        verdict = answer.logprobs[yes] > answer.logprobs[no]
        asked = '\n\nWhat is the purpose of "text"? Answer in a few words.'
        told = run_alone(vllm_backend, [*row, *tokenizer.encode(asked), *tail], Decoding(12))
        rows.append((number, verdict, told.text.strip()))
    return rows


@pytest.mark.parametrize("executor", ["pipelined", "blocking"])
def test_same_rows_as_one_request_at_a_time(engine, excerpts, naive, executor):
    """Verdicts and texts equal those of the naive interpreter."""
    query = excerpts.sem_filter(KEEP, name="v").sem_map(ASK, "m", max_tokens=12, on_cutoff="keep")
    with semops.options(executor=executor):
        out = query.collect()
    assert out.select("contract_id", "v", "m").rows() == naive


def test_filter_then_map_in_one_stage(engine, excerpts, naive):
    """Filtered rows get no map call, the others find their row cached."""
    out = excerpts.sem_filter(KEEP).sem_map(ASK, "m", max_tokens=12, on_cutoff="keep").collect()
    assert out.select("contract_id", "m").rows() == [(n, m) for n, v, m in naive if v]
    counts = semops.last_profile().operators["sem_map:m"]
    assert counts.calls == out.height
    assert counts.cached_share > 0.75


def test_join(engine, excerpts):
    """Pairs come in order; the left row's prefix is computed once."""
    topics = pl.DataFrame({"topic": ["confidential information", "the weather", "cooking"]})
    left = excerpts.head(6)
    query = left.sem_join(topics, "{text} speaks of {topic}").sem_map(
        "Does {text} speak of {topic}? Say why.", "why", max_tokens=4, on_cutoff="keep"
    )
    out = query.collect()
    pairs = (
        left.join(topics, how="cross").sem_filter("{text} speaks of {topic}", name="v").collect()
    )
    expected = pairs.filter(pl.col("v")).select("contract_id", "topic").rows()
    assert out.select("contract_id", "topic").rows() == expected


def test_head_leaves_nothing_behind(engine, excerpts):
    """After ``head(5)`` the ledger is at 0 within two seconds."""
    out = excerpts.sem_filter(KEEP, name="v").sem_map(ASK, "m", max_tokens=12).head(5)
    with pytest.warns(semops.SemopsWarning):
        assert out.collect().height == 5
    deadline = time.monotonic() + 2
    while engine.scheduler.ledger.used and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.scheduler.ledger.used == 0
    assert semops.last_profile().operators["sem_filter:v"].calls < 24


def test_abandoned_stream_gives_its_memory_back_and_goes_on(engine, excerpts):
    """A stream that nobody pulls holds no KV memory; when pulled again it goes on."""
    frames = iter(excerpts.sem_filter(KEEP, name="v").collect_batches(chunk_size=1, lazy=True))
    first = next(frames)
    deadline = time.monotonic() + 3
    while engine.scheduler.ledger.used and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine.scheduler.ledger.used == 0
    assert first.height + sum(frame.height for frame in frames) == 24


def test_interrupt_returns_at_once_and_the_engine_goes_on(engine, excerpts):
    """Ctrl-C in the middle returns long before the answers would have come."""
    query = excerpts.sem_map(ASK, "m", max_tokens=200, on_cutoff="keep")
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    before = engine.scheduler.steps
    with pytest.raises(KeyboardInterrupt):
        query.collect()
    assert engine.scheduler.steps - before < 200, "an answer alone takes so many steps"
    assert excerpts.head(2).sem_filter(KEEP, name="v").collect().height == 2


def test_two_threads_at_once(engine, excerpts, naive):
    """Two queries share the engine, and each gets its rows."""
    found = {}

    def run(number, rows):
        frame = excerpts.slice(*rows).sem_filter(KEEP, name="v")
        found[number] = frame.collect().select("contract_id", "v").rows()

    threads = [
        threading.Thread(target=run, args=(number, rows))
        for number, rows in enumerate([(0, 10), (10, 14)])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] + found[1] == [(n, v) for n, v, _ in naive]


def test_inside_a_running_event_loop(engine, excerpts):
    """A notebook's event loop is no obstacle."""

    async def main():
        now = excerpts.head(3).sem_filter(KEEP, name="v").collect()
        later = await excerpts.head(3).lazy().sem_filter(KEEP, name="v").collect_async()
        return now, later

    now, later = asyncio.run(main())
    assert now.rows() == later.rows()


def test_self_join_is_computed_once(engine, excerpts):
    """A frame that a query pulls twice is computed once."""
    judged = excerpts.head(8).sem_filter(KEEP, name="v")
    out = judged.select("contract_id", "v").join(
        judged.select("contract_id", "text"), on="contract_id"
    )
    assert out.collect().height == 8
    assert semops.last_profile().operators["sem_filter:v"].calls == 8


def test_all_blocks_pinned_through_the_adapter(engine, vllm_backend, excerpts):
    """The deadlock monitor drops the pins; the query ends."""
    capacity = vllm_backend.capabilities.kv_tokens
    pinned = 0
    for size in (640, 64):
        while capacity - pinned >= size:
            key = 10**8 + pinned
            prompt = [1_000 + pinned + i % 500 for i in range(size)]
            if capacity - pinned > size:  # the request itself needs a block more
                run_alone(vllm_backend, [*prompt, 7], Decoding(1))
            held = vllm_backend.pin(key, prompt)
            if held < size:
                break
            pinned += held
    started = time.monotonic()
    assert excerpts.head(2).sem_filter(KEEP, name="v").collect().height == 2
    assert engine.scheduler.events.deadlocks == 1
    assert not engine.scheduler.pins.enabled
    assert time.monotonic() - started < 60


SCRIPT = """
    import polars as pl
    import semops
    semops.configure(model={model!r}, kv_tokens=2048)
    df = pl.DataFrame({{"text": ["good", "bad"]}})
    out = df.sem_map("Praise {{text}}", "m", max_tokens=2, on_cutoff="keep").collect()
    print(out.height)
    {more}
"""


@pytest.mark.parametrize(
    "more", ["", "next(iter(df.sem_map('Say {text}').collect_batches(chunk_size=1, lazy=True)))"]
)
def test_script_that_never_closes(model_folder, more):
    """The process ends with code 0, without a traceback, also with a stream half-way."""
    code = textwrap.dedent(SCRIPT.format(model=model_folder, more=more))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2"
    assert "Traceback" not in done.stderr
