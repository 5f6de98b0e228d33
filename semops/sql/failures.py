"""Errors inside a pipeline or a function, which DuckDB only passes on as text, raised as what they were.

An error ends an Arrow stream or a function, DuckDB reads its message and raises an error of its own. So the
original is kept until DuckDB's arrives where the user called.
"""

from __future__ import annotations

import functools
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import duckdb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_kept: Final[deque[BaseException]] = deque(maxlen=8)
"""The latest; those that nobody asks for, since a plain connection ran them, fall out."""
FETCHES: Final = frozenset(
    {
        "df", "fetch_df", "fetch_df_chunk", "fetchall", "fetchdf", "fetchmany", "fetchnumpy", "fetchone", "tf",
        "to_arrow_reader", "to_arrow_table", "torch",
    }
)  # fmt: skip
"""Methods of a connection that read a result. (Those that run SQL look for variables in the frame that calls.)"""


@contextmanager
def kept() -> Iterator[None]:
    """Keep an error that DuckDB is about to turn into text."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        _kept.append(error)
        raise


@contextmanager
def originals() -> Iterator[None]:
    """Raise the error that was kept in the place of DuckDB's about it."""
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        found = _original(error)
        if found is None:
            raise
        raise found from None


def raising_originals(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of DuckDB's that raises the original errors; relations that it returns do so, too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with originals():
            return claimed(function(*args, **kwargs))

    return call


def claimed(value: Any) -> Any:
    """Let a relation raise the original errors; return it or anything else."""
    if type(value) is duckdb.DuckDBPyRelation:
        value.__class__ = Relation
    return value


def _original(error: Exception) -> BaseException | None:
    text = str(error)
    passed_on = "Python object" in text or "Python exception" in text  # DuckDB's words for it
    for found in reversed(_kept.copy()) if passed_on else ():
        first = str(found).partition("\n")[0] or type(found).__name__
        if first in text:
            _kept.remove(found)
            return found
    if type(error) is RuntimeError and text == "Query interrupted":  # DuckDB's word for Ctrl-C
        return KeyboardInterrupt()
    return None


class Relation(duckdb.DuckDBPyRelation):
    """DuckDB's relation, with the original errors."""

    __slots__ = ()


def _adopt() -> None:
    own = {"__len__", "__str__", "__repr__", "__contains__", "__arrow_c_stream__"}
    for name, member in list(vars(duckdb.DuckDBPyRelation).items()):
        if (name.startswith("_") and name not in own) or name == "query":
            continue  # query() looks for variables in the frame that calls it
        if isinstance(member, property) and member.fget is not None:
            setattr(Relation, name, property(raising_originals(member.fget), doc=member.__doc__))
        elif callable(member) and not isinstance(member, type):
            setattr(Relation, name, raising_originals(member))


_adopt()
