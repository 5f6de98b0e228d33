"""A LIMIT sinks below what keeps every row, and no further."""

from __future__ import annotations

import pytest
from tables import TABLE, Computed, Table, sem_filter, sem_join, sem_map, show, where

from semops.planner.ir import Copy, Filter, Limit, Node, Project, Relational
from semops.planner.rules.limit_demand import limit_demand


@pytest.mark.parametrize(
    "below",
    [
        sem_map(TABLE),
        sem_filter(TABLE, name="kind"),
        Project(sem_map(TABLE), ("text", "summary")),
        Copy(sem_map(TABLE), "summary", "again"),
    ],
)
def test_a_limit_goes_below_what_keeps_every_row(below: Node) -> None:
    assert show(limit_demand(Limit(below, 3)))[0] == "table head 3"


@pytest.mark.parametrize(
    "below",
    [
        sem_filter(TABLE),
        sem_join(TABLE, Table(("fact",)), "{text} and {fact}"),
        Filter(TABLE, where("p", "year")),
        Relational(TABLE, Computed(("text",), "loud", ("text", "loud"))),
    ],
)
def test_a_limit_stays_above_what_drops_or_multiplies_rows(below: Node) -> None:
    plan = Limit(sem_map(below), 3)
    assert show(limit_demand(plan)) == [*show(below), "head 3", "sem_map:summary"]


def test_of_two_limits_the_smaller_holds() -> None:
    for first, second in ((3, 5), (5, 3)):
        plan = Limit(sem_map(Limit(sem_filter(TABLE), first)), second)
        assert show(limit_demand(plan)) == ["table", "sem_filter", "head 3", "sem_map:summary"]
