"""Conditions around semantic calls: when a call is needed at all, and conditions as Polars expressions.

``CASE WHEN year > 2000 THEN sem_map(...) END`` must not ask about other rows, and ``kind = 'a' OR
sem_filter(...)`` only about those that the cheap side leaves open. What has to hold before a call's result
matters is its guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import NamedTuple

import polars as pl
from sqlglot import exp

from semops.planner.sql_calls import is_call

_BINARY: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.And: operator.and_,
    exp.Or: operator.or_,
}
_COMPARISONS: dict[type[exp.Expr], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


class Condition(NamedTuple):
    """A part of a guard."""

    node: exp.Expr
    holds: str
    """``true``, ``not true``, ``not false`` or ``null``: what the node must be."""


def mine(node: exp.Expr | None) -> bool:
    """Return whether a node has semantic calls of its own SELECT, not only in subqueries."""
    return node is not None and any(True for _ in calls_in(node))


def calls_in(node: exp.Expr) -> Iterator[exp.Anonymous]:
    """Yield a node's semantic calls from left to right, those in its subqueries left out."""
    if isinstance(node, exp.Query):
        return
    for child in node.iter_expressions():
        yield from calls_in(child)
    if is_call(node):
        assert isinstance(node, exp.Anonymous)  # noqa: S101 - what is_call says
        yield node


def deep_calls(root: exp.Expr, *, filters: bool = False) -> list[tuple[exp.Expr, exp.Expr]]:
    """Return the calls over whose answer another call reads an expression, each NULL where it is not needed.

    Parameters
    ----------
    root
        An expression with semantic calls.
    filters
        As in :func:`guard_of`.
    """
    found = []
    for call in calls_in(root):
        for argument in call.expressions:
            if mine(argument) and not is_call(argument):
                inner = next(iter(_outermost(argument)))
                found.append((inner, guarded(inner, guard_of(inner, root, filters=filters))))
    return found[:1]


def _outermost(node: exp.Expr) -> Iterator[exp.Expr]:
    if is_call(node):
        yield node
    elif not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from _outermost(child)


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """Split a condition at its outermost ANDs."""
    if node is None:
        return []
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*conjuncts(node.this), *conjuncts(node.expression)]
    return [node]


def guard_of(call: exp.Expr, root: exp.Expr, *, filters: bool = False) -> tuple[Condition, ...]:
    """Return what has to hold within ``root`` before a call's result matters.

    Of the two sides of an AND or OR that both hold semantic calls, the left one is asked first.

    Parameters
    ----------
    call
        A semantic call.
    root
        An expression around it.
    filters
        Whether it only matters where ``root`` is true, as in WHERE.
    """
    found: list[Condition] = []
    child = below = call
    while child is not root:
        parent = child.parent
        assert parent is not None  # noqa: S101 - the call stands below the root
        if isinstance(parent, (exp.And, exp.Or)):
            first = child is parent.this
            other = parent.expression if first else parent.this
            if not (first and mine(other)):
                holds = "not true"
                if isinstance(parent, exp.And):
                    holds = "true" if _asks_for_true(parent, root, filters=filters) else "not false"
                found.append(Condition(other, holds))
        elif isinstance(parent, exp.Case):
            found += _case_guard(parent, child, below)
        elif isinstance(parent, exp.If) and not isinstance(parent.parent, exp.Case):
            if child is parent.args.get("true"):
                found.append(Condition(parent.this, "true"))
            elif child is parent.args.get("false"):
                found.append(Condition(parent.this, "not true"))
        elif isinstance(parent, exp.Coalesce) and child is not parent.this:
            before = [parent.this, *parent.expressions]
            found += [Condition(n, "null") for n in before[: _index(before, child)]]
        below, child = child, parent
    return tuple(found)


def _asks_for_true(node: exp.Expr, root: exp.Expr, *, filters: bool) -> bool:
    """Return whether NULL and false are one to what stands above a node."""
    while node is not root:
        parent = node.parent
        if isinstance(parent, exp.If) and node is parent.this:
            return True
        if parent is None or not isinstance(parent, (exp.And, exp.Or, exp.Paren)):
            return False
        node = parent
    return filters


def _case_guard(case: exp.Case, branch: exp.Expr, below: exp.Expr) -> list[Condition]:
    """Return the guard of a branch of CASE; ``below`` is the branch's child on the way to the call."""
    branches = case.args["ifs"]
    if branch is case.this:
        return []
    count = _index(branches, branch) if isinstance(branch, exp.If) else len(branches)
    found = [Condition(_when(case, earlier), "not true") for earlier in branches[:count]]
    if count < len(branches) and below is not branch.this:
        found.append(Condition(_when(case, branch), "true"))
    return found


