"""Splits a SELECT in two where semantic calls stand above an aggregate, a window or other SQL.

The inner one becomes a derived table with everything that the outer one reads. Afterwards each SELECT has
its semantic calls directly above its tables, where a pipeline can run them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_calls import Unplanned, is_call, own_calls
from semops.planner.sql_columns import (
    CLAUSES,
    FROM,
    Reads,
    effects_of,
    is_aggregate,
    is_window,
    key_of,
    quoted,
    renamed,
    rewritten,
)
from semops.planner.sql_conditions import conjuncts, mine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from semops.planner.sql_calls import Catalog


def nest(
    select: exp.Select,
    where: list[exp.Expr],
    values: Sequence[tuple[exp.Expr, exp.Expr]],
    number: int,
) -> exp.Select:
    """Move conditions and expressions into an inner SELECT over the same tables; return it.

    Parameters
    ----------
    select
        Becomes the outer one.
    where
        Those of its conditions that the inner one takes.
    values
        Expressions that the inner one computes, each with how.
    number
        Makes names unique.
    """
    reads = Reads(f"__n{number}_")
    known = {key_of(value): quoted(reads.name_of(value)) for value, _ in values}
    for value, how in values:
        reads.items[key_of(value)] = (how, reads.name_of(value))
    moved = {id(condition) for condition in where}
    rest = [c for c in conjuncts(_this(select, "where")) if id(c) not in moved]
    inner = exp.Select()
    if where:
        inner.set("where", exp.Where(this=_all(where)))
    select.set("where", exp.Where(this=_all(rest)) if rest else None)
    _over(select, inner, reads, known, number)
    return inner


def nest_windows(select: exp.Select, number: int) -> exp.Select:
    """Leave windows and the cheap part of QUALIFY to an inner SELECT; return it."""
    reads = Reads(f"__n{number}_")
    windows = [
        node for place in _places(select, "qualify", "order") for node in _found(place, is_window)
    ]
    known = {key_of(window): quoted(reads.name_of(window)) for window in windows}
    conditions = conjuncts(_this(select, "qualify"))
    cheap = [c for c in conditions if not mine(c)]
    rest = [c for c in conditions if mine(c)]
    inner = exp.Select()
    for clause in ("where", "windows"):
        value = select.args.get(clause)
        if value:
            inner.set(clause, value)
            select.set(clause, None)
    if cheap:
        inner.set("qualify", exp.Qualify(this=_all(cheap)))
    select.set("qualify", None)
    select.set("where", exp.Where(this=_all(rest)) if rest else None)
    _over(select, inner, reads, known, number)
    return inner


def nest_groups(select: exp.Select, number: int, catalog: Catalog) -> exp.Select:
    """Leave grouping and aggregates to an inner SELECT; return it.

    Raises
    ------
    Unplanned
        For grouping sets.
    """
    reads = Reads(f"__n{number}_")
    keys = _group_keys(select, catalog)
    aggregates = [
        node
        for place in _places(select, "having", "qualify", "order")
        for node in _found(place, lambda n: _is_whole_aggregate(n, catalog))
    ]
    known = {key_of(part): quoted(reads.name_of(part)) for part in [*keys, *aggregates]}
    for key in keys:
        if isinstance(key, exp.Column) and key.table:  # SELECT g ... GROUP BY t.g
            known.setdefault(key_of(exp.column(key.this.copy())), known[key_of(key)])
    conditions = conjuncts(_this(select, "having"))
    inner = exp.Select()
    if select.args.get("where"):
        inner.set("where", select.args["where"])
    if keys:
        inner.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    cheap = [c for c in conditions if not mine(c)]
    rest = [c for c in conditions if mine(c)]
    if cheap:
        inner.set("having", exp.Having(this=_all(cheap)))
    for clause in ("group", "having"):
        select.set(clause, None)
    select.set("where", exp.Where(this=_all(rest)) if rest else None)
    before = len(reads.items)
    _over(select, inner, reads, known, number)
    if len(reads.items) > before or not before:
        raise Unplanned("a column beside an aggregate that is no group key")
    return inner


def is_grouped(select: exp.Select, catalog: Catalog) -> bool:
    """Return whether a SELECT aggregates."""
    if select.args.get("group") or select.args.get("having"):
        return True
    return any(
        True
        for place in _places(select, "order")
        for _ in _found(place, lambda n: _is_whole_aggregate(n, catalog))
    )


def called_above_groups(select: exp.Select, catalog: Catalog) -> bool:
    """Return whether semantic calls stand above the aggregates of a grouped SELECT."""
    known = {key_of(key): exp.null() for key in _group_keys(select, catalog)}

    def below(node: exp.Expr) -> bool:
        return key_of(node) in known or _is_whole_aggregate(node, catalog)

    places = _places(select, "having", "qualify", "order", "distinct")
    return any(_called_outside(place, below) for place in places)


def called_above_windows(select: exp.Select) -> bool:
    """Return whether semantic calls stand above the windows of a SELECT with QUALIFY."""
    return any(
        _called_outside(place, is_window)
        for place in _places(select, "qualify", "order", "distinct")
    )


def called_over_windows(select: exp.Select) -> bool:
    """Return whether a semantic call of a SELECT reads what a window gives."""
    return any(is_window(node) for call in own_calls(select) for node in call.walk())


def has_window(select: exp.Select) -> bool:
    """Return whether a SELECT has window functions of its own."""
    return any(
        True for place in _places(select, "qualify", "order") for _ in _found(place, is_window)
    )


def effects(select: exp.Select, catalog: Catalog) -> frozenset[str]:
    """Return what the expressions of a SELECT do beyond one value a row; subqueries are left out."""
    found: set[str] = set()
    for place in _places(select, "qualify", "order"):
        for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
            found |= effects_of(node, catalog)
    return frozenset(found)


def _called_outside(node: exp.Expr, below: Callable[[exp.Expr], bool]) -> bool:
    """Return whether a semantic call stands in a node, outside of the parts that are ``below``."""
    if isinstance(node, exp.Query) or below(node):
        return False
    return is_call(node) or any(_called_outside(child, below) for child in node.iter_expressions())


def _group_keys(select: exp.Select, catalog: Catalog) -> list[exp.Expr]:
    group = select.args.get("group")
    if group is None:
        return []
    if any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "totals")):
        raise Unplanned("grouping sets")
    items = [item.unalias() for item in select.expressions]
    if group.args.get("all"):
        return [i for i in items if not any(_found(i, lambda n: is_aggregate(n, catalog)))]
    keys = []
    for key in group.expressions:
        position = isinstance(key, exp.Literal) and not key.is_string
        keys.append(items[int(key.this) - 1] if position else key.unnest())
    return keys


def _is_whole_aggregate(node: exp.Expr, catalog: Catalog) -> bool:
    """Return whether a node is an aggregate with its FILTER and ORDER BY, and not one of a window."""
    if isinstance(node, (exp.Filter, exp.WithinGroup)):
        return _is_whole_aggregate(node.this, catalog)
    return is_aggregate(node, catalog)


def _found(node: exp.Expr, wanted: Callable[[exp.Expr], bool]) -> Iterable[exp.Expr]:
    """Yield the outermost nodes that are wanted, those of subqueries left out."""
    if isinstance(node, exp.Query):
        return
    if wanted(node):
        yield node
        return
    children: Iterable[exp.Expr] = node.iter_expressions()
    if isinstance(node, exp.Window):  # its function is no aggregate, what it reads may be
        children = [
            part
            for child in node.iter_expressions()
            for part in (child.iter_expressions() if child is node.this else [child])
        ]
    for child in children:
        yield from _found(child, wanted)


def places_of(select: exp.Select) -> list[exp.Expr]:
    """Return the parts of a SELECT that are evaluated after WHERE."""
    return _places(select, "group", "having", "qualify", "distinct", "order")


def _places(select: exp.Select, *clauses: str) -> list[exp.Expr]:
    return [*select.expressions, *(c for c in map(select.args.get, clauses) if c is not None)]


def _this(select: exp.Select, clause: str) -> exp.Expr | None:
    value = select.args.get(clause)
    return None if value is None else value.this


def _all(conditions: list[exp.Expr]) -> exp.Expr:
    return exp.and_(*(condition.copy() for condition in conditions))


def _over(
    select: exp.Select,
    inner: exp.Select,
    reads: Reads,
    known: Mapping[str, exp.Expr],
    number: int,
) -> None:
    """Let ``select`` read the inner SELECT, which takes its tables."""
    rewrite(select, lambda node: quoted(reads.name_of(node)), known)
    for part in FROM:
        if select.args.get(part):
            inner.set(part, select.args[part])
            select.set(part, None)
    items = reads.select_list() or [renamed(exp.Literal.number(1), f"__n{number}_")]
    inner.set("expressions", items)
    alias = exp.TableAlias(this=exp.to_identifier(f"__n{number}"))
    select.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))


def rewrite(
    select: exp.Select,
    reads: Callable[[exp.Expr], exp.Expr],
    known: Mapping[str, exp.Expr],
) -> None:
    """Put all clauses of a SELECT above what a lower one gives."""
    aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    select.set("expressions", [rewritten(item, reads, known) for item in select.expressions])
    for clause in (*CLAUSES, "windows"):
        value = select.args.get(clause)
        keep = aliases if clause == "order" else ()
        if isinstance(value, list):
            select.set(clause, [rewritten(part, reads, known, keep) for part in value])
        elif value is not None:
            select.set(clause, rewritten(value, reads, known, keep))
