"""Semantic operators on Polars frames: functions, methods and the ``.sem`` namespace.

Each operator gives a real ``pl.LazyFrame`` whose node is an IO source. When Polars pulls the outermost
one, the chain below is planned and run as one pipeline.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from semops import session
from semops.arguments import (
    answer_of,
    check_answers,
    check_choice,
    check_flag,
    check_max_tokens,
    check_number,
    check_stop,
    check_text,
)
from semops.capacity_report import estimate_lines
from semops.errors import ConfigError, UnsupportedError
from semops.examples import bind_examples
from semops.operators import Asking, Deciding, SemFilter, SemJoin, SemMap, reads
from semops.planner.explain import explain as explain_plan
from semops.planner.polars_reader import outermost
from semops.polars_source import plan, schema_of, semantic_frame
from semops.schemas import most_tokens, shape_of, written
from semops.serialize import check_dtypes, text_of
from semops.template import bind, bind_join, parse

if TYPE_CHECKING:
    from typing import Any

    from semops.examples import Example
    from semops.operators import Nulls, OnCutoff, OnError, Overflow, PromptStyle

Frame = pl.DataFrame | pl.LazyFrame


def sem_filter(
    frame: Frame,
    instruction: str,
    *,
    answers: tuple[str, str] = ("True", "False"),
    name: str | None = None,
    probability: str | None = None,
    examples: Any = None,
    calibrate: bool = False,
    min_margin: float = 0.0,
    min_mass: float = 0.0,
    nulls: Nulls | None = None,
    overflow: Overflow | None = None,
    prompt_style: PromptStyle | None = None,
    on_error: OnError | None = None,
) -> pl.LazyFrame:
    """Keep the rows for which an instruction is true.

    One token is decoded and the log probabilities of the two answers are compared. A row that can't
    be decided is NULL: it is dropped, as SQL drops a NULL predicate, and counted in the profile. A row
    with NULL in a column that the instruction names is NULL without a call.

    Parameters
    ----------
    frame
        A Polars frame.
    instruction
        What must be true; ``{column}`` names a column.
    answers
        What the model says for yes and for no.
    name
        Add the verdict as a Boolean column of this name, and keep all rows.
    probability
        Add the probability of yes as a Float64 column of this name.
    examples
        Rows with their answers, shown to the model: a frame or dicts with a column ``answer``, or pairs
        ``(row, answer)``; an answer is True or False, or one of ``answers``.
    calibrate
        Ask about three rows without content first, and take what the model answers to them off the
        log odds of every verdict.
    min_margin
        Verdicts with log odds below this are NULL, in nats (2.2 is nine to one).
    min_mass
        Verdicts are NULL where the model gives both answers together less probability, in [0, 1].
    nulls
        ``text`` asks about rows with NULL in a column that the instruction names, which stands as
        ``null`` then; default from :func:`semops.configure`.
    overflow
        ``truncate`` cuts the longest fields of a row that is longer than the context, and counts it;
        ``error`` makes it NULL with a reason. Default from :func:`semops.configure`.
    prompt_style
        ``chat`` or ``raw``; default from :func:`semops.configure`.
    on_error
        ``null`` or ``raise``; default from :func:`semops.configure`.

    Returns
    -------
    polars.LazyFrame
        Nothing runs before it is collected.

    Raises
    ------
    TemplateError
        If the instruction names no column, or one that isn't there.
    SchemaError
        If a new column's name is taken, or a column has no text form.
    ConfigError
        If an argument has a value that is not allowed.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> df = pl.DataFrame({"text": ["good", "bad"]})
    >>> df.sem_filter("{text} is praise").collect().height
    2
    """
    lazy = _lazy("frame", frame)
    schema = schema_of(lazy)
    template = bind(parse(check_text("instruction", instruction)), schema)
    checked = check_answers(answers)
    shown = bind_examples(examples, template.columns, answer_of(checked))
    operator = SemFilter(
        template,
        checked,
        None if name is None else check_text("name", name),
        None if probability is None else check_text("probability", probability),
        _asking(prompt_style, on_error, nulls, overflow, shown),
        _deciding(calibrate, min_margin, min_mass),
    )
    return semantic_frame(lazy, operator, schema)


def sem_map(
    frame: Frame,
    instruction: str,
    name: str | None = None,
    *,
    max_tokens: int = 256,
    stop: str | tuple[str, ...] = (),
    schema: Any = None,
    temperature: float = 0.0,
    examples: Any = None,
    nulls: Nulls | None = None,
    overflow: Overflow | None = None,
    prompt_style: PromptStyle | None = None,
    on_error: OnError | None = None,
    on_cutoff: OnCutoff = "null",
) -> pl.LazyFrame:
    """Add a column with the model's answer to an instruction: text, or values of a type.

    Parameters
    ----------
    frame
        A Polars frame.
    instruction
        What to answer; ``{column}`` names a column.
    name
        Name of the new column; default ``sem_map``, then ``sem_map_2``.
    max_tokens
        Cap on the answer, in tokens; a number alone gets 48 at most.
    stop
        Texts that end the answer. In raw style a line's end does, unless given.
    schema
        Type of the answer, which decoding is held to: a pydantic model (a Struct column), a Literal or
        Enum of texts (an Enum column), a Polars dtype, or a Python type. An answer that does not fit
        all the same is NULL, with the reason ``invalid``.
    temperature
        0 takes the likeliest token; above, answers are drawn, the same one for the same prompt.
    examples, nulls, overflow, prompt_style, on_error
        As in :func:`sem_filter`; the answers of examples are texts, or values of ``schema``.
    on_cutoff
        What an answer becomes that reaches ``max_tokens``: ``null`` (counted), or ``keep``.

    Returns
    -------
    polars.LazyFrame
        Nothing runs before it is collected.

    Raises
    ------
    TemplateError, SchemaError, ConfigError
        As in :func:`sem_filter`.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> df = pl.DataFrame({"text": ["a", "b"]})
    >>> df.sem_map("Translate {text}", "translation").collect().columns
    ['text', 'translation']
    >>> df.sem_map("How good is {text}, from 1 to 5?", "stars", schema=pl.UInt8).collect_schema()
    Schema([('text', String), ('stars', UInt8)])
    """
    lazy = _lazy("frame", frame)
    columns = schema_of(lazy)
    check_choice("on_cutoff", on_cutoff, ("null", "keep"))
    max_tokens = check_max_tokens(max_tokens)
    shape = shape_of(schema, max_tokens)
    if shape is not None and (on_cutoff != "null" or stop):
        msg = (
            'schema= takes neither on_cutoff="keep" nor stop=: half an answer is no value of a type. '
            "Leave them out."
        )
        raise ConfigError(msg)
    template = bind(parse(check_text("instruction", instruction)), columns)
    answer_text = text_of if shape is None else functools.partial(written, shape)
    shown = bind_examples(examples, template.columns, answer_text)
    operator = SemMap(
        template,
        _free_name("sem_map", columns) if name is None else check_text("name", name),
        most_tokens(shape, max_tokens),
        check_stop(stop),
        on_cutoff,
        _asking(prompt_style, on_error, nulls, overflow, shown),
        shape,
        check_number("temperature", temperature, 0, 10),
    )
    return semantic_frame(lazy, operator, columns)


def sem_join(
    frame: Frame,
    right: Frame,
    instruction: str,
    *,
    how: str = "inner",
    suffix: str = "_right",
    answers: tuple[str, str] = ("True", "False"),
    examples: Any = None,
    calibrate: bool = False,
    min_margin: float = 0.0,
    min_mass: float = 0.0,
    nulls: Nulls | None = None,
    overflow: Overflow | None = None,
    prompt_style: PromptStyle | None = None,
    on_error: OnError | None = None,
) -> pl.LazyFrame:
    """Keep the pairs of rows for which an instruction is true.

    Pairs come in the order of the left rows, then of the right ones. The right frame is computed first
    and held in memory.

    Parameters
    ----------
    frame, right
        Polars frames.
    instruction
        What must be true of a pair; ``{column:left}`` and ``{column:right}`` choose a side, a plain
        ``{column}`` is enough where only one side has it.
    how
        Only ``inner``.
    suffix
        Appended to right columns whose name is taken.
    answers, calibrate, min_margin, min_mass, nulls, overflow, prompt_style, on_error
        As in :func:`sem_filter`.
    examples
        As in :func:`sem_filter`, with the columns under their names in the result.

    Returns
    -------
    polars.LazyFrame
        Left columns, then right columns.

    Raises
    ------
    TemplateError, SchemaError, ConfigError
        As in :func:`sem_filter`.
    UnsupportedError
        If ``how`` is another kind of join.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> left, right = pl.DataFrame({"claim": ["x"]}), pl.DataFrame({"fact": ["y", "z"]})
    >>> left.sem_join(right, "{claim} follows from {fact}").collect().shape
    (2, 2)
    """
    if how != "inner":
        msg = f'sem_join(how={how!r}) is not available; use how="inner".'
        raise UnsupportedError(msg)
    lazy, other = _lazy("frame", frame), _lazy("right", right)
    check_text("suffix", suffix)
    schema, right_schema = schema_of(lazy), schema_of(other)
    asked = parse(check_text("instruction", instruction))
    template = bind_join(asked, schema, right_schema)
    names = tuple((c, f"{c}{suffix}" if c in schema else c) for c in right_schema)
    checked = check_answers(answers)
    operator = SemJoin(
        template, names, checked, deciding=_deciding(calibrate, min_margin, min_mass)
    )
    shown = bind_examples(examples, reads(operator), answer_of(checked))
    asking = _asking(prompt_style, on_error, nulls, overflow, shown)
    operator = replace(operator, asking=asking)
    read_right = tuple(p.column for p in template.placeholders if p.side == "right")
    check_dtypes(right_schema, read_right, "sem_join")
    return semantic_frame(lazy, operator, schema, other)


def explain(frame: pl.LazyFrame, *, estimate: bool = False, within_s: float | None = None) -> str:
    """Return how a frame's outermost semantic operator and all below it will run.

    Parameters
    ----------
    frame
        A lazy frame that ends in a semantic operator, or in filters and selections above one.
    estimate
        Say too what will be asked and how long that takes: rows are counted, the first 64 tokenised,
        and the engine is started; where it has run nothing yet it is timed for some seconds.
    within_s
        Say how many engines finish in so many seconds.

    Raises
    ------
    PlanError
        If there is no semantic operator, or Polars does other work above it.
    CapacityError
        With ``estimate``, if an instruction alone is longer than the context.
    UnsupportedError
        With ``estimate``, if semantic operators would have to run for it.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> df = pl.DataFrame({"text": ["a"]})
    >>> lf = df.sem_filter("{text} is kind").sem_map("Summarise {text}", "summary")
    >>> print(semops.explain(lf))
    source: DF ["text"]
    pipeline 1
      stage 1: one prefix a tuple
        sem_filter "{text} is kind"  reads text
        sem_map:summary "Summarise {text}"  reads text; at most 256 tokens; shares 'text' with sem_filter
    """
    source, pushed = outermost(_lazy("frame", frame))
    physical = plan(source, pushed)
    text = explain_plan(physical)
    if not estimate and within_s is None:
        return text
    return "\n".join([text, *estimate_lines(physical, within_s)])


def _lazy(argument: str, frame: object) -> pl.LazyFrame:
    if not isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        msg = (
            f"{argument} must be a Polars DataFrame or LazyFrame, not {type(frame).__name__}. Make one "
            f"with pl.from_pandas(...), pl.DataFrame(...) or, of a column, series.to_frame()."
        )
        raise ConfigError(msg)
    return frame.lazy()


def _asking(
    style: PromptStyle | None,
    on_error: OnError | None,
    nulls: Nulls | None,
    overflow: Overflow | None,
    examples: tuple[Example, ...],
) -> Asking:
    """Fill in the options in force now; when the query runs, the block may be over."""
    settings = session.settings()
    return Asking(
        settings.prompt_style if style is None else style,
        settings.on_error if on_error is None else on_error,
        examples,
        settings.nulls if nulls is None else nulls,
        settings.overflow if overflow is None else overflow,
    )


def _deciding(calibrate: bool, min_margin: float, min_mass: float) -> Deciding:  # noqa: FBT001
    return Deciding(
        check_flag("calibrate", calibrate),
        check_number("min_margin", min_margin, 0),
        check_number("min_mass", min_mass, 0, 1),
    )


def _free_name(base: str, schema: pl.Schema) -> str:
    name, number = base, 2
    while name in schema:
        name, number = f"{base}_{number}", number + 1
    return name
