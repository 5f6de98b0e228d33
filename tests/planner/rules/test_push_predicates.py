"""Cheap predicates sink as far as they may."""

from __future__ import annotations

from tables import TABLE, Computed, Table, sem_filter, sem_join, sem_map, show, where

from semops.planner.ir import Copy, Filter, Limit, Project, Relational
from semops.planner.rules.push_predicates import push_predicates

RECENT = where("year > 2000", "year")
SHORT = where("summary is short", "summary")
RIGHT = Table(("fact", "source"))


def test_a_predicate_goes_below_filter_and_map() -> None:
    plan = Filter(sem_map(sem_filter(TABLE)), RECENT)
    assert show(push_predicates(plan)) == [
        "table where year > 2000",
        "sem_filter",
        "sem_map:summary",
    ]


def test_a_predicate_stays_above_the_map_whose_column_it_reads() -> None:
    plan = Filter(sem_filter(sem_map(TABLE)), SHORT)
    assert show(push_predicates(plan)) == [
        "table",
        "sem_map:summary",
        "where summary is short",
        "sem_filter",
    ]


def test_a_predicate_stays_above_the_verdict_and_the_probability_that_it_reads() -> None:
    verdict = sem_filter(TABLE, name="kind", probability="share")
    for column in ("kind", "share"):
        plan = Filter(verdict, where("p", column))
        assert show(push_predicates(plan)) == ["table", "sem_filter:kind", "where p"]


def test_predicates_keep_their_order() -> None:
    first, second = where("a", "year"), where("b", "title")
    plan = Filter(Filter(sem_filter(TABLE), first), second)
    assert show(push_predicates(plan)) == ["table where a where b", "sem_filter"]


def test_no_predicate_passes_a_limit() -> None:
    plan = Filter(sem_map(Limit(sem_filter(TABLE), 3)), RECENT)
    assert show(push_predicates(plan)) == [
        "table",
        "sem_filter",
        "head 3",
        "where year > 2000",
        "sem_map:summary",
    ]


def test_a_predicate_goes_through_a_join_to_the_side_that_has_its_columns() -> None:
    join = sem_join(sem_filter(TABLE), RIGHT, "{text} and {fact}")
    assert show(push_predicates(Filter(join, RECENT))) == [
        "table where year > 2000",
        "sem_filter",
        "join table",
    ]
    assert show(push_predicates(Filter(join, where("q", "source")))) == [
        "table",
        "sem_filter",
        "join table where q",
    ]
    assert show(push_predicates(Filter(join, where("both", "source", "year")))) == [
        "table",
        "sem_filter",
        "join table",
        "where both",
    ]


def test_a_predicate_without_columns_keeps_or_drops_all_rows_wherever_it_stands() -> None:
    join = sem_join(TABLE, RIGHT, "{text} and {fact}")
    assert show(push_predicates(Filter(join, where("false")))) == [
        "table where false",
        "join table",
    ]


def test_a_predicate_stays_above_a_copy_that_it_reads() -> None:
    plan = Filter(Copy(sem_map(TABLE), "summary", "again"), where("p", "again"))
    assert show(push_predicates(plan))[-2:] == ["copy summary again", "where p"]
    plan = Filter(Copy(sem_map(TABLE), "summary", "again"), RECENT)
    assert show(push_predicates(plan))[0] == "table where year > 2000"


def test_a_predicate_passes_a_projection() -> None:
    plan = Filter(Project(sem_filter(TABLE), ("text", "year")), RECENT)
    assert show(push_predicates(plan)) == [
        "table where year > 2000",
        "sem_filter",
        "select text,year",
    ]


def test_row_wise_work_takes_a_predicate_on_what_it_computes() -> None:
    loud = Computed(("text", "title", "year"), "loud", ("text", "title", "year", "loud"))
    plan = Filter(Filter(Relational(sem_filter(TABLE), loud), where("LOUD", "loud")), RECENT)
    assert show(push_predicates(plan)) == [
        "table where year > 2000",
        "sem_filter",
        "compute & LOUD",
    ]


def test_a_predicate_stays_above_work_that_can_not_take_it() -> None:
    loud = Computed(("text",), "loud", ("text", "loud"), opaque=True)
    plan = Filter(Relational(sem_filter(TABLE), loud), where("p", "text"))
    assert show(push_predicates(plan)) == [
        "table",
        "sem_filter",
        "select text",
        "compute",
        "where p",
    ]
