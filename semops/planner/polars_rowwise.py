"""Which nodes and expressions of an optimised Polars plan are row-wise.

A list of what is known to be row-wise, never of what is not: an expression that a newer Polars adds
must not be taken for one by accident.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from types import NoneType
from typing import Any, Final

NODES: Final = frozenset({"Filter", "HStack", "Select", "SimpleProjection"})
CHILDREN: Final = ("left", "right", "expr", "predicate", "truthy", "falsy")
EXPRESSIONS: Final = frozenset({"Column", "BinaryExpr", "Cast", "Ternary"})
FUNCTIONS: Final = frozenset(
    {
        "abs",
        "as_struct",
        "ceil",
        "clip",
        "coalesce",
        "exp",
        "fill_null",
        "floor",
        "log",
        "max_horizontal",
        "min_horizontal",
        "negate",
        "pow",
        "round",
        "round_sig_figs",
        "sign",
        "sqrt",
        "sum_horizontal",
    }
)
BOOLEAN: Final = frozenset(
    {
        "AllHorizontal",
        "AnyHorizontal",
        "IsBetween",
        "IsFinite",
        "IsInfinite",
        "IsNan",
        "IsNotNan",
        "IsNotNull",
        "IsNull",
        "Not",
    }
)
WITH_LITERALS: Final = frozenset({"IsIn", "replace", "replace_strict"})
"""Row-wise where all inputs but the first are literals; those may hold several values."""
NOT_ROWWISE_STRING: Final = frozenset({"ConcatVertical"})
SCALARS: Final = (NoneType, bool, int, float, str, bytes, Decimal, dt.date, dt.time, dt.timedelta)
"""Values of literals that stand for one row (a Series is a literal too)."""
FAMILIES: Final = ("StringFunction", "StructFunction", "TemporalFunction")


def between_is_rowwise(traverser: Any, kind: str) -> bool:
    """Return whether the current node makes at most one row of a row, from that row alone.

    Parameters
    ----------
    traverser
        Polars' node traverser, at the node.
    kind
        Class name of the node.
    """
    if kind not in NODES:
        return False
    return all(_rowwise(traverser, expression.node) for expression in traverser.get_exprs())


def _rowwise(traverser: Any, number: int) -> bool:
    try:
        expression = traverser.view_expression(number)
    except NotImplementedError:  # for example a Python function
        return False
    kind = type(expression).__name__
    if kind == "Literal":
        return isinstance(expression.value, SCALARS)
    if kind == "Function":
        return _function_rowwise(traverser, expression)
    if kind not in EXPRESSIONS:
        return False
    children = [getattr(expression, name, None) for name in CHILDREN]
    return all(
        _rowwise(traverser, child)
        for child in children
        if isinstance(child, int) and not isinstance(child, bool)
    )


def _function_rowwise(traverser: Any, expression: Any) -> bool:
    inputs = [getattr(node, "node", node) for node in expression.input]
    family, _, name = str(expression.function_data[0]).rpartition(".")
    if name in WITH_LITERALS:
        literal = all(_kind(traverser, node) == "Literal" for node in inputs[1:])
        return literal and _rowwise(traverser, inputs[0])
    known = (
        (family == "BooleanFunction" and name in BOOLEAN)
        or (family in FAMILIES and name not in NOT_ROWWISE_STRING)
        or (not family and name in FUNCTIONS)
    )
    known = known and not _infers(expression.function_data)
    return known and all(_rowwise(traverser, node) for node in inputs)


def _kind(traverser: Any, number: int) -> str:
    try:
        return type(traverser.view_expression(number)).__name__
    except NotImplementedError:
        return ""


def _infers(function_data: tuple[Any, ...]) -> bool:
    """Return whether a function takes its format from the column's first values."""
    return str(function_data[0]) == "StringFunction.Strptime" and function_data[1] is None
