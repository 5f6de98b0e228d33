"""Every error that semops raises, as one tree.

Each family also inherits the builtin that it resembles, so ``except ValueError`` goes on working. A
message says what was found, what is allowed, and the next step.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType
    from typing import Any


class SemopsError(Exception):
    """Root of all semops errors.

    Examples
    --------
    >>> issubclass(TemplateError, SemopsError) and issubclass(TemplateError, ValueError)
    True
    """


class SemopsWarning(UserWarning):
    """Something that a run went on after, for example answers that became NULL."""


def warn(text: str | None, frame: FrameType | None = None) -> None:
    """Warn of what a run went on after, if there is anything.

    Parameters
    ----------
    text
        What to say.
    frame
        Of the code to name; None where a thread of Polars' or DuckDB's runs the query.
    """
    if text is None:
        return
    file, line, module = ("<semops>", 1, "semops")
    if frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        module = frame.f_globals.get("__name__", module)
    # Python's own memory of what it warned of would keep the next run silent.
    warnings.warn_explicit(text, SemopsWarning, file, line, module, registry={})


class TemplateError(SemopsError, ValueError):
    """An instruction template can't be parsed, or names a column that isn't there."""

    @classmethod
    def no_placeholder(cls, instruction: str, columns: Iterable[str]) -> TemplateError:
        """Build the error for an instruction that names no column."""
        return cls(
            f"the instruction {instruction!r} names no column, so every row would get the same "
            f"prompt. Write a column in braces, for example {{{_first(columns)}}}. "
            f"Columns here: {_listed(columns)}. A literal brace is written {{{{ or }}}}."
        )

    @classmethod
    def unknown_column(
        cls, column: str, instruction: str, columns: Iterable[str], *, hint: str = ""
    ) -> TemplateError:
        """Build the error for a placeholder that matches no column."""
        return cls(
            f"the instruction {instruction!r} names the column {column!r}, which isn't there. "
            f"Columns here: {_listed(columns)}. {hint}A literal brace is written {{{{ or }}}}."
        )


class ConfigError(SemopsError, ValueError):
    """A setting or an argument has a value that is not allowed."""


class SchemaError(SemopsError, TypeError):
    """A column has a type that can't be used here, or two columns would get one name."""

    @classmethod
    def name_clash(cls, name: str, columns: Iterable[str], operator: str) -> SchemaError:
        """Build the error for an output column that exists already."""
        option = "suffix" if operator == "sem_join" else "name"
        return cls(
            f"{operator} would add the column {name!r}, which exists already. "
            f"Columns here: {_listed(columns)}. Pass another {option}=."
        )


class PlanError(SemopsError):
    """A plan can't be built or lowered."""


class UnsupportedError(SemopsError, NotImplementedError):
    """Something valid in itself that semops does not do; the message names the alternative."""


class EngineError(SemopsError, RuntimeError):
    """The engine can't be started or failed, or a request did under ``on_error="raise"``."""

    partial: Any = None
    """After an engine failed in a ``collect``: the rows that its topmost semantic operator had given out, in
    order, as a Polars frame; None where there are none. Work of Polars' above it is not done on them."""


class CapacityError(EngineError):
    """A request needs more KV memory or context than the engine has."""


class MissingExtraError(SemopsError, ImportError):
    """An optional dependency is missing; the message names the command that installs it."""


def _listed(columns: Iterable[str], limit: int = 30) -> str:
    names = list(columns)
    shown = ", ".join(repr(name) for name in names[:limit])
    if len(names) > limit:
        shown += f" and {len(names) - limit} more"
    return shown or "none"


def _first(columns: Iterable[str]) -> str:
    return next(iter(columns), "column")
