"""Plans as text: what runs, in which pipelines and stages, and which prompts share a prefix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from semops.operators import SemMap, reads
from semops.planner.ir import Copy, Filter, Join, Limit, Project, Relational, Semantic
from semops.planner.layout import sharing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semops.operators import Operator
    from semops.planner.lower import Local, PhysicalPlan


def explain(plan: PhysicalPlan) -> str:
    """Return a physical plan as lines of text, the source first.

    Examples
    --------
    >>> import polars as pl
    >>> import semops
    >>> df = pl.DataFrame({"text": ["a", "b"], "year": [1, 2]})
    >>> print(semops.explain(df.sem_filter("{text} is kind").filter(pl.col("year") > 1)))
    source: DF ["text", "year"] where col("year") > 1
    pipeline 1
      stage 1: one prefix a tuple
        sem_filter "{text} is kind"  reads text
    """
    labels = plan.labels()
    lines = [f"source: {plan.source.text}"]
    for number, pipeline in enumerate(plan.pipelines, 1):
        lines.append(f"pipeline {number}" + ("  (materialises its input)" if number > 1 else ""))
        earlier: list[Operator] = []
        for index, stage in enumerate(pipeline.stages):
            if index:
                right = pipeline.rights[index - 1]
                lines.append(f"  x every row of: {right.text}  (the left tuple's prefix is kept)")
            if stage.steps:
                lines.append(f"  stage {index + 1}: one prefix a tuple")
            for step in stage.steps:
                if isinstance(step, (Semantic, Join)):
                    lines.append(f"    {_operator(step.operator, labels[step.operator], earlier)}")
                    earlier.append(step.operator)
                else:
                    lines.append(f"    {_local(step)}")
        lines.extend(f"  then {_local(step)}" for step in pipeline.tail)
    return "\n".join(lines)


def _operator(operator: Operator, name: str, earlier: list[Operator]) -> str:
    instruction = json.dumps(operator.template.text, ensure_ascii=False)
    text = f"{name} {instruction}  reads {', '.join(reads(operator))}"
    return "; ".join([text, *_notes(operator, earlier)])


def _notes(operator: Operator, earlier: list[Operator]) -> Iterator[str]:
    if isinstance(operator, SemMap):
        yield f"at most {operator.max_tokens} tokens"
    elif operator.answers != ("True", "False"):
        yield f"answers {operator.answers[0]!r} | {operator.answers[1]!r}"
    if isinstance(operator, SemMap) and operator.shape is not None:
        yield f"gives {operator.shape.dtype}"
    if not isinstance(operator, SemMap) and operator.deciding.calibrate:
        yield "calibrated"
    if operator.asking.style != "chat":
        yield f"{operator.asking.style} style"
    if operator.asking.examples:
        yield f"{len(operator.asking.examples)} examples"
    if earlier:
        found = [sharing(other, operator) for other in earlier]
        yield max(found, key=lambda shared: len(shared.columns)).reason


def _local(node: Local) -> str:
    match node:
        case Filter(_, predicate):
            return f"filter {predicate.text}"
        case Project(_, columns):
            return f"select {', '.join(columns)}"
        case Limit(_, rows):
            return f"limit {rows}"
        case Copy(_, source, name):
            return f"copy {source} as {name}"
        case Relational(_, between):
            return f"relational {between.text}"
