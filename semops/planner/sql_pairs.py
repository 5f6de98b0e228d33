"""Joins on a semantic condition: each row of one table with each of the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from semops.planner.sql_base import Carried, base_of
from semops.planner.sql_calls import Unplanned
from semops.planner.sql_columns import described, visible_ctes
from semops.planner.sql_conditions import calls_in
from semops.planner.sql_stage import Base, Pair, Step

if TYPE_CHECKING:
    from semops.planner.sql_calls import Catalog
    from semops.planner.sql_where import Sorted


@dataclass(frozen=True, slots=True)
class Sides:
    """A cross product of two tables with a semantic predicate over both."""

    pair: exp.Anonymous
    tables: tuple[exp.Expr, exp.Expr]
    columns: tuple[frozenset[str], frozenset[str]]

    def of(self, node: exp.Expr) -> int | None:
        """Return the side that an expression reads, 0 for none; None if it reads both or can't be told."""
        sides = {self._side(column) for column in node.find_all(exp.Column)}
        if any(node.find_all(exp.Query)) or None in sides or len(sides) > 1:
            return None
        return next(iter(sides), 0)

    def _side(self, column: exp.Column) -> int | None:
        names = [table.alias_or_name.lower() for table in self.tables]
        if column.table:
            table = column.table.lower()
            return names.index(table) if table in names else None
        inside = [side for side in (0, 1) if column.name.lower() in self.columns[side]]
        return inside[0] if len(inside) == 1 else None


def sides_of(select: exp.Select, conditions: Sorted, catalog: Catalog) -> Sides | None:
    """Return the two tables of a SELECT that only a semantic condition joins, or None."""
    joins = select.args.get("joins") or []
    if len(joins) != 1 or select.args.get("laterals"):
        return None
    join = joins[0]
    plain = not any(join.args.get(k) for k in ("side", "using", "method", "on", "pivots"))
    if not plain or str(join.args.get("kind") or "").upper() not in {"", "INNER", "CROSS"}:
        return None
    if isinstance(join.this, (exp.Lateral, exp.Unnest)):
        return None
    tables = (select.args["from_"].this, join.this)
    if not all(table.alias_or_name for table in tables):
        return None
    columns = []
    for table in tables:
        every = exp.Column(
            this=exp.Star(), table=exp.to_identifier(table.alias_or_name, quoted=True)
        )
        columns.append(frozenset(c.name.lower() for c in described(select, [every], catalog)))
    if len(conditions.filters) < len(conditions.semantic):
        return None
    for call in conditions.filters:
        found = Sides(call, tables, (columns[0], columns[1]))
        arguments = [a for a in call.expressions if any(a.find_all(exp.Column))]
        read = {found.of(a) for a in arguments}
        others = [c for c in (*conditions.cheap, *conditions.filters) if c is not call]
        if read == {0, 1} and not _nested(call) and all(found.of(c) is not None for c in others):
            return found
    return None


def _nested(call: exp.Anonymous) -> bool:
    """Return whether a call reads another call's answer."""
    return any(inner is not call for inner in calls_in(call))


def two_sides(
    select: exp.Select,
    items: list[tuple[exp.Expr, str]],
    cheap: list[exp.Expr],
    found: list[tuple[Step, tuple[exp.Expr, ...] | None]],
    sides: Sides,
    catalog: Catalog,
    carried: Carried,
    prompts: Collection[str],
) -> tuple[Base, Base, tuple[Step, ...]]:
    """Return a query for each side, and the steps from the left side's rows on.

    Raises
    ------
    Unplanned
        If something reads both sides before they are joined.
    """
    if any(sides.of(node) is None for node, _ in items):
        raise Unplanned("an expression over both sides of a semantic join")
    bases = []
    for side, table in enumerate(sides.tables):
        own = [(node, name) for node, name in items if sides.of(node) == side]
        own = own or [(exp.Literal.number(1), f"__one{side}")]
        tables = exp.Select(from_=exp.From(this=table.copy()), with_=visible_ctes(select))
        conditions = [c for c in cheap if sides.of(c) == side]
        bases.append(base_of(tables, own, conditions, None, catalog, carried, prompts))
    position = next(i for i, (step, _) in enumerate(found) if isinstance(step, Pair))
    before: tuple[list[Step], list[Step]] = ([], [])
    for step, reads in found[:position]:
        read = {sides.of(node) for node in reads} if reads is not None else {None}
        if len(read) != 1 or None in read:
            raise Unplanned("a condition over both sides of a semantic join")
        before[next(iter(read)) or 0].append(step)
    steps = (*before[0], *(step for step, _ in found[position:]))
    return bases[0], replace(bases[1], steps=tuple(before[1])), steps
