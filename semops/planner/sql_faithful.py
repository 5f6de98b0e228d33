"""Statements that would mean something else once they were parsed and written again.

sqlglot knows DuckDB's SQL well and not to the last detail. DuckDB parses what was written and what would be
written, and the two trees must be one. What is changed is left to DuckDB as it stands, with the calls as functions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_calls import Unplanned, has_call, sql_of
from semops.planner.sql_columns import described
from semops.planner.sql_same import canonical, query_of

if TYPE_CHECKING:
    from semops.planner.sql_calls import Catalog

ORDER_SETTINGS = (("default_null_order", "nulls_last"), ("default_order", "asc"))
"""Settings whose default the writer leaves out, so that another one would be put in its place."""


def check_faithful(text: str, tree: exp.Expr, catalog: Catalog) -> None:
    """Check that a statement is what it says when it is written again.

    Raises
    ------
    Unplanned
        If it is not, or not for sure.
    """
    sql_of(tree)
    if any(tree.find_all(exp.Ordered)):
        for name, default in ORDER_SETTINGS:
            value = str(catalog.constant(f"current_setting('{name}')")).lower()
            if value not in {default, default + "ending"}:
                raise Unplanned(f"the setting {name} is {value}")
    query, rows = text, tree
    if isinstance(tree, exp.Create | exp.Insert | exp.Copy):
        query, rows = (
            query_of(text),
            tree.args["this" if isinstance(tree, exp.Copy) else "expression"],
        )
    if has_call(rows):
        trees = [json.loads(catalog.parsed(part)) for part in (query, sql_of(rows))]
        if any(found.get("error") for found in trees) or canonical(trees[0]) != canonical(trees[1]):
            raise Unplanned("DuckDB's SQL that the SQL parser or writer does not know")
    for select in tree.find_all(exp.Select):
        _check_order(select, catalog)


def _check_order(select: exp.Select, catalog: Catalog) -> None:
    """Check that no name in an ORDER BY expression is both an alias and a column.

    By itself it is the alias, in an expression the column.
    """
    order = select.args.get("order")
    if order is None:
        return
    aliases = {i.alias.lower() for i in select.expressions if isinstance(i, exp.Alias)}
    inside = {
        column.name.lower()
        for part in order.expressions
        if not isinstance(part.this, exp.Column)
        for column in part.find_all(exp.Column)
        if not column.table
    }
    both = aliases & inside
    if both:
        columns = {column.name.lower() for column in described(select, [exp.Star()], catalog)}
        if both & columns:
            name = min(both & columns)
            raise Unplanned(f"{name} in an ORDER BY expression is both an alias and a column")
