"""Puts a SELECT with semantic calls above a stage: the order of its conditions, its limit, its join."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_base import Carried, base_of
from semops.planner.sql_calls import is_call, sql_of
from semops.planner.sql_columns import (
    CLAUSES,
    FROM,
    from_query,
    quoted,
    renamed,
    rewritten,
)
from semops.planner.sql_conditions import mine
from semops.planner.sql_nest import effects, has_window, is_grouped
from semops.planner.sql_pairs import sides_of, two_sides
from semops.planner.sql_stage import Base, Chain, Stage
from semops.planner.sql_where import sort_conditions

if TYPE_CHECKING:
    from semops.planner.sql_calls import Catalog


def lower(
    select: exp.Select, names: list[str], name: str, catalog: Catalog, *, cross: bool
) -> Stage:
    """Return the stage below a SELECT; afterwards the SELECT reads it.

    Parameters
    ----------
    select
        A SELECT whose semantic calls stand directly above its tables; changed in place.
    names
        What DuckDB calls its columns.
    name
        Name of the stage.
    catalog
        Describes queries.
    cross
        Whether two tables joined by a semantic condition alone become a semantic join. Otherwise
        DuckDB makes the pairs.

    Raises
    ------
    Unplanned
        If it can't be planned; it may be changed then.
    """
    conditions = sort_conditions(select)
    chain = Chain(catalog)
    sides = sides_of(select, conditions, catalog) if cross else None
    filters = conditions.filters
    above = [] if conditions.first_above is None else conditions.semantic[conditions.first_above :]
    for condition in conditions.semantic:
        if condition in above:
            chain.evaluate(condition, filters=True)
        elif sides is None or condition is not sides.pair:
            if any(condition is call for call in filters):
                chain.filter(condition)
            else:
                chain.keep(condition)
    if sides is not None:
        chain.filter(sides.pair, pair=True)
    places: list[tuple[str, exp.Expr]] = [("", item) for item in select.expressions]
    for clause in (*CLAUSES, "windows"):
        value = select.args.get(clause)
        if clause != "where" and value is not None:
            places += [(clause, v) for v in (value if isinstance(value, list) else [value])]
    for clause, place in places:
        alias = place.alias if isinstance(place, exp.Alias) else ""
        alias = "" if alias.startswith("__") else alias  # of a nested SELECT, no name of the user's
        for root in [place] if clause else [place.unalias()]:
            chain.evaluate(root, prefer=alias or None)
    whole = not above and _takes_rows_as_they_come(select, catalog)
    limit = _limit(select, catalog) if whole else None
    order = _order_below(select) if limit is not None else None
    if order is None and select.args.get("order") is not None:
        limit = None
    found = chain.steps()
    _put_above(select, names, chain, above)
    items = chain.base_items() or [(exp.Literal.number(1), "__one")]
    shown = _outputs(select) or [items[0][1]]
    carried = Carried(frozenset(shown))
    prompts = chain.placeholders()
    right: Base | None = None
    if sides is None:
        tables = from_query(select, [])
        base = base_of(tables, items, conditions.cheap, order, catalog, carried, prompts)
        steps = tuple(step for step, _ in found)
    else:
        base, right, steps = two_sides(
            select, items, conditions.cheap, found, sides, catalog, carried, prompts
        )
        limit = None if order is not None else limit
    _clear_tables(select, name)
    outputs = {carried.twins.get(c, c): f"c{number}" for number, c in enumerate(shown)}
    for column in list(select.find_all(exp.Column)):
        if column.meta.get("output"):
            _name_output(column, outputs, carried)
    drained = _drained(select, catalog)
    return Stage(name, base, steps, tuple(outputs.items()), right, limit, drained)


# --- the SELECT above the stage


def _put_above(
    select: exp.Select,
    names: list[str],
    chain: Chain,
    above: list[exp.Expr],
) -> None:
    def reads(node: exp.Expr) -> exp.Expr:
        return _output(chain.read(node))

    def calls(node: exp.Expr) -> exp.Expr:
        """Put the answers in the place of the outermost calls, whose nodes are known by identity."""
        copied = node.copy()
        for original, call in zip(_outermost(node), _outermost(copied), strict=True):
            column = chain.answer(original)
            answer = exp.true() if column is None else _output(column)
            if call is copied:
                return answer
            call.replace(answer)
        return copied

    aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    keep = aliases | {n.lower() for n in names}
    select.set(
        "expressions",
        [
            renamed(rewritten(calls(item.unalias()), reads, {}), column)
            for item, column in zip(select.expressions, names, strict=True)
        ],
    )
    select.set("where", exp.Where(this=exp.and_(*map(calls, above))) if above else None)
    if above:
        select.set("where", rewritten(select.args["where"], reads, {}))
    for clause in (*CLAUSES, "windows"):
        value = select.args.get(clause)
        if clause == "where" or value is None:
            continue
        used = keep if clause == "order" else ()
        if isinstance(value, list):
            select.set(clause, [rewritten(calls(part), reads, {}, used) for part in value])
        else:
            select.set(clause, rewritten(calls(value), reads, {}, used))


def _outermost(node: exp.Expr) -> list[exp.Anonymous]:
    """Return the outermost semantic calls of a node, from left to right."""
    if isinstance(node, exp.Query):
        return []
    if is_call(node):
        assert isinstance(node, exp.Anonymous)  # noqa: S101 - what is_call says
        return [node]
    return [call for child in node.iter_expressions() for call in _outermost(child)]


def _output(column: str) -> exp.Column:
    node = quoted(column)
    node.meta["output"] = True
    return node


def _outputs(select: exp.Select) -> list[str]:
    found = (node for node in select.find_all(exp.Column) if node.meta.get("output"))
    return list(dict.fromkeys(node.name for node in found))


def _name_output(column: exp.Column, outputs: dict[str, str], carried: Carried) -> None:
    name = carried.twins.get(column.name, column.name)
    known = carried.types.get(name)
    node = quoted(outputs[name])
    if known is not None:
        node = exp.cast(node, exp.DataType.build(known, dialect="duckdb"))  # type: ignore[assignment]
    column.replace(node)


def _clear_tables(select: exp.Select, name: str) -> None:
    for part in FROM:
        select.set(part, None)
    select.set("from_", exp.From(this=exp.to_table(name)))


# --- the limit

NOT_BY_ROW = frozenset({"aggregate", "window", "rows"})
"""With these the first rows of a SELECT aren't those of the first rows below."""


