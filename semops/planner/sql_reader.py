"""Reads SQL: takes the semantic stages out of a statement and leaves everything else to DuckDB.

Wherever it is not sure, a semantic call stays what it is to DuckDB, a function, and the reason is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from semops.planner.sql_calls import (
    Unplanned,
    has_call,
    is_call,
    own_calls,
    sql_of,
)
from semops.planner.sql_columns import (
    expand_stars,
    key_of,
    makes_rows,
    mark_effects,
    resolve_aliases,
    visible_ctes,
)
from semops.planner.sql_conditions import conjuncts, deep_calls, mine
from semops.planner.sql_dialect import DIALECT
from semops.planner.sql_faithful import check_faithful
from semops.planner.sql_lower import lower
from semops.planner.sql_merge import merge_tables
from semops.planner.sql_nest import (
    called_above_groups,
    called_above_windows,
    called_over_windows,
    is_grouped,
    nest,
    nest_groups,
    nest_windows,
    places_of,
)
from semops.planner.sql_where import sort_conditions

if TYPE_CHECKING:
    from typing import Protocol

    from semops.planner.sql_calls import Catalog
    from semops.planner.sql_stage import Stage

    class Database(Catalog, Protocol):
        """A catalog that can hold stages, so that queries over them can be described."""

        def add(self, stage: Stage) -> None:
            """Make a stage known under its name."""

        def remove(self, stage: Stage) -> None:
            """Forget a stage."""


@dataclass(slots=True)
class SqlPlan:
    """A statement taken apart."""

    statement: str
    """What DuckDB runs; it reads the stages as tables."""
    stages: list[Stage] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why calls that are left run as functions in DuckDB."""


PLANNED = (exp.Query, exp.Create, exp.Insert, exp.Copy)


def read(text: str, names: list[str] | None, database: Database, prefix: str) -> SqlPlan:
    """Take a statement apart.

    Parameters
    ----------
    text
        One statement with semantic calls.
    names
        What DuckDB calls the columns of its result, where it is a query.
    database
        Describes queries and holds stages.
    prefix
        Begins the names of the stages.

    Returns
    -------
    SqlPlan
        Without stages where nothing could be planned.
    """
    try:
        tree = sqlglot.parse_one(text, read=DIALECT)
    except SqlglotError as error:
        return SqlPlan(text, reasons=[f"the SQL parser does not know it ({_first_line(error)})"])
    plan = SqlPlan(text)
    if not isinstance(tree, PLANNED) or (isinstance(tree, exp.Create) and tree.kind != "TABLE"):
        kind = tree.kind if isinstance(tree, exp.Create) else ""
        plan.reasons.append(f"a semantic call in {tree.key.upper()} {kind}".rstrip())
        return plan
    mark_effects(tree, database)
    try:
        check_faithful(text, tree, database)
    except Unplanned as reason:
        plan.reasons.append(str(reason))
        return plan
    _Reader(tree, names, database, prefix, plan).read()
    if plan.stages:
        plan.statement = sql_of(tree)
    return plan


