"""The conditions of a SELECT, sorted by what they need."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from semops.planner.sql_calls import is_call
from semops.planner.sql_conditions import conjuncts, mine, translatable

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True, slots=True)
class Sorted:
    """The conditions of WHERE."""

    cheap: list[exp.Expr] = field(default_factory=list)
    semantic: list[exp.Expr] = field(default_factory=list)
    """Those with semantic calls, in the order in which they are evaluated."""

    @property
    def filters(self) -> list[exp.Anonymous]:
        """The ``sem_filter`` calls that stand alone."""
        return [c for c in self.semantic if isinstance(c, exp.Anonymous) and _is_filter(c)]

    @property
    def first_above(self) -> int | None:
        """Position of the first semantic one that only DuckDB can evaluate."""
        found = (
            n for n, c in enumerate(self.semantic) if not _is_filter(c) and not translatable(c)
        )
        return next(found, None)


def sort_conditions(select: exp.Select) -> Sorted:
    """Sort the conditions of WHERE."""
    where = select.args.get("where")
    found = Sorted()
    for condition in conjuncts(None if where is None else where.this):
        (found.semantic if mine(condition) else found.cheap).append(condition)
    several = bool(select.args.get("joins"))
    found.semantic.sort(key=lambda c: (several and _reads_several(c), _compares_constant(c)))
    return found


def _reads_several(condition: exp.Expr) -> bool:
    """Return whether a condition reads several tables; DuckDB evaluates the others below a join."""
    tables = {column.table.lower() for column in condition.find_all(exp.Column)}
    return len(tables) > 1 or "" in tables


def _compares_constant(condition: exp.Expr) -> bool:
    """Return whether a condition compares with a constant; DuckDB evaluates such ones last.

    The planned order is DuckDB's own, so that neither way of running a statement asks more than the other.
    """
    return isinstance(condition, COMPARISONS) and any(
        not any(side.find_all(exp.Column)) for side in (condition.this, condition.expression)
    )


def _is_filter(condition: exp.Expr) -> bool:
    return is_call(condition) and condition.name.lower() == "sem_filter"
