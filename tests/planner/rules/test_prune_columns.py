"""What nobody reads is neither carried nor computed."""

from __future__ import annotations

from tables import TABLE, Computed, Table, sem_filter, sem_join, sem_map, show, where

from semops.planner.ir import Copy, Filter, Limit, Project, Relational, columns_of
from semops.planner.rules.prune_columns import prune_columns


def test_an_unread_map_goes_away() -> None:
    plan = Project(sem_filter(sem_map(TABLE)), ("text",))
    assert show(prune_columns(plan)) == ["table select text", "sem_filter"]


def test_a_map_stays_that_another_operator_reads() -> None:
    plan = Project(sem_filter(sem_map(TABLE), "{summary} is kind"), ("title",))
    assert show(prune_columns(plan)) == [
        "table select text,title",
        "sem_map:summary",
        "sem_filter",
        "select title",
    ]


def test_a_filter_is_never_dropped_for_its_columns() -> None:
    plan = Project(sem_filter(TABLE, probability="share"), ("text",))
    assert show(prune_columns(plan)) == ["table select text", "sem_filter", "select text"]


def test_an_unread_verdict_goes_away() -> None:
    verdict = sem_filter(TABLE, name="kind", probability="share")
    assert show(prune_columns(Project(verdict, ("text",)))) == ["table select text"]
    assert "sem_filter:kind" in show(prune_columns(Project(verdict, ("share",))))


def test_what_a_predicate_reads_is_kept() -> None:
    plan = Project(Filter(sem_map(TABLE), where("p", "summary", "year")), ("title",))
    assert show(prune_columns(plan)) == [
        "table",
        "sem_map:summary",
        "where p",
        "select title",
    ]


def test_a_copy_goes_away_alone() -> None:
    plan = Project(Copy(sem_map(TABLE), "summary", "again"), ("summary",))
    assert show(prune_columns(plan)) == ["table select text", "sem_map:summary", "select summary"]
    plan = Project(Copy(sem_map(TABLE), "summary", "again"), ("again",))
    assert show(prune_columns(plan))[1:3] == ["sem_map:summary", "copy summary again"]


def test_both_sides_of_a_join_are_narrowed() -> None:
    join = sem_join(sem_map(TABLE), Table(("fact", "source")), "{text} and {fact}")
    assert show(prune_columns(Project(join, ("title", "fact")))) == [
        "table select text,title",
        "join table select fact",
        "select title,fact",
    ]


def test_row_wise_work_says_what_it_reads() -> None:
    loud = Computed(("text", "year"), "loud", ("text", "title", "year", "loud"))
    plan = Project(Relational(sem_map(TABLE), loud), ("loud",))
    assert show(prune_columns(plan)) == ["table select text,year", "compute"]


def test_a_limit_keeps_counting_rows() -> None:
    plan = Project(Limit(sem_filter(sem_map(TABLE)), 3), ("year",))
    assert show(prune_columns(plan)) == [
        "table select text,year",
        "sem_filter",
        "head 3",
        "select year",
    ]


def test_the_columns_and_their_order_stay() -> None:
    plan = Project(sem_map(TABLE), ("summary", "year", "text"))
    assert columns_of(prune_columns(plan)) == ("summary", "year", "text")
