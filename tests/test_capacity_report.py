"""What the user asks of capacity: a report, a plot, an estimate of a plan."""

from __future__ import annotations

import itertools
import math
import sys

import polars as pl
import pytest

import semops
from semops import session
from semops.engine.backends.replay import WordTokenizer
from semops.engine.backends.simulator import Simulated, SimulatorBackend
from semops.engine.plan import Request
from semops.engine.time_model import TimeModel
from semops.errors import ConfigError, MissingExtraError, UnsupportedError
from semops.testing import replay

LENGTHS = [(512, 64), (2_048, 16)]
FRAME = pl.DataFrame({"id": range(500), "text": [f"row {n} " + "word " * 60 for n in range(500)]})


def simulated(request: Request) -> Simulated:
    return Simulated(min(request.decoding.max_tokens, 12), text="yes")


def engine() -> SimulatorBackend:
    """A simulated engine whose steps take a tenth of a second and a millisecond a token."""
    return SimulatorBackend(simulated, TimeModel(0.1, 1e-3, 1e-3, 0.0), kv_tokens=8_192)


def test_a_frame_is_as_good_as_pairs() -> None:
    frame = pl.DataFrame(LENGTHS, schema=["prompt_tokens", "output_tokens"], orient="row")
    one = semops.capacity(frame, kv_tokens=100_000, step_s=0.03)
    other = semops.capacity(LENGTHS, kv_tokens=100_000, step_s=0.03)
    assert one == other


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([], {}, "lengths is empty"),
        ([(0, 5)], {}, r"lengths holds \(0, 5\)"),
        (pl.DataFrame({"prompt": [1]}), {}, "no column 'prompt_tokens'.*Columns here: 'prompt'"),
        (LENGTHS, {"kv_tokens": 0}, "kv_tokens=0 must be a number above 0"),
        (LENGTHS, {"rate": -1}, "rate=-1 must be a number above 0"),
        (LENGTHS, {"admission": "hope"}, "admission='hope' is not known; choose one of 'ledger'"),
    ],
)
def test_wrong_arguments_are_told(lengths, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        semops.capacity(lengths, **{"kv_tokens": 100_000, "step_s": 0.03, **options})


def test_without_an_engine_that_says_its_steps_the_seconds_must_be_given() -> None:
    with replay(lambda *_: True), pytest.raises(ConfigError, match="Give step_s="):
        semops.capacity(LENGTHS)
    with replay(lambda *_: True):
        assert semops.capacity([(100, 10)], step_s=0.1).capacity.rate > 0


def test_the_processs_engine_is_timed_if_it_has_run_nothing() -> None:
    with session.override(engine) as thread:
        found = semops.capacity([(100, 20)])
        assert thread.scheduler.meter.model().base_s == pytest.approx(0.1, rel=1e-3)
        steps = thread.scheduler.steps
        again = semops.capacity([(100, 20)], rate=found.capacity.rate * 3)
        assert thread.scheduler.steps == steps, "timed once"
    assert again.engines == 4
    assert again.capacity == found.capacity


def test_the_queue_grows_over_the_limit_only() -> None:
    found = semops.capacity(
        [(s, o) for s in range(50, 400, 50) for o in range(10, 90, 20)],
        kv_tokens=8_000,
        step_s=0.03,
    )
    under, over = found.queue(0.8), found.queue(1.25)
    assert over[-1] > 5 * max(under[-1], 10)
    assert max(under) < 60


def test_a_plot(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "queue.png"
    semops.capacity(LENGTHS, kv_tokens=60_000, step_s=0.03, plot=path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_names_what_installs_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"kalypso-semops\[bench\]"):
        semops.capacity(LENGTHS, kv_tokens=60_000, step_s=0.03, plot=tmp_path / "x.png")


def test_a_plan_is_estimated_before_it_runs_and_the_estimate_holds() -> None:
    """Requests and prompt tokens exactly, seconds within 20 %."""
    lazy = FRAME.sem_map("Say something about {text}", "said", max_tokens=12, on_cutoff="keep")
    lazy = lazy.sem_map("What else about {text}", "more", max_tokens=12, on_cutoff="keep")
    with session.override(engine) as thread:
        text = semops.explain(lazy, estimate=True, within_s=60)
        backend = thread.scheduler.backend
        assert isinstance(backend, SimulatorBackend)
        before_s, before = backend.now_s, backend.totals.prompt_tokens
        with semops.profile() as profile:
            lazy.collect()
        seconds, prompt = backend.now_s - before_s, backend.totals.prompt_tokens - before
    assert "estimate: 500 rows, 1,000 requests if every row passes" in text
    assert "sem_map:said: 500 requests" in text
    line = next(line for line in text.splitlines() if line.startswith("  time: "))
    estimated = float(line.split()[1].replace(",", ""))
    assert estimated == pytest.approx(seconds, rel=0.2)
    assert "engines like this one" in text
    said = next(part for part in text.splitlines() if part.startswith("  sem_map:said"))
    per_request = float(said.split("prompt ")[1].split()[0])
    assert per_request == pytest.approx(prompt / 1_000, rel=0.05)
    assert profile.operators["sem_map:more"].cached_tokens > 0


def test_an_estimate_asks_nothing_and_counts_pairs() -> None:
    right = pl.DataFrame({"other": ["a", "b", "c"]})
    lazy = FRAME.sem_filter("{text} is good").sem_join(right, "{text} fits {other}")
    with replay(lambda *_: True) as log:
        text = semops.explain(lazy, estimate=True)
        assert log.calls == []
    assert "sem_filter: 500 requests" in text
    assert "sem_join: 1,500 requests" in text
    assert "seconds are not known" in text
    assert text.startswith("source:")


SPARSE = pl.DataFrame({"a": ["x", None, "y", None, "z"], "b": [None, "1", "2", "3", "4"]})
SPARSE_RIGHT = pl.DataFrame({"c": ["p", None, "q"]})


@pytest.mark.parametrize(
    "query",
    [
        lambda lf: lf.sem_map("{b}", "m"),
        lambda lf: lf.sem_map("{a} {b}", "m"),
        lambda lf: lf.sem_map("{a}", "m").sem_map("{b}", "n"),
        lambda lf: lf.sem_map("{a}", "m").sem_map("{m}", "n").sem_map("{n} {b}", "o"),
        lambda lf: lf.sem_map("{a}", "m", nulls="text"),
        lambda lf: lf.sem_filter("{a}").sem_map("{b}", "n"),
        lambda lf: lf.sem_filter("{a}", nulls="text").sem_map("{b}", "n"),
        lambda lf: lf.sem_filter("{a}", name="v").sem_map("{v} {b}", "n"),
        lambda lf: lf.sem_join(SPARSE_RIGHT, "{a} {c}").sem_map("{b}", "n"),
        lambda lf: lf.sem_join(SPARSE_RIGHT, "{a} {c}", nulls="text").sem_map("{c}", "n"),
        lambda lf: lf.sem_map("{a}", "m").with_columns(b=pl.lit("x")).sem_map("{b}", "n"),
        lambda lf: lf.filter(pl.col("a").is_null()).sem_map("{a}", "m"),
    ],
    ids=itertools.count(),
)
def test_an_estimate_counts_rows_with_null_as_the_run_does(query) -> None:
    lazy = query(SPARSE.lazy())
    with replay(lambda operator, *_: True if operator != "sem_map" else "t"):
        text = semops.explain(lazy, estimate=True)
        lazy.collect()
    for name, counts in semops.last_profile().operators.items():
        assert f"  {name}: {counts.calls + counts.reused:,} requests" in text


RIGHT = pl.DataFrame({"other": ["a", "b"]}).sem_filter("{other} is good")


@pytest.mark.parametrize(
    "lazy",
    [
        FRAME.sem_filter("{text} is good").sort("id").sem_map("Say {text}", "said"),
        FRAME.sem_join(RIGHT, "{text} fits {other}"),
        FRAME.sem_join(RIGHT.sort("other"), "{text} fits {other}").sem_map("Say {text}", "said"),
    ],
)
def test_what_would_have_to_run_for_an_estimate_is_told(lazy: pl.LazyFrame) -> None:
    with replay(lambda *_: True) as log:
        with pytest.raises(UnsupportedError, match="Estimate the part"):
            semops.explain(lazy, estimate=True)
        assert log.calls == []


@pytest.mark.parametrize("column", ["sem_map", "sem_filter", "my_sem_join"])
def test_a_column_may_be_named_like_an_operator(column: str) -> None:
    """It is what a map calls its answers where nobody says otherwise."""
    frame = FRAME.with_columns(pl.lit(column).alias(column)).lazy()
    lazy = frame.filter(pl.col(column) == column).sem_filter("{text} is good")
    with replay(lambda *_: True):
        assert "500 requests" in semops.explain(lazy, estimate=True)


def test_a_time_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="within_s=0 must be a number above 0"):
        semops.explain(FRAME.sem_map("Say {text}", "said"), within_s=0)


def test_a_row_of_words_is_counted_as_the_tokenizer_counts_it() -> None:
    tokens = len(WordTokenizer().encode(FRAME["text"][0]))
    with replay(lambda *_: True):
        text = semops.explain(
            FRAME.sem_map("Say {text}", "said", prompt_style="raw"), estimate=True
        )
    prompt = float(text.split("prompt ")[1].split()[0])
    assert tokens < prompt < tokens + 40


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "x", True])
@pytest.mark.parametrize("name", ["kv_tokens", "step_s", "chunk_tokens", "max_running", "rate"])
def test_every_size_is_a_number_above_nothing(name, bad):
    arguments = {"kv_tokens": 10_000, "step_s": 0.02, "rate": 1.0, name: bad}
    with pytest.raises(ConfigError, match=f"{name}="):
        semops.capacity([(100, 10)], **arguments)


@pytest.mark.parametrize(
    "lengths",
    ["x", [5, 6], [("a", 1)], [(None, 1)], [(math.inf, 1)], [(10**300, 1)], [(1, 2, 3)], 7],
    ids=str,
)
def test_lengths_are_pairs_of_tokens(lengths):
    with pytest.raises(ConfigError, match="lengths"):
        semops.capacity(lengths, kv_tokens=10_000, step_s=0.02)


def test_a_request_that_never_fits_is_told():
    with pytest.raises(semops.CapacityError, match="can't run in KV memory"):
        semops.capacity([(20_000, 10)], kv_tokens=10_000, step_s=0.02, rate=10.0)


def test_a_long_prompt_takes_no_time():
    found = semops.capacity([(10**9, 10)], kv_tokens=2 * 10**9, step_s=0.02)
    assert found.capacity.area > 10**9
