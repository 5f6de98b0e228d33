"""Typed maps, examples, calibration, kept answers and a failing engine, on a real model."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import pytest
from pydantic import BaseModel, Field

import semops
from semops.engine import answer_cache

pytestmark = pytest.mark.integration

DATA = Path(__file__).parents[2] / "examples" / "data"


class Tone(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Aspect(BaseModel):
    name: str = Field(max_length=20)
    stars: int = Field(ge=1, le=5)


class Review(BaseModel):
    product: str = Field(max_length=30)
    tone: Tone
    score: int = Field(ge=0, le=10)
    aspects: list[Aspect] = Field(max_length=2)
    remark: str = Field(max_length=40)


@pytest.fixture(scope="module")
def reviews() -> pl.DataFrame:
    return pl.read_parquet(DATA / "reviews.parquet").select("snippet_id", "text", "label")


@pytest.mark.parametrize("style", ["chat", "raw"])
@pytest.mark.filterwarnings("ignore::semops.SemopsWarning")
def test_every_value_fits_the_model_or_is_null_with_a_reason(engine, reviews, style):
    lazy = reviews.head(25).sem_map(
        "Read what {text} says", "found", schema=Review, max_tokens=96, prompt_style=style
    )
    dtype = lazy.collect_schema()["found"]
    out = lazy.collect()
    assert out["found"].dtype == dtype
    values = [value for value in out["found"].to_list() if value is not None]
    for value in values:
        Review.model_validate(value)
    assert len(values) + semops.last_profile().errors().height == 25
    assert len(values) > 5


def test_scalars_and_choices_are_held_to_their_type(engine, reviews):
    frame = reviews.head(6)
    out = (
        frame.sem_map("How good is {text}?", "stars", schema=pl.UInt8, max_tokens=8)
        .sem_map("Is {text} kind?", "kind", schema=bool, max_tokens=8)
        .sem_map("What is the tone of {text}?", "tone", schema=Literal["good", "bad"], max_tokens=8)
        .collect()
    )
    assert out.schema["stars"] == pl.UInt8
    assert out["kind"].null_count() == 0
    assert set(out["tone"]) <= {"good", "bad"}
    assert semops.last_profile().events.deadlocks == 0


def test_temperature_draws_the_same_answer_for_the_same_prompt(engine, reviews):
    frame = reviews.head(4)
    ask = {"max_tokens": 8, "on_cutoff": "keep"}
    first, second = (
        frame.sem_map("Praise {text}", "out", temperature=1.5, **ask).collect() for _ in range(2)
    )
    greedy = frame.sem_map("Praise {text}", "out", **ask).collect()
    assert first.equals(second)
    assert not first.equals(greedy)


def test_examples_and_calibration_help_a_model_that_leans(engine, reviews):
    """On sentences that people rated; the best threshold knows the labels."""
    shots = [
        *zip(
            reviews.filter(pl.col("label") == "positive")["text"].head(2), [True] * 2, strict=True
        ),
        *zip(
            reviews.filter(pl.col("label") == "negative")["text"].head(2), [False] * 2, strict=True
        ),
    ]
    asked = reviews.tail(120)
    query = asked.sem_filter(
        "{text}\nSentiment:",
        answers=("positive", "negative"),
        prompt_style="raw",
        examples=[shots[0], shots[2], shots[1], shots[3]],
        calibrate=True,
        name="verdict",
    )
    out = query.collect()
    decisions = semops.last_profile().decisions["sem_filter:verdict"]
    assert decisions.calibration_calls in {0, 3}
    assert decisions.masses / decisions.verdicts > 0.5
    right = (out["verdict"] == (out["label"] == "positive")).sum()
    assert right / out.height > 0.8


def test_kept_answers_are_found_by_the_same_weights_only(engine, reviews, tmp_path):
    frame = reviews.head(8)
    query = frame.sem_filter("{text} is praise", name="v").sem_map(
        "Shorten {text}", "s", max_tokens=4, on_cutoff="keep"
    )
    with semops.options(cache=tmp_path / "answers.sqlite"):
        first = query.collect()
        second = query.collect()
    assert second.equals(first)
    counts = semops.last_profile().operators
    assert counts["sem_filter:v"].restored == 8
    assert counts["sem_filter:v"].calls == 0
    kept = answer_cache.info(tmp_path / "answers.sqlite").answers
    assert kept == 8 + first.height - counts["sem_map:s"].calls
    assert len(engine.capabilities.identity.split(":")[0]) == 32


def test_an_engine_that_fails_in_a_step_is_started_again(model_folder):
    """In a process of its own: the session's engine must not be closed."""
    script = f"""
        import polars as pl, semops
        from semops import session
        semops.configure(model={model_folder!r}, kv_tokens=4096, dtype="float32")
        frame = pl.DataFrame({{"id": range(30), "text": [f"sentence number {{i}}" for i in range(30)]}})
        query = frame.sem_filter("{{text}} is long", name="v").sem_map(
            "Shorten {{text}}", "s", max_tokens=6, on_cutoff="keep")
        expected = query.collect()
        backend = session.engine().scheduler.backend
        step, left = backend._engine.step, [6]
        def breaks():
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("a kernel failed")
            return step()
        backend._engine.step = breaks
        assert query.collect().equals(expected)
        assert semops.last_profile().events.rebuilt == 1
        assert session.engine().scheduler.backend is not backend
        assert query.collect().equals(expected)
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("fine\n"), done.stderr
    assert "sentence number" not in done.stderr


@pytest.mark.parametrize(
    "schema",
    [
        pl.Int64,
        pl.Int128,
        pl.UInt64,
        float,
        pl.Struct({"n": pl.Int64}),
        dt.datetime,
        pl.Time,
        pl.Date,
        Literal["a.b", "$(c)|", "d\ne", 'f"'],
        Annotated[int, Field(multiple_of=5)],
        Annotated[float, Field(ge=-1, le=1)],
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::semops.SemopsWarning")
def test_no_type_is_refused_by_the_engine(engine, reviews, schema):
    reviews.head(3).sem_map("When was {text}?", "out", schema=schema, max_tokens=40).collect()
    reasons = set(semops.last_profile().errors()["reason"])
    assert reasons <= {"cut_off", "invalid"}