def _when(case: exp.Case, branch: exp.Expr) -> exp.Expr:
    if case.this is None:
        condition: exp.Expr = branch.this
        return condition
    return exp.EQ(this=case.this.copy(), expression=branch.this.copy())


def _index(nodes: list[exp.Expr], wanted: exp.Expr) -> int:
    return next(index for index, node in enumerate(nodes) if node is wanted)


def guarded(node: exp.Expr, guard: tuple[Condition, ...]) -> exp.Expr:
    """Return a node that is NULL where its guard doesn't hold."""
    if not guard:
        return node.copy()
    conditions = [_as_sql(condition) for condition in guard]
    return exp.Case(ifs=[exp.If(this=exp.and_(*conditions), true=node.copy())])


def _as_sql(condition: Condition) -> exp.Expr:
    node = exp.paren(condition.node.copy())
    match condition.holds:
        case "true":
            return exp.Is(this=node, expression=exp.true())
        case "not true":
            return exp.not_(exp.Is(this=node, expression=exp.true()))
        case "not false":
            return exp.not_(exp.Is(this=node, expression=exp.false()))
        case _:
            return exp.Is(this=node, expression=exp.null())


def translatable(node: exp.Expr) -> bool:
    """Return whether :func:`to_polars` can translate a condition exactly."""
    node = node.unnest()
    if not mine(node) or is_call(node):
        return True
    if isinstance(node, (exp.And, exp.Or)):
        return translatable(node.this) and translatable(node.expression)
    if isinstance(node, exp.Not):
        return translatable(node.this)
    if isinstance(node, exp.Is):
        known = isinstance(node.expression, (exp.Boolean, exp.Null))
        return known and translatable(node.this)
    if isinstance(node, tuple(_COMPARISONS)):
        return _text(node.this) and _text(node.expression)
    if isinstance(node, exp.In) and node.args.get("query") is None and not node.args.get("unnest"):
        return _text(node.this) and all(_text(n) for n in node.expressions)
    if isinstance(node, exp.Case) and node.this is None:
        default = node.args.get("default")
        parts = [part for branch in node.args["ifs"] for part in (branch.this, branch.args["true"])]
        return all(translatable(part) for part in [*parts, *([default] if default else [])])
    return False


def to_polars(node: exp.Expr, column: Callable[[exp.Expr], pl.Expr]) -> pl.Expr:
    """Translate a condition over semantic results.

    Parameters
    ----------
    node
        What :func:`translatable` agrees to.
    column
        Gives the column of a semantic call, or of a part without any, which DuckDB computes.
    """
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return pl.lit(node.this)
    if is_call(node) or not mine(node):
        return column(node)
    if isinstance(node, (exp.And, exp.Or)):
        return _BINARY[type(node)](to_polars(node.this, column), to_polars(node.expression, column))
    if isinstance(node, exp.Not):
        return ~to_polars(node.this, column)
    if isinstance(node, exp.Is):
        inner = to_polars(node.this, column)
        if isinstance(node.expression, exp.Null):
            return inner.is_null()
        return inner.eq_missing(pl.lit(bool(node.expression.this)))
    if isinstance(node, exp.In):
        options = [to_polars(option, column) for option in node.expressions]
        inner = to_polars(node.this, column)
        found = inner == options[0]
        for option in options[1:]:
            found = found | (inner == option)
        return found
    if isinstance(node, exp.Case):
        return _case(node, column)
    return _COMPARISONS[type(node)](
        to_polars(node.this, column), to_polars(node.expression, column)
    )


def _case(node: exp.Case, column: Callable[[exp.Expr], pl.Expr]) -> pl.Expr:
    first, *others = node.args["ifs"]
    chain = pl.when(to_polars(first.this, column)).then(to_polars(first.args["true"], column))
    for branch in others:
        chain = chain.when(to_polars(branch.this, column)).then(  # type: ignore[assignment]
            to_polars(branch.args["true"], column)
        )
    default = node.args.get("default")
    return chain.otherwise(None if default is None else to_polars(default, column))


def holds(condition: Condition, column: Callable[[exp.Expr], pl.Expr]) -> pl.Expr:
    """Return a part of a guard as a Polars condition that is never NULL."""
    value = to_polars(condition.node, column)
    match condition.holds:
        case "true":
            return value.eq_missing(pl.lit(value=True))
        case "not true":
            return value.ne_missing(pl.lit(value=True))
        case "not false":
            return value.ne_missing(pl.lit(value=False))
        case _:
            return value.is_null()


def _text(node: exp.Expr) -> bool:
    """Return whether both engines compare it as text: a mapped text, or a text literal."""
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return bool(node.is_string)
    return is_call(node) and node.name.lower() == "sem_map"