class _Reader:
    def __init__(
        self,
        tree: exp.Expr,
        names: list[str] | None,
        database: Database,
        prefix: str,
        plan: SqlPlan,
    ) -> None:
        self._tree = tree
        self._database = database
        self._prefix = prefix
        self._plan = plan
        self._names: dict[int, list[str]] = {}
        self._nodes: list[exp.Expr] = []  # so that no other node gets the id of one
        self._nested = 0
        if names is not None and isinstance(tree, exp.Select):
            self._note(tree, names)

    def _note(self, select: exp.Select, names: list[str]) -> None:
        self._names[id(select)] = names
        self._nodes.append(select)

    def read(self) -> None:
        for select in self._tree.find_all(exp.Select):
            if has_call(select) and id(select) not in self._names:
                try:
                    self._note(select, self._describe(select))
                except Unplanned as reason:
                    self._nodes.append(select)
                    if own_calls(select):
                        self._reason(select, reason)
        self._stop_exists_early()
        merge_tables(self._tree, self._database, self._names)
        for select in list(self._tree.find_all(exp.Select))[::-1]:
            if own_calls(select):
                self._try(select)
        if any(is_call(node) for node in self._tree.find_all(exp.Anonymous)):
            outside = [n for n in self._tree.find_all(exp.Anonymous) if is_call(n)]
            if not self._plan.reasons and outside:
                self._plan.reasons.append("a semantic call outside of any SELECT")

    def _describe(self, select: exp.Select) -> list[str]:
        query = select.copy()
        query.set("with_", visible_ctes(select))
        return [column.name for column in self._database.describe(sql_of(query))]

    def _reason(self, select: exp.Select, reason: object) -> None:
        calls = ", ".join(dict.fromkeys(sql_of(call) for call in own_calls(select)))
        self._plan.reasons.append(f"{_shortened(calls)}: {reason}")

    def _try(self, select: exp.Select) -> None:
        """Plan a SELECT, with a semantic join if that can be, or leave it as it is."""
        backup = select.copy()
        held = list(self._plan.stages)
        for cross in (True, False):
            try:
                self._plan_select(select, cross=cross)
            except Unplanned as reason:
                names = self._names.get(id(select))
                for stage in self._plan.stages[len(held) :]:
                    self._database.remove(stage)
                self._plan.stages[:] = held
                _restore(select, backup)
                if names is not None:
                    self._note(select, names)
                if not cross:
                    self._reason(select, reason)
            else:
                return

    def _plan_select(self, select: exp.Select, *, cross: bool) -> None:
        names = self._names.get(id(select))
        if names is None:
            names = self._describe(select)
        _check_tables(select)
        expand_stars(select, self._database)
        if len(select.expressions) != len(names):
            raise Unplanned("columns that can't be told apart by name")
        resolve_aliases(select, self._database)
        _check_rows(select)
        _conditions_of_joins(select)
        while (inner := self._split(select)) is not None:
            if own_calls(inner):
                self._note(inner, [item.alias for item in inner.expressions])
                self._plan_select(inner, cross=cross)
        if not own_calls(select):
            return
        name = f"{self._prefix}{len(self._plan.stages) + 1}"
        stage = lower(select, names, name, self._database, cross=cross)
        self._database.add(stage)
        self._plan.stages.append(stage)

    def _split(self, select: exp.Select) -> exp.Select | None:
        """Nest what stands below the semantic calls of a SELECT and return it; None if nothing does."""
        self._nested += 1
        number = self._nested
        if is_grouped(select, self._database) and called_above_groups(select, self._database):
            return nest_groups(select, number, self._database)
        where = sort_conditions(select)
        # A window sees the rows that WHERE leaves, semantic conditions included.
        if (where.semantic and called_over_windows(select)) or (
            select.args.get("qualify") is not None and called_above_windows(select)
        ):
            return nest_windows(select, number)
        above = where.first_above
        for place, condition in enumerate(where.semantic):
            if deep := _wherever_read(select, deep_calls(condition, filters=True)):
                return nest(select, [*where.cheap, *where.semantic[:place]], deep, number)
            if place == above and (place < len(where.semantic) - 1 or _called_later(select)):
                return nest(select, [*where.cheap, *where.semantic[: place + 1]], [], number)
        deep = [
            found
            for part in places_of(select)
            for found in deep_calls(part.unalias() if isinstance(part, exp.Alias) else part)
        ]
        if not deep:
            return None
        deep = _wherever_read(select, deep)
        return nest(select, [*where.cheap, *where.semantic], deep, number)

    def _stop_exists_early(self) -> None:
        for node in self._tree.find_all(exp.Exists):
            select = node.this
            if (
                isinstance(select, exp.Select)
                and own_calls(select)
                and not select.args.get("limit")
            ):
                select.set("limit", exp.Limit(expression=exp.Literal.number(1)))


def _wherever_read(
    select: exp.Select, deep: list[tuple[exp.Expr, exp.Expr]]
) -> list[tuple[exp.Expr, exp.Expr]]:
    """Leave calls out of their guard that stand in other places, too."""
    keys = Counter(key_of(call) for call in own_calls(select))
    return [(call, how if keys[key_of(call)] == 1 else call.copy()) for call, how in deep]


def _called_later(select: exp.Select) -> bool:
    return any(map(mine, places_of(select)))


def _check_tables(select: exp.Select) -> None:
    if select.args.get("sample") is not None:
        raise Unplanned("USING SAMPLE")
    for part in ("from_", "joins", "laterals"):
        value = select.args.get(part)
        for node in value if isinstance(value, list) else [value]:
            for inner in node.find_all(exp.Anonymous) if node is not None else []:
                ancestor = inner.find_ancestor(exp.Select, exp.Join)
                if is_call(inner) and ancestor is select:
                    raise Unplanned("a semantic call in a table function")
    if select.args.get("from_") is None:
        raise Unplanned("no table: there is one row at most")


def _check_rows(select: exp.Select) -> None:
    """Check that functions that make rows needn't keep step, some below a call and some above."""
    makers = [
        node
        for item in select.expressions
        for node in item.walk(prune=lambda n: isinstance(n, exp.Query))
        if makes_rows(node)
    ]
    asked = {id(n) for call in own_calls(select) for n in call.walk() if makes_rows(n)}
    if len(makers) > 1 and asked:
        raise Unplanned("rows of several functions, one of them inside the call")


def _conditions_of_joins(select: exp.Select) -> None:
    """Move the conditions of inner joins with semantic calls to WHERE."""
    joins = select.args.get("joins") or []
    moved: list[exp.Expr] = []
    for number, join in enumerate(joins):
        if not mine(join):
            continue
        sides = [
            str(j.args.get(k) or "").upper() for j in joins[number:] for k in ("side", "method")
        ]
        kinds = str(join.args.get("kind") or "").upper()
        outer = {"RIGHT", "FULL"} & set(sides) or join.args.get("side") or join.args.get("method")
        if outer or kinds not in {"", "INNER"}:
            raise Unplanned("a semantic condition of an outer, semi, anti or ASOF join")
        conditions = conjuncts(join.args.get("on"))
        moved += [c for c in conditions if mine(c)]
        rest = [c.copy() for c in conditions if not mine(c)]
        join.set("on", exp.and_(*rest) if rest else None)
        if not rest:
            join.set("kind", "CROSS")
    if moved:
        where = select.args.get("where")
        old = conjuncts(where.this) if where is not None else []
        select.set("where", exp.Where(this=exp.and_(*(c.copy() for c in [*moved, *old]))))


def _restore(select: exp.Select, backup: exp.Select) -> None:
    copied = backup.copy()
    for key in list(select.args):
        select.set(key, None)
    for key, value in list(copied.args.items()):
        select.set(key, value)


def _shortened(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
