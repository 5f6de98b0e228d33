"""The query that DuckDB runs below a stage."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_calls import Column, sql_of
from semops.planner.sql_columns import renamed
from semops.planner.sql_stage import Base

if TYPE_CHECKING:
    from semops.planner.sql_calls import Catalog

CARRIED_AS_TEXT = (
    "HUGEINT", "UHUGEINT", "TIME", "TIMETZ", "TIMESTAMP_S", "UUID", "ENUM", "INTERVAL", "BIT", "JSON",
    "UNION", "GEOMETRY", "BIGNUM", "VARIANT", "TIME_NS",
)  # fmt: skip
"""Types that come back from Polars as another type; their columns take the way as text."""


NO_ARROW = ("HUGEINT", "UHUGEINT", "INTERVAL", "BIT", "UNION", "GEOMETRY", "BIGNUM", "VARIANT")
"""Those of them that can't go into a prompt as they are."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What becomes of columns whose type doesn't come back from Polars."""

    shown: frozenset[str]
    """Columns that the rest of the statement reads."""
    types: dict[str, str] = field(default_factory=dict)
    """Type of each column that is carried as text."""
    twins: dict[str, str] = field(default_factory=dict)
    """For a column that a prompt reads as it is, the one that the rest of the statement reads."""


def base_of(
    tables: exp.Select,
    items: list[tuple[exp.Expr, str]],
    cheap: list[exp.Expr],
    order: exp.Order | None,
    catalog: Catalog,
    carried: Carried,
    prompts: Collection[str],
) -> Base:
    """Return the query that gives a chain its columns.

    Parameters
    ----------
    tables
        A SELECT of nothing over the tables.
    items
        What it gives, and what the chain calls it.
    cheap
        Conditions.
    order
        Its order, where that matters.
    catalog
        Describes queries.
    carried
        Takes what is carried as text.
    prompts
        Columns that prompts read.
    """
    query = tables.copy()
    query.set(
        "expressions",
        [renamed(node.copy(), f"c{number}") for number, (node, _) in enumerate(items)],
    )
    if cheap:
        query.set("where", exp.Where(this=exp.and_(*(c.copy() for c in cheap))))
    if order is not None:
        query.set("order", order.copy())
    names = [name for _, name in items]
    for item, column in zip(list(query.expressions), catalog.describe(sql_of(query)), strict=True):
        if not as_text(column):
            continue
        name = names[int(item.alias[1:])]
        twin = exp.cast(item.this.copy(), "VARCHAR")
        if name in prompts and not as_text(column, NO_ARROW):
            if name in carried.shown:
                carried.twins[name] = f"{name}__text"
                carried.types[carried.twins[name]] = column.type
                query.append("expressions", renamed(twin, f"c{len(names)}"))
                names.append(carried.twins[name])
            continue
        carried.types[name] = column.type
        item.set("this", twin)
    return Base(sql_of(query), tuple(names))


def as_text(column: Column, types: Collection[str] = CARRIED_AS_TEXT) -> bool:
    """Return whether a column has to be carried as text.

    Examples
    --------
    >>> as_text(Column("a", "UUID[]")), as_text(Column("a", "TIMESTAMP WITH TIME ZONE"))
    (True, False)
    """
    words = column.type.upper().replace("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ")
    for mark in "()[],'\"":
        words = words.replace(mark, " ")
    return not set(words.split()).isdisjoint(types)
