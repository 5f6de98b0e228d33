"""Semantic operators on Polars frames: functions, methods and the ``.sem`` namespace.

Each operator gives a real ``pl.LazyFrame`` whose node is an IO source. When Polars pulls the outermost
one, the chain below is planned and run as one pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from polars.io.plugins import register_io_source

from semops import session
from semops.errors import ConfigError, SchemaError, UnsupportedError
from semops.operators import (
    Asking,
    SemFilter,
    SemJoin,
    SemMap,
    check_answers,
    check_choice,
    check_max_tokens,
    check_stop,
    check_text,
    label,
)
from semops.planner.explain import explain as explain_plan
from semops.planner.polars_reader import outermost
from semops.polars_source import SemSource, plan
from semops.serialize import check_dtypes
from semops.template import bind, bind_join, parse

if TYPE_CHECKING:
    from typing import Any

    from semops.operators import OnCutoff, OnError, Operator, PromptStyle

Frame = pl.DataFrame | pl.LazyFrame


def sem_filter(
    frame: Frame,
    instruction: str,
    *,
    answers: tuple[str, str] = ("True", "False"),
    name: str | None = None,
    probability: str | None = None,
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
    schema = _schema(lazy)
    operator = SemFilter(
        bind(parse(check_text("instruction", instruction)), schema),
        check_answers(answers),
        None if name is None else check_text("name", name),
        None if probability is None else check_text("probability", probability),
        _asking(prompt_style, on_error),
    )
    return _source(lazy, operator, schema)


def sem_map(
    frame: Frame,
    instruction: str,
    name: str | None = None,
    *,
    max_tokens: int = 256,
    stop: str | tuple[str, ...] = (),
    prompt_style: PromptStyle | None = None,
    on_error: OnError | None = None,
    on_cutoff: OnCutoff = "null",
) -> pl.LazyFrame:
    """Add a text column with the model's answer to an instruction.

    Parameters
    ----------
    frame
        A Polars frame.
    instruction
        What to answer; ``{column}`` names a column.
    name
        Name of the new column; default ``sem_map``, then ``sem_map_2``.
    max_tokens
        Cap on the answer, in tokens.
    stop
        Texts that end the answer. In raw style a line's end does, unless given.
    prompt_style, on_error
        As in :func:`sem_filter`.
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
    """
    lazy = _lazy("frame", frame)
    schema = _schema(lazy)
    check_choice("on_cutoff", on_cutoff, ("null", "keep"))
    operator = SemMap(
        bind(parse(check_text("instruction", instruction)), schema),
        _free_name("sem_map", schema) if name is None else check_text("name", name),
        check_max_tokens(max_tokens),
        check_stop(stop),
        on_cutoff,
        _asking(prompt_style, on_error),
    )
    return _source(lazy, operator, schema)


def sem_join(
    frame: Frame,
    right: Frame,
    instruction: str,
    *,
    how: str = "inner",
    suffix: str = "_right",
    answers: tuple[str, str] = ("True", "False"),
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
    answers, prompt_style, on_error
        As in :func:`sem_filter`.

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
    schema, right_schema = _schema(lazy), _schema(other)
    asked = parse(check_text("instruction", instruction))
    template = bind_join(asked, schema, right_schema)
    names = tuple((c, f"{c}{suffix}" if c in schema else c) for c in right_schema)
    operator = SemJoin(template, names, check_answers(answers), _asking(prompt_style, on_error))
    read_right = tuple(p.column for p in template.placeholders if p.side == "right")
    check_dtypes(right_schema, read_right, "sem_join")
    return _source(lazy, operator, schema, other)


def explain(frame: pl.LazyFrame) -> str:
    """Return how a frame's outermost semantic operator and all below it will run.

    Parameters
    ----------
    frame
        A lazy frame that ends in a semantic operator, or in filters and selections above one.

    Raises
    ------
    PlanError
        If there is no semantic operator, or Polars does other work above it.

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
    return explain_plan(plan(source, pushed))


def _lazy(argument: str, frame: object) -> pl.LazyFrame:
    if not isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        msg = (
            f"{argument} must be a Polars DataFrame or LazyFrame, not {type(frame).__name__}. Make one "
            f"with pl.from_pandas(...), pl.DataFrame(...) or, of a column, series.to_frame()."
        )
        raise ConfigError(msg)
    return frame.lazy()


def _schema(frame: pl.LazyFrame) -> pl.Schema:
    # Of a copy: Polars would hold the frame's lock while it waits for Python's, and a thread that starts to
    # collect the same frame holds Python's while it waits for the frame's.
    return frame.clone().collect_schema()


def _source(
    upstream: pl.LazyFrame,
    operator: Operator,
    schema: pl.Schema,
    right: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """Return a lazy frame whose node runs an operator."""
    if isinstance(operator, SemJoin):
        assert right is not None  # noqa: S101 - sem_join passes it
        read_left = tuple(p.column for p in operator.template.placeholders if p.side == "left")
        names = dict(operator.right_names)
        added = {names[c]: dtype for c, dtype in _schema(right).items()}
    else:
        read_left = operator.template.columns
        added = _added_dtypes(operator)
    check_dtypes(schema, read_left, operator.kind)
    taken = list(schema)
    for name in operator.writes:
        if name in taken:
            raise SchemaError.name_clash(name, schema, operator.kind)
        taken.append(name)
    whole = pl.Schema({**schema, **added})
    return register_io_source(
        SemSource(upstream, tuple(schema), operator, whole, right),
        schema=whole,
        is_pure=True,
        explain_name=label(operator),
        explain_detail=operator.template.text,
    )


def _added_dtypes(operator: SemFilter | SemMap) -> dict[str, Any]:
    if isinstance(operator, SemMap):
        return {operator.name: pl.String()}
    dtypes: dict[str, Any] = {}
    if operator.name is not None:
        dtypes[operator.name] = pl.Boolean()
    if operator.probability is not None:
        dtypes[operator.probability] = pl.Float64()
    return dtypes


def _asking(style: PromptStyle | None, on_error: OnError | None) -> Asking:
    """Fill in the options in force now; when the query runs, the block may be over."""
    settings = session.settings()
    return Asking(
        settings.prompt_style if style is None else style,
        settings.on_error if on_error is None else on_error,
    )


def _free_name(base: str, schema: pl.Schema) -> str:
    name, number = base, 2
    while name in schema:
        name, number = f"{base}_{number}", number + 1
    return name
