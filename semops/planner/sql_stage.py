"""Lowers a SELECT with semantic calls to a stage: a query for DuckDB below, a chain of operators above it.

The SELECT itself stays where it is and reads the stage. What it shows, groups and sorts by is DuckDB's
work as before; the stage gives it the columns that it reads and the semantic results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from semops.planner.sql_calls import SqlCall, Unplanned, is_call, read_call
from semops.planner.sql_columns import key_of
from semops.planner.sql_conditions import (
    calls_in,
    guard_of,
    guarded,
    holds,
    mine,
    to_polars,
    translatable,
)

if TYPE_CHECKING:
    from semops.planner.sql_calls import Catalog
    from semops.planner.sql_conditions import Condition


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks an operator about each row."""

    call: SqlCall
    column: str | None
    """Where the answer goes; None drops the rows for which it isn't true."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Pairs each row with each of the right side's, and keeps those for which the answer is yes."""

    call: SqlCall


@dataclass(frozen=True, slots=True)
class Bind:
    """Computes a column."""

    column: str
    expression: pl.Expr


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps the rows where a condition holds."""

    predicate: pl.Expr


Step = Ask | Pair | Bind | Keep


@dataclass(frozen=True, slots=True)
class Base:
    """A query that DuckDB runs below a chain."""

    query: str
    columns: tuple[str, ...]
    """What the chain calls the query's columns, in order."""
    steps: tuple[Step, ...] = ()
    """What is done to it alone, for the right side of a join."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A chain of semantic operators over a query."""

    name: str
    """The table that the rest of the statement reads."""
    base: Base
    steps: tuple[Step, ...]
    outputs: tuple[tuple[str, str], ...]
    """The chain's columns that are read, and what they are called outside."""
    right: Base | None = None
    """The right side, where a step is a :class:`Pair`."""
    limit: int | None = None
    """How many rows are wanted."""
    drained: bool = False
    """Whether it is known that all rows will be pulled."""


@dataclass(frozen=True, slots=True)
class _Argument:
    """What a placeholder stands for: an expression of the base query, or an earlier answer."""

    node: exp.Expr
    answer: int | None
    """Number of the operator whose answer it is."""
    guard: tuple[Condition, ...] = ()
    """What has to hold of earlier answers; elsewhere the call is not needed."""

    @property
    def meaning(self) -> tuple[object, bool]:
        """Equal for arguments that are one column."""
        return (key_of(self.node) if self.answer is None else self.answer, bool(self.guard))


@dataclass(frozen=True, slots=True)
class _Op:
    call: SqlCall
    arguments: tuple[_Argument, ...]
    drops: bool
    pair: bool
    prefer: str | None


TRUE = -1
"""In place of an operator's number: the call dropped the rows for which it isn't true."""


