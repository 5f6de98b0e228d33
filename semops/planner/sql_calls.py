"""Semantic calls in SQL: finding them, and reading instruction, arguments and options.

``sem_filter('the {review} is positive', r.text, {'on_error': 'raise'})``: the instruction comes first, then
one argument for each placeholder in order of first use, then the options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from sqlglot import ErrorLevel, exp
from sqlglot.errors import UnsupportedError

from semops.errors import TemplateError
from semops.planner.sql_dialect import DIALECT
from semops.planner.sql_options import OPERATORS
from semops.template import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")


class Unplanned(Exception):  # noqa: N818 - a decision, not an error
    """Why a part of a statement runs through the functions registered in DuckDB."""


class Column(NamedTuple):
    """A column as DuckDB describes it."""

    name: str
    type: str


class Catalog(Protocol):
    """What the reader asks of the database; nothing of it runs a query over data."""

    def describe(self, query: str) -> list[Column]:
        """Return the columns of a query.

        Raises
        ------
        Unplanned
            If DuckDB can't bind it.
        """

    def constant(self, expression: str) -> Any:
        """Return the value of a constant expression."""

    def parsed(self, query: str) -> str:
        """Return the tree that DuckDB parses a query into, as JSON."""

    def effects(self, function: str) -> frozenset[str]:
        """Return what a function does beyond one value a row, the same for the same arguments.

        ``aggregate``, ``window``, ``rows`` (it makes several) or ``volatile``; a macro does what it calls.
        """


@dataclass(frozen=True, slots=True)
class SqlCall:
    """One semantic call."""

    operator: str
    """``sem_filter`` or ``sem_map``."""
    instruction: str
    placeholders: tuple[str, ...]
    """The names in the instruction, in order of first use."""
    arguments: tuple[exp.Expr, ...]
    """What stands for each placeholder."""
    options: tuple[tuple[str, Any], ...] = ()
    """Keyword arguments of the frame function."""


def sql_of(node: exp.Expr) -> str:
    """Return a node as DuckDB's SQL, without comments.

    Examples
    --------
    >>> import sqlglot
    >>> sql_of(sqlglot.parse_one("a -- first"))
    'a'

    Raises
    ------
    Unplanned
        If a part of it can't be written.
    """
    try:
        return node.sql(DIALECT, comments=False, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        raise Unplanned(f"the SQL writer does not know it: {error}") from None


def is_call(node: object) -> bool:
    """Return whether a node is a semantic call."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in OPERATORS


def has_call(node: exp.Expr | None) -> bool:
    """Return whether a semantic call stands in a node, subqueries included."""
    return node is not None and any(is_call(found) for found in node.find_all(exp.Anonymous))


def own_calls(select: exp.Select) -> list[exp.Anonymous]:
    """Return the semantic calls of a SELECT itself, not those of its subqueries, inner ones first."""
    found = [
        node
        for node in select.find_all(exp.Anonymous, bfs=False)
        if is_call(node) and node.find_ancestor(exp.Select) is select
    ]
    return found[::-1]


def read_call(node: exp.Anonymous, catalog: Catalog) -> SqlCall:
    """Read a call.

    Raises
    ------
    Unplanned
        If its instruction or its options are not constant.
    TemplateError
        If placeholders and arguments don't match.
    """
    plain = node.expressions
    if not plain:
        msg = f"{node.name.lower()}() needs an instruction, then one argument for each placeholder."
        raise TemplateError(msg)
    operator = node.name.lower()
    instruction = _constant(plain[0], catalog, "its instruction")
    if not isinstance(instruction, str):
        msg = (
            f"{operator} takes the instruction, a text, as first argument, not {sql_of(plain[0])}."
        )
        raise TemplateError(msg)
    placeholders = parse(instruction).columns
    arguments, options = split_options(operator, instruction, placeholders, plain[1:])
    if options is not None:
        value = _constant(options, catalog, "its options")
        found = dict(check_options(value)) if value is not None else {}
    else:
        found = {}
    return SqlCall(operator, instruction, placeholders, tuple(arguments), tuple(found.items()))


def split_options(
    operator: str, instruction: str, placeholders: Sequence[str], arguments: Sequence[_T]
) -> tuple[list[_T], _T | None]:
    """Return the arguments for the placeholders, and the options that may follow.

    Raises
    ------
    TemplateError
        If there are too few or too many.
    """
    count = len(placeholders)
    if count and len(arguments) in {count, count + 1}:
        options = arguments[count] if len(arguments) > count else None
        return list(arguments[:count]), options
    names = ", ".join(f"{{{name}}}" for name in placeholders) or "none"
    msg = (
        f"{operator}({instruction!r}, ...) has {len(arguments)} arguments after the instruction, and its "
        f"placeholders are: {names}. Pass one argument for each placeholder, in this order, then "
        f"options as a struct if you like: {operator}('the {{text}} is kind', t.text, {{'on_error': "
        f"'raise'}}). A literal brace is written {{{{ or }}}}."
    )
    raise TemplateError(msg)


def check_options(value: object) -> dict[str, Any]:
    """Check that options are a struct.

    Raises
    ------
    TemplateError
        If they are something else.
    """
    if not isinstance(value, dict):
        msg = (
            f"the argument after those for the placeholders must be a struct of options, for example "
            f"{{'on_error': 'raise'}}, not {value!r}."
        )
        raise TemplateError(msg)
    return value


def _constant(node: exp.Expr, catalog: Catalog, what: str) -> Any:
    if isinstance(node, exp.Literal) and node.is_string:
        return node.this
    if any(node.find_all(exp.Column, exp.Query)):
        raise Unplanned(f"{what} is not a constant: {sql_of(node)}")
    return catalog.constant(sql_of(node))
