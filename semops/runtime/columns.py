"""Which columns a step of a pipeline sees, and of which types.

A tuple keeps all that it got, and a projection only says what of it is still seen. So within a pipeline a
projection need not be done, except where something above gives a name that it hides to another column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from semops.operators import SemFilter, SemMap
from semops.planner.ir import Copy, Join, Limit, Project, Relational, Semantic, columns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semops.operators import Operator
    from semops.planner.lower import PhysicalPipeline

TEXT, VERDICT, PROBABILITY = pl.String(), pl.Boolean(), pl.Float64()


def steps_to_do(pipeline: PhysicalPipeline) -> list[list[Any]]:
    """Return the steps of each stage without those that nobody would notice, in order."""
    kept: list[list[Any]] = []
    written_later: set[str] = set()
    for stage in reversed(pipeline.stages):
        kept.append([])
        for step in reversed(stage.steps):
            if isinstance(step, Limit):
                continue
            if isinstance(step, Project) and written_later.isdisjoint(_hidden(step)):
                continue
            kept[-1].append(step)
            if resets(step):
                written_later.clear()  # what is below can't be seen from above
            written_later.update(_written(step))
    return [steps[::-1] for steps in kept[::-1]]


def resets(step: object) -> bool:
    """Return whether a step makes a new row of a tuple, with nothing hidden in it."""
    return isinstance(step, (Project, Relational))


def dtypes_after(step: object, before: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Return the types of the semantic columns after a step."""
    after = {} if resets(step) else dict(before)
    if isinstance(step, Copy):
        after[step.name] = before.get(step.source, TEXT)
    elif isinstance(step, Semantic):
        after.update(dtypes_of(step.operator))
    return after


def dtypes_of(operator: Operator) -> dict[str, pl.DataType]:
    """Return the types of the columns that a filter or a map adds."""
    if isinstance(operator, SemMap):
        return {operator.name: TEXT if operator.shape is None else operator.shape.dtype}
    assert isinstance(operator, SemFilter)  # noqa: S101 - a join's columns are its right side's
    columns = ((operator.name, VERDICT), (operator.probability, PROBABILITY))
    return {name: dtype for name, dtype in columns if name is not None}


def _hidden(step: Project) -> set[str]:
    return set(columns_of(step.input)) - set(step.columns)


def _written(step: object) -> tuple[str, ...]:
    if isinstance(step, Semantic):
        return step.operator.writes
    if isinstance(step, Join):
        return step.right.columns
    return (step.name,) if isinstance(step, Copy) else ()
