"""From SQL calls to the frame functions, with the options that each takes."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from semops import frames
from semops.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

NOT_IN_SQL: Final = frozenset({"name", "probability", "how", "suffix", "schema"})
"""Keywords that say what becomes of the answer; in SQL the statement says it."""


def allowed_options(operator: str) -> tuple[str, ...]:
    """Return the options of an operator in SQL.

    Examples
    --------
    >>> "max_tokens" in allowed_options("sem_map"), "name" in allowed_options("sem_filter")
    (True, False)
    """
    parameters = inspect.signature(getattr(frames, operator)).parameters.values()
    keywords = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return tuple(sorted(set(keywords) - NOT_IN_SQL))


def check_names(operator: str, options: Mapping[str, Any]) -> None:
    """Check that an operator takes all options.

    Raises
    ------
    ConfigError
        If it doesn't take one.
    """
    allowed = allowed_options(operator)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        msg = (
            f"{operator} in SQL takes no option {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(allowed)}. Options stand in a struct after the arguments, for example "
            f"{{'on_error': 'raise'}}, or in a planned statement as on_error := 'raise'."
        )
        raise ConfigError(msg)


def asked(
    frame: pl.LazyFrame,
    operator: str,
    instruction: str,
    options: Mapping[str, Any],
    column: str | None,
) -> pl.LazyFrame:
    """Return a frame with an operator on top.

    Parameters
    ----------
    frame
        Has a column for each placeholder of the instruction.
    operator
        ``sem_filter`` or ``sem_map``.
    instruction
        What to ask.
    options
        Keyword arguments.
    column
        Where the answer goes; None drops the rows for which it isn't true.

    Raises
    ------
    ConfigError
        If an option has an unknown name or a wrong value.
    """
    check_names(operator, options)
    given = {} if column is None else {"name": column}
    function = getattr(frames, operator)
    return function(frame, instruction, **given, **options)  # type: ignore[no-any-return]


def paired(
    frame: pl.LazyFrame, right: pl.LazyFrame, instruction: str, options: Mapping[str, Any]
) -> pl.LazyFrame:
    """Return the pairs of rows for which an instruction is true."""
    check_names("sem_filter", options)
    return frames.sem_join(frame, right, instruction, **options)
