"""Merges derived tables and common table expressions with semantic calls into the SELECT that reads them.

A filter over a mapped column of a subquery then stands in one SELECT with the map, so both run in one
pipeline, and cheap conditions and limits of the outer SELECT reach the tables of the inner one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_calls import Unplanned, own_calls
from semops.planner.sql_columns import (
    CLAUSES,
    FROM,
    effects_of,
    expand_stars,
    renamed,
    resolve_aliases,
)
from semops.planner.sql_conditions import conjuncts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.planner.sql_calls import Catalog

BLOCKING = (
    "group", "having", "qualify", "distinct", "limit", "offset", "order", "windows", "with_", "sample",
    "laterals", "pivots", "match",
)  # fmt: skip


def merge_tables(tree: exp.Expr, catalog: Catalog, names: Mapping[int, list[str]]) -> None:
    """Merge what can be merged, the innermost first.

    Parameters
    ----------
    tree
        A statement; changed in place.
    catalog
        Describes queries.
    names
        What DuckDB calls the columns of each SELECT, by the node's id.
    """
    for select in list(tree.find_all(exp.Select))[::-1]:
        inner = _inner_of(select, tree)
        if inner is None or id(select) not in names or id(inner) not in names:
            continue
        if _simple(inner, catalog):
            backup = select.copy()
            try:
                _merge(select, inner, names, catalog)
            except Unplanned:
                for key, value in backup.args.items():
                    select.set(key, value)


def _inner_of(select: exp.Select, tree: exp.Expr) -> exp.Select | None:
    """Return the SELECT that is all a SELECT reads, if it has semantic calls and is read only here."""
    clause = select.args.get("from_")
    if clause is None or select.args.get("joins") or select.args.get("laterals"):
        return None
    table = clause.this
    if table.args.get("sample") or table.args.get("pivots"):
        return None
    if isinstance(table, exp.Subquery):
        inner = table.this
        if table.args.get("alias") is not None and table.args["alias"].args.get("columns"):
            return None
    elif isinstance(table, exp.Table):
        cte = _only_cte(table, tree)
        if cte is None:
            return None
        inner = cte.this
    else:
        return None
    places = [*select.expressions, *(select.args.get(clause) for clause in (*CLAUSES, "windows"))]
    subqueries = any(
        True
        for place in places
        for part in (place if isinstance(place, list) else [place])
        if part is not None
        for _ in part.find_all(exp.Query)
    )
    if subqueries or not isinstance(inner, exp.Select) or not own_calls(inner):
        return None
    return inner


def _only_cte(table: exp.Table, tree: exp.Expr) -> exp.CTE | None:
    """Return the common table expression that a table names, if nothing else does."""
    if table.db:
        return None
    name = table.name.lower()
    ctes = [cte for cte in tree.find_all(exp.CTE) if cte.alias.lower() == name]
    uses = [t for t in tree.find_all(exp.Table) if not t.db and t.name.lower() == name]
    if len(ctes) != 1 or len(uses) != 1 or ctes[0].args["alias"].args.get("columns"):
        return None
    if ctes[0].parent is not None and ctes[0].parent.args.get("recursive"):
        return None
    return ctes[0]


def _simple(inner: exp.Select, catalog: Catalog) -> bool:
    if any(inner.args.get(clause) for clause in BLOCKING):
        return False
    # What isn't one value a row depends on the rows that are there, or makes others.
    return not any(effects_of(node, catalog) for item in inner.expressions for node in item.walk())


def _merge(
    select: exp.Select, inner: exp.Select, names: Mapping[int, list[str]], catalog: Catalog
) -> None:
    table = select.args["from_"].this
    alias = table.alias_or_name.lower()
    resolve_aliases(select, catalog)
    expand_stars(inner, catalog)
    expand_stars(select, catalog)
    inner_names = [name.lower() for name in names[id(inner)]]
    outer_names = names[id(select)]
    if len(inner_names) != len(inner.expressions) or len(outer_names) != len(select.expressions):
        raise Unplanned("columns that can't be told apart by name")
    columns = {
        name: item.unalias() for name, item in zip(inner_names, inner.expressions, strict=True)
    }
    if len(columns) != len(inner_names):
        raise Unplanned("columns of one name")
    own = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
    select.set(
        "expressions",
        [
            renamed(item.unalias(), name)
            for item, name in zip(select.expressions, outer_names, strict=True)
        ],
    )
    for place in [*select.expressions, *(select.args.get(c) for c in (*CLAUSES, "windows"))]:
        for part in place if isinstance(place, list) else [place]:
            for column in list(part.find_all(exp.Column)) if part is not None else []:
                _substitute(column, alias, columns, own)
    conditions = [*conjuncts(_where(inner)), *conjuncts(_where(select))]
    if conditions:
        select.set("where", exp.Where(this=exp.and_(*(c.copy() for c in conditions))))
    if isinstance(table, exp.Table):
        _drop_cte(table, select)
    for part in FROM:
        select.set(part, inner.args.get(part))


def _substitute(
    column: exp.Column, alias: str, columns: Mapping[str, exp.Expr], own: set[str]
) -> None:
    name = column.name.lower()
    if not column.table and name in own and column.find_ancestor(exp.Order) is not None:
        return  # in ORDER BY an alias goes first
    if column.table and column.table.lower() != alias:
        raise Unplanned("a field of a struct of a derived table")
    if name in columns:
        found = columns[name].copy()
        simple = isinstance(found, (exp.Column, exp.Literal, exp.Anonymous))
        column.replace(found if simple else exp.paren(found))
    else:
        raise Unplanned(f"the column {column.name} of a derived table")


def _where(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return None if where is None else where.this


def _drop_cte(table: exp.Table, select: exp.Select) -> None:
    name = table.name.lower()
    root = select.root()
    for cte in list(root.find_all(exp.CTE)):
        if cte.alias.lower() == name:
            clause = cte.parent
            cte.pop()
            if clause is not None and not clause.expressions:
                clause.pop()