def _takes_rows_as_they_come(select: exp.Select, catalog: Catalog) -> bool:
    blocked = any(select.args.get(clause) for clause in ("distinct", "qualify", "windows"))
    return (
        not blocked
        and not is_grouped(select, catalog)
        and not effects(select, catalog) & NOT_BY_ROW
    )


def _limit(select: exp.Select, catalog: Catalog) -> int | None:
    limit = select.args.get("limit")
    rows = 0
    for clause in (limit, select.args.get("offset")):
        if clause is None:
            continue
        node = clause.args.get("expression")
        share = "PERCENT" in sql_of(clause).upper() or "%" in sql_of(clause)
        if node is None or share or any(node.find_all(exp.Column, exp.Query)):
            return None
        value = catalog.constant(sql_of(node))
        if value is None:
            return None
        rows += math.ceil(value)  # DuckDB rounds; it cuts what is too much
    return rows if limit is not None else None


def _order_below(select: exp.Select) -> exp.Order | None:
    """Return ORDER BY over the tables, or None where it needs a semantic result or isn't there."""
    order = select.args.get("order")
    if order is None:
        return None
    found = order.copy()
    items = {
        item.alias.lower(): item.this for item in select.expressions if isinstance(item, exp.Alias)
    }
    for part in found.expressions:
        node = part.this
        if isinstance(node, exp.Literal) and not node.is_string:
            part.set("this", select.expressions[int(node.this) - 1].unalias().copy())
        elif isinstance(node, (exp.Column, exp.Var)) and node.name.lower() == "all":
            return None
    for column in list(found.find_all(exp.Column)):
        if not column.table and column.name.lower() in items:
            column.replace(exp.paren(items[column.name.lower()].copy()))
    return None if mine(found) or mine(order) else found


def _drained(select: exp.Select, catalog: Catalog) -> bool:
    """Return whether all rows will be pulled, whoever reads the result and however long."""
    node: exp.Expr | None = select
    while node is not None:
        blocking = node.args.get("order") is not None or (
            isinstance(node, exp.Select)
            and (
                node.args.get("distinct") is not None
                or has_window(node)
                or is_grouped(node, catalog)
            )
        )
        if blocking or isinstance(node, (exp.Create, exp.Insert, exp.Copy)):
            return True
        if node.args.get("limit") is not None or isinstance(node, exp.Exists):
            return False
        node = node.parent
    return False
