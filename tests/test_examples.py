"""Few-shot examples: bound when the operator is built, and shown where the style can use them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from spelling import Spelling

import semops
from semops.errors import ConfigError
from semops.prompts import Prompter, joined
from semops.runtime.scopes import collect_part
from semops.testing import replay

FRAME = pl.DataFrame({"text": ["so good", "awful"], "title": ["A", "B"]})
ROWS = [{"text": "fine", "answer": True}, {"text": "dreadful", "answer": False}]


def source(frame: pl.LazyFrame):
    return semops.frames.outermost(frame)[0]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        pl.DataFrame(ROWS),
        pl.DataFrame(ROWS).lazy(),
        [("fine", True), ("dreadful", False)],
        [({"text": "fine", "more": 1}, "True"), ({"text": "dreadful"}, "False")],
        [{"text": "fine", "Answer": "True"}, {"text": "dreadful", "ANSWER": "False"}],
    ],
)
def test_all_forms_mean_the_same(given) -> None:
    operator = source(FRAME.sem_filter("{text} is praise", examples=given)).operator
    assert operator.asking.examples == (
        ((("text", "fine"),), "True"),
        ((("text", "dreadful"),), "False"),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"text": "fine"}], "lacks 'answer'"),
        ([{"answer": True}], "lacks 'text'"),
        ([{"text": None, "answer": True}], "NULL in 'text'"),
        ([{"text": "fine", "answer": None}], "NULL as its answer"),
        ([("fine", "maybe")], "must be True or False, or one of 'True' and 'False'"),
        ("fine", "must be a Polars frame"),
        ({"text": "fine", "answer": True}, "must be a Polars frame"),
        ([3], "must be a dict"),
    ],
)
def test_a_wrong_example_is_told_at_once(given, message) -> None:
    with pytest.raises(ConfigError, match=message):
        FRAME.sem_filter("{text} is praise", examples=given)


def test_one_value_for_two_columns_is_told() -> None:
    with pytest.raises(ConfigError, match="reads 'text', 'title'"):
        FRAME.sem_filter("{text} fits {title}", examples=[("fine", True)])


def prompts(frame: pl.LazyFrame, style: str = "chat") -> list[str]:
    """Return the prompts of a frame's rows as texts."""
    prompter = Prompter(Spelling(), "S")
    operator = source(frame).operator
    rows = collect_part(source(frame).upstream).to_dicts()
    return [Spelling().decode(joined(prompter.prompt(operator, row))) for row in rows]


def test_in_chat_style_examples_follow_the_row_so_that_its_prefix_is_shared() -> None:
    taught = prompts(FRAME.sem_filter("{text} is praise", examples=ROWS))
    plain = prompts(FRAME.sem_filter("{text} is praise"))
    row = "<s>S<u>text: so good\n\n"
    assert plain[0].startswith(row)
    assert taught[0].startswith(row)
    assert "text: fine\nAnswer: True\n\ntext: dreadful\nAnswer: False\n\nIs this true" in taught[0]


def test_in_raw_style_examples_come_first_as_the_model_would_write_them() -> None:
    taught = prompts(
        FRAME.sem_filter(
            "{text}\nTone:", answers=("kind", "rude"), examples=ROWS, prompt_style="raw"
        )
    )
    assert (
        taught[0] == "text: fine\nTone: kind\n\ntext: dreadful\nTone: rude\n\ntext: so good\nTone:"
    )


def test_explain_says_what_raw_examples_cost() -> None:
    with semops.options(prompt_style="raw"):
        frame = FRAME.sem_filter("{text}\nTone:", examples=ROWS).sem_map("{text}\nWord:", "word")
    text = semops.explain(frame)
    assert "2 examples" in text
    assert "shares nothing with sem_filter: examples come before the row in raw style" in text


def test_answers_do_not_depend_on_how_examples_share_a_prefix() -> None:
    """Operators with other heads over the same columns keep their prompts apart."""
    seen = {}

    def answer(operator, instruction, row):
        return row["text"].startswith("s") if operator == "sem_filter" else f"{instruction}!"

    with replay(answer) as log, semops.options(prompt_style="raw"):
        out = (
            FRAME.sem_filter("{text}\nTone:", examples=ROWS, name="good")
            .sem_map("{text}\nWord:", "word", examples=[("fine", "fine")])
            .sem_map("{text}\nPhrase:", "phrase")
            .collect()
        )
        seen = {call.instruction for call in log.calls}
    assert out["good"].to_list() == [True, False]
    assert out["word"].to_list() == ["{text}\nWord:!"] * 2
    assert len(seen) == 3


def test_examples_of_a_join_name_the_columns_of_the_result() -> None:
    right = pl.DataFrame({"text": ["x"]})
    frame = FRAME.sem_join(
        right,
        "{text:left} follows from {text:right}",
        examples=[{"text": "a", "text_right": "b", "answer": True}],
    )
    assert source(frame).operator.asking.examples[0].fields == (("text", "a"), ("text_right", "b"))


def test_an_answer_is_not_taken_for_a_column_of_that_name() -> None:
    frame = pl.DataFrame({"answer": ["looong"]})
    with pytest.raises(ConfigError, match="Give pairs"):
        frame.sem_map("Shorten {answer}", examples=[{"answer": "looong", "Answer": "short"}])
    lazy = frame.sem_map("Shorten {answer}", examples=[({"answer": "looong"}, "short")])
    assert source(lazy).operator.asking.examples == (((("answer", "looong"),), "short"),)


def test_values_of_an_example_read_as_those_of_a_row() -> None:
    shots = pl.DataFrame(
        {"n": [0.1], "answer": [True]}, schema={"n": pl.Float32, "answer": pl.Boolean}
    )
    lazy = pl.DataFrame({"n": [0.2]}).sem_filter("{n} is small", examples=shots)
    assert source(lazy).operator.asking.examples[0].fields == (("n", "0.1"),)
    lazy = FRAME.sem_filter("{text} is praise", examples=[("fine", np.bool_(True))])
    assert source(lazy).operator.asking.examples[0].answer == "True"
    with pytest.raises(ConfigError, match="half a surrogate pair"):
        FRAME.sem_filter("{text} is praise", examples=[("\ud800", True)])