class Chain:
    """Collects the operators of a stage in the order in which they run.

    A call that is read later notes in its node's ``meta`` which operator answers it.

    Parameters
    ----------
    catalog
        Evaluates constants.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ops: list[_Op | exp.Expr] = []
        self._known: dict[str, int] = {}
        """Number of the operator that answers a call, by the call's key and guard."""
        self._columns: dict[int, str] = {}
        """Columns of the operators' answers."""
        self._base: dict[str, tuple[exp.Expr, str]] = {}
        """Expressions of the base query and their columns."""
        self._taken: set[str] = set()

    def filter(self, call: exp.Expr, *, pair: bool = False) -> None:
        """Drop the rows, or the pairs of rows, for which a call isn't true."""
        assert isinstance(call, exp.Anonymous)  # noqa: S101 - a call is one
        self._add(call, (), drops=True, pair=pair)
        if call.meta["answer"] != TRUE:  # answered already, for the sake of another condition
            self._ops.append(call)

    def keep(self, condition: exp.Expr) -> None:
        """Drop the rows for which a condition over semantic results isn't true."""
        self.evaluate(condition, filters=True)
        self._ops.append(condition)

    def evaluate(self, root: exp.Expr, prefer: str | None = None, *, filters: bool = False) -> None:
        """Compute the semantic calls of an expression.

        Parameters
        ----------
        root
            An expression that is computed from them later.
        prefer
            What the answer is called where the expression is one call.
        filters
            Whether rows fall for which the expression isn't true.
        """
        for call in calls_in(root):
            if call.find_ancestor(exp.Lambda, exp.Comprehension) is not None:
                raise Unplanned("a semantic call in a lambda")
            self._add(
                call, guard_of(call, root, filters=filters), prefer=prefer if call is root else None
            )

    def _add(
        self,
        node: exp.Anonymous,
        guard: tuple[Condition, ...],
        *,
        drops: bool = False,
        pair: bool = False,
        prefer: str | None = None,
    ) -> None:
        key = key_of(node)
        whole = key + repr([(key_of(c.node), c.holds) for c in guard])
        known = self._known.get(key, self._known.get(whole))
        if known is not None:
            node.meta["answer"] = known
            return
        semantic = tuple(c for c in guard if mine(c.node))
        cheap = tuple(c for c in guard if not mine(c.node))
        if not all(translatable(c.node) for c in semantic):
            raise Unplanned("a call that depends on an expression over another one's answer")
        call = read_call(node, self._catalog)
        if guard and "nulls" in dict(call.options):
            raise Unplanned("the option nulls under a condition")
        for argument in call.arguments:
            if is_call(argument):
                assert isinstance(argument, exp.Anonymous)  # noqa: S101 - what is_call says
                self._add(argument, guard)
        first, *others = call.arguments
        arguments = [_argument(first, cheap, semantic), *(_argument(a, (), ()) for a in others)]
        number = TRUE if drops else len(self._ops)
        node.meta["answer"] = self._known[whole if guard else key] = number
        self._ops.append(_Op(call, tuple(arguments), drops, pair, prefer))

    def steps(self) -> list[tuple[Step, tuple[exp.Expr, ...] | None]]:
        """Return the steps, and the base expressions that each reads if it reads nothing else.

        A placeholder that stands for one thing all along is a column of that name from the start.
        Otherwise it is computed anew before each operator that reads it.
        """
        meanings: dict[str, set[tuple[object, bool]]] = {}
        ops = [(number, op) for number, op in enumerate(self._ops) if isinstance(op, _Op)]
        for _, op in ops:
            for name, argument in zip(op.call.placeholders, op.arguments, strict=True):
                meanings.setdefault(name, set()).add(argument.meaning)
        fixed = {n: next(iter(m))[0] for n, m in meanings.items() if len(m) == 1}
        fixed = {n: key for n, key in fixed.items() if (key, False) in meanings[n]}
        self._name_answers(ops, meanings, {key: n for n, key in fixed.items()})
        done: list[tuple[Step, tuple[exp.Expr, ...] | None]] = []
        for number, part in enumerate(self._ops):
            if not isinstance(part, _Op):
                done.append((Keep(to_polars(part, self._column)), None))
                continue
            op = part
            for name, argument in zip(op.call.placeholders, op.arguments, strict=True):
                if name in fixed and argument.answer is None:
                    self._base.setdefault(key_of(argument.node), (argument.node, name))
                    self._base[f"{name}\0"] = (argument.node, name)
                elif name not in fixed or self._columns.get(argument.answer or 0) != name:
                    done.append((Bind(name, self._value(argument)), None))
            plain = all(a.answer is None and not a.guard for a in op.arguments)
            reads = tuple(a.node for a in op.arguments) if plain else None
            column = None if op.drops else self._columns[number]
            done.append((Pair(op.call) if op.pair else Ask(op.call, column), reads))
        return done

    def _name_answers(
        self,
        ops: list[tuple[int, _Op]],
        meanings: dict[str, set[tuple[object, bool]]],
        placeholders: dict[object, str],
    ) -> None:
        taken = self._taken = set(meanings)
        for number, op in ops:
            if op.drops:
                continue
            name = placeholders.get(number)
            if name is None:
                base = op.prefer or ("sem_map" if op.call.operator == "sem_map" else "verdict")
                name, count = base, 2
                while name in taken:
                    name, count = f"{base}_{count}", count + 1
            taken.add(name)
            self._columns[number] = name

    def _value(self, argument: _Argument) -> pl.Expr:
        value = self._column(argument.node)
        for condition in argument.guard:
            value = pl.when(holds(condition, self._column)).then(value)
        return value

    def _column(self, node: exp.Expr) -> pl.Expr:
        """Return the column of a semantic call or of an expression that DuckDB computes."""
        if is_call(node):
            name = self.answer(node)
            return pl.lit(value=True) if name is None else pl.col(name)
        return pl.col(self.read(node))

    def answer(self, node: exp.Expr) -> str | None:
        """Return the column of a call's answer; None where the rows without a yes are gone."""
        number = node.meta["answer"]
        return None if number == TRUE else self._columns[number]

    def read(self, node: exp.Expr) -> str:
        """Return the column of an expression that the base query computes."""
        key = key_of(node)
        if key not in self._base:
            name = node.name if isinstance(node, exp.Column) else ""
            if not name or name in self._taken:
                name = f"__b{len(self._base)}"
            self._taken.add(name)
            self._base[key] = (node, name)
        return self._base[key][1]

    def placeholders(self) -> set[str]:
        """Return the columns that prompts read."""
        return {n for op in self._ops if isinstance(op, _Op) for n in op.call.placeholders}

    def base_items(self) -> list[tuple[exp.Expr, str]]:
        """Return the base query's expressions and what the chain calls them."""
        return list({name: (node, name) for node, name in self._base.values()}.values())


def _argument(
    node: exp.Expr, cheap: tuple[Condition, ...], semantic: tuple[Condition, ...]
) -> _Argument:
    if is_call(node):
        return _Argument(node, node.meta["answer"], semantic)
    if mine(node):
        raise Unplanned("an expression over another call's answer")
    return _Argument(guarded(node, cheap), None, semantic)
