"""Lowering: a logical plan becomes pipelines of stages.

A pipeline is cut at blocking operators, a stage at Cartesian products. With ``pipelining=False`` the
plan is cut after every semantic operator too: operator-at-a-time execution, the baseline that
benchmarks compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semops.operators import label
from semops.planner.ir import (
    Copy,
    Filter,
    Join,
    Limit,
    Project,
    Relational,
    Semantic,
    Source,
    columns_of,
)
from semops.planner.traversal import chain

if TYPE_CHECKING:
    from semops.operators import Operator
    from semops.planner.ir import Node, Relation

Local = Filter | Project | Relational | Copy | Limit
"""Nodes that need no model."""


@dataclass(frozen=True, slots=True)
class PhysicalStage:
    """What one tuple runs through: semantic operators and local nodes, in order."""

    steps: tuple[Semantic | Join | Local, ...]


@dataclass(frozen=True, slots=True)
class PhysicalPipeline:
    """Stages, the right sides between them, and local work on the finished rows."""

    stages: tuple[PhysicalStage, ...]
    rights: tuple[Relation, ...]
    """``rights[i]`` meets every tuple that leaves ``stages[i]``."""
    tail: tuple[Local, ...]
    """Local nodes after the last semantic operator, done on batches."""
    columns: tuple[str, ...]
    """The result, in order."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The semantic operators, in order."""
        return tuple(
            step.operator
            for stage in self.stages
            for step in stage.steps
            if isinstance(step, (Semantic, Join))
        )


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """A table and the pipelines that its rows go through, one after the other."""

    source: Relation
    pipelines: tuple[PhysicalPipeline, ...]

    def labels(self) -> dict[Operator, str]:
        """Return a name for each operator, unique within the plan."""
        names: dict[Operator, str] = {}
        taken: set[str] = set()
        for operator in (o for pipeline in self.pipelines for o in pipeline.operators):
            if operator in names:
                continue
            name = base = label(operator)
            number = 2
            while name in taken:
                name = f"{base}_{number}"
                number += 1
            taken.add(name)
            names[operator] = name
        return names


def lower(plan: Node, *, pipelining: bool = True) -> PhysicalPlan:
    """Cut a logical plan into pipelines and stages.

    Parameters
    ----------
    plan
        An optimized plan.
    pipelining
        False cuts after every semantic operator.
    """
    nodes = list(chain(plan))[::-1]
    source = nodes[0]
    assert isinstance(source, Source)  # noqa: S101 - a chain ends at its source
    pipelines: list[PhysicalPipeline] = []
    group: list[Node] = []
    for node in nodes[1:]:
        starts_new = isinstance(node, (Semantic, Join)) and any(map(_is_semantic, group))
        # A limit that couldn't sink counts rows of the whole table: a tuple alone can't know.
        after_limit = any(isinstance(other, Limit) for other in group)
        if (starts_new and (not pipelining or after_limit)) or (after_limit and _is_semantic(node)):
            pipelines.append(_pipeline(group))
            group = []
        group.append(node)
    if group or not pipelines:
        pipelines.append(_pipeline(group, source))
    return PhysicalPlan(source.relation, tuple(pipelines))


def _is_semantic(node: Node) -> bool:
    return isinstance(node, (Semantic, Join))


def _pipeline(nodes: list[Node], source: Source | None = None) -> PhysicalPipeline:
    """Cut a run of nodes into stages and a tail."""
    last = max((i for i, node in enumerate(nodes) if _is_semantic(node)), default=-1)
    stages: list[list[Semantic | Join | Local]] = [[]]
    rights: list[Relation] = []
    for node in nodes[: last + 1]:
        if isinstance(node, Join):
            rights.append(node.right)
            stages.append([])
        assert not isinstance(node, Source)  # noqa: S101 - the source is not among them
        stages[-1].append(node)
    tail = [node for node in nodes[last + 1 :] if not isinstance(node, (Source, Semantic, Join))]
    top = nodes[-1] if nodes else source
    assert top is not None  # noqa: S101 - a pipeline has a node or a source
    return PhysicalPipeline(
        tuple(PhysicalStage(tuple(steps)) for steps in stages),
        tuple(rights),
        tuple(tail),
        columns_of(top),
    )
