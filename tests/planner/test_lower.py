"""Where plans are cut into pipelines and stages."""

from __future__ import annotations

from collections.abc import Sequence

from tables import TABLE, Computed, Table, sem_filter, sem_join, sem_map, show, where

from semops.planner.ir import Filter, Limit, Node, Project, Relational
from semops.planner.lower import lower
from semops.planner.optimize import optimize

RIGHT = Table(("fact",))


def shape(plan: Node, *, pipelining: bool = True) -> list[tuple[list[list[str]], list[str]]]:
    """Return stages and tail of each pipeline, in words."""

    def words(nodes: Sequence[Node]) -> list[str]:
        return [show(node)[-1] for node in nodes]

    physical = lower(plan, pipelining=pipelining)
    return [([words(s.steps) for s in p.stages], words(p.tail)) for p in physical.pipelines]


def test_filter_and_map_make_one_stage_and_the_rest_its_tail() -> None:
    plan = Project(Filter(sem_map(sem_filter(TABLE)), where("p", "summary")), ("summary",))
    expected = ([["sem_filter", "sem_map:summary"]], ["where p", "select summary"])
    assert shape(plan) == [expected]


def test_a_join_starts_a_stage() -> None:
    plan = sem_map(sem_join(sem_filter(TABLE), RIGHT, "{text} and {fact}"))
    assert shape(plan) == [([["sem_filter"], ["join table", "sem_map:summary"]], [])]
    twice = sem_join(
        sem_join(TABLE, RIGHT, "{text} and {fact}"), Table(("other",)), "{text} and {other}"
    )
    assert shape(twice) == [([[], ["join table"], ["join table"]], [])]


def test_row_wise_work_stands_between_the_steps_of_a_stage() -> None:
    loud = Computed(("text",), "loud", ("text", "loud"))
    plan = sem_map(Relational(sem_filter(TABLE), loud))
    assert shape(plan) == [([["sem_filter", "compute", "sem_map:summary"]], [])]


def test_without_pipelining_each_operator_has_its_pipeline() -> None:
    plan = sem_map(sem_join(sem_filter(TABLE), RIGHT, "{text} and {fact}"))
    assert shape(plan, pipelining=False) == [
        ([["sem_filter"]], []),
        ([[], ["join table"]], []),
        ([["sem_map:summary"]], []),
    ]


def test_without_pipelining_local_work_follows_its_operator() -> None:
    plan = Filter(sem_map(Filter(sem_filter(TABLE), where("p", "year"))), where("q", "summary"))
    assert shape(plan, pipelining=False) == [
        ([["sem_filter"]], ["where p"]),
        ([["sem_map:summary"]], ["where q"]),
    ]


def test_a_limit_in_the_middle_cuts_the_pipeline() -> None:
    plan = sem_map(Limit(sem_filter(TABLE), 3))
    assert shape(plan) == [([["sem_filter"]], ["head 3"]), ([["sem_map:summary"]], [])]
    join = sem_join(Limit(sem_filter(TABLE), 3), RIGHT, "{text} and {fact}")
    assert shape(join) == [([["sem_filter"]], ["head 3"]), ([[], ["join table"]], [])]


def test_a_limit_below_all_operators_is_the_tables() -> None:
    plan = optimize(Limit(sem_map(TABLE), 3))
    physical = lower(plan)
    assert physical.source.text == "table head 3"
    assert len(physical.pipelines) == 1


def test_a_plan_without_operators_has_one_pipeline_of_local_work() -> None:
    assert shape(Filter(TABLE, where("p", "year"))) == [([[]], ["where p"])]
    assert shape(TABLE) == [([[]], [])]


def test_labels_are_unique() -> None:
    plan = sem_filter(sem_filter(sem_filter(TABLE), "{title} is kind"), "{year} is kind")
    assert list(lower(plan).labels().values()) == ["sem_filter", "sem_filter_2", "sem_filter_3"]
