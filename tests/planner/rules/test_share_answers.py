"""Equal operators over equal columns are asked once."""

from __future__ import annotations

from tables import TABLE, Computed, Table, sem_filter, sem_join, sem_map, show

from semops.planner.ir import Project, Relational
from semops.planner.rules.share_answers import share_answers


def test_a_second_equal_map_is_a_copy() -> None:
    plan = sem_map(sem_filter(sem_map(TABLE)), name="again")
    assert show(share_answers(plan)) == [
        "table",
        "sem_map:summary",
        "sem_filter",
        "copy summary again",
    ]


def test_a_third_equal_map_copies_an_answer_not_a_copy() -> None:
    plan = sem_map(sem_map(sem_map(TABLE), name="two"), name="three")
    assert show(share_answers(plan)) == [
        "table",
        "sem_map:summary",
        "copy summary two",
        "copy summary three",
    ]


def test_a_second_equal_filter_goes_away() -> None:
    assert show(share_answers(sem_filter(sem_map(sem_filter(TABLE))))) == [
        "table",
        "sem_filter",
        "sem_map:summary",
    ]


def test_a_filter_that_adds_columns_stays() -> None:
    plan = sem_filter(sem_filter(TABLE), name="kind")
    assert share_answers(plan) == plan
    plan = sem_filter(sem_filter(TABLE), probability="share")
    assert share_answers(plan) == plan


def test_operators_that_differ_stay() -> None:
    plan = sem_map(sem_map(TABLE), "Translate {text}", "translation")
    assert share_answers(plan) == plan


def test_row_wise_work_and_joins_may_change_what_a_column_means() -> None:
    columns = ("text", "title", "year", "summary")
    loud = Relational(sem_map(TABLE), Computed(columns, "text", columns))
    join = sem_join(sem_map(TABLE), Table(("fact",)), "{text} and {fact}")
    for below in (loud, join):
        plan = sem_map(below, name="again")
        assert share_answers(plan) == plan


def test_a_map_whose_column_was_dropped_is_asked_again() -> None:
    plan = sem_map(Project(sem_map(TABLE), ("text", "year")), name="again")
    assert share_answers(plan) == plan
    remade = sem_map(Project(sem_map(TABLE), ("text", "year")), "Translate {text}")
    plan = sem_map(remade, name="again")
    assert share_answers(plan) == plan


def test_a_map_that_is_kept_by_a_projection_is_copied() -> None:
    plan = sem_map(Project(sem_map(TABLE), ("summary", "text")), name="again")
    assert show(share_answers(plan))[-1] == "copy summary again"


def test_a_map_over_a_column_made_anew_is_asked_again() -> None:
    without = Project(sem_map(TABLE), ("summary", "title"))
    plan = sem_map(sem_map(without, "Translate {title}", "text"), name="again")
    assert share_answers(plan) == plan
