"""How many calls a planned statement makes, and in which order."""

from __future__ import annotations

import pytest
from sql_tables import GOOD, TOPIC, connected, says

from semops.testing import replay

WINDOW = 16


def run(con, sql, *args):
    """Run a statement; return its rows and the calls that it made."""
    with replay(says, max_running=WINDOW) as log:
        rows = con.sql(sql, params=args or None).fetchall()
        return rows, list(log.calls)


def test_cheap_conditions_come_first():
    """Only the rows that pass them are asked about, on whichever side they stand."""
    con = connected(700)
    for where in (f"{GOOD} AND id % 7 = 0", f"id % 7 = 0 AND {GOOD}"):
        rows, calls = run(con, f"SELECT id FROM t WHERE {where}")
        assert sorted(c.row["review"] for c in calls) == sorted(f"r{i}" for i in range(0, 700, 7))
        assert [r[0] for r in rows] == [i for i in range(0, 700, 7) if i % 10 != 3]


@pytest.mark.parametrize("order", ["", "ORDER BY id", "ORDER BY 1", "ORDER BY id DESC"])
def test_limit_stops_early(order):
    """LIMIT 5 needs the rows up to the fifth that passes, and what was under way then."""
    con = connected(6_000)
    rows, calls = run(con, f"SELECT id FROM t WHERE {GOOD} {order} LIMIT 5")
    expected = [i for i in range(6_000) if i % 10 != 3]
    expected = expected[::-1] if "DESC" in order else expected
    assert [r[0] for r in rows] == expected[:5]
    assert len(calls) <= 6 + WINDOW


def test_offset_counts():
    """OFFSET skips rows that pass."""
    rows, calls = run(connected(3_000), f"SELECT id FROM t WHERE {GOOD} LIMIT 3 OFFSET 4")
    assert [r[0] for r in rows] == [5, 6, 7]
    assert len(calls) <= 8 + WINDOW


def test_limit_over_a_map_alone_is_exact():
    """A map keeps every row, so LIMIT 5 asks five times."""
    _, calls = run(connected(3_000), f"SELECT {TOPIC} FROM t LIMIT 5")
    assert len(calls) == 5


def test_limit_reaches_into_a_derived_table():
    """The limit of an outer SELECT stops the inner one's operators."""
    sql = (
        f"SELECT topic FROM (SELECT *, {TOPIC} AS topic FROM t WHERE {GOOD}) x WHERE g = 1 LIMIT 2"
    )
    _, calls = run(connected(3_000), sql)
    assert len(calls) <= 2 * (8 + WINDOW)


@pytest.mark.parametrize("limit", ["", "LIMIT 900"])
def test_filter_and_map_of_a_tuple_lie_close(limit):
    """The map of a tuple follows its filter while its prefix is still there."""
    _, calls = run(connected(2_000), f"SELECT id, {TOPIC} AS m FROM t WHERE {GOOD} {limit}")
    asked = {c.row["review"]: n for n, c in enumerate(calls) if c.operator == "sem_filter"}
    gaps = [n - asked[c.row["review"]] for n, c in enumerate(calls) if c.operator == "sem_map"]
    assert len(gaps) >= 900
    assert max(gaps) <= 2 * WINDOW


def test_the_same_call_twice_is_one():
    """In WHERE, SELECT and ORDER BY, whatever the case of its names."""
    other = GOOD.replace("review)", "T.REVIEW)")
    rows, calls = run(
        connected(50), f"SELECT id, {other} AS v FROM t WHERE {GOOD} ORDER BY {GOOD}, 1"
    )
    assert len(calls) == 50
    assert {r[1] for r in rows} == {True}


def test_equal_texts_are_asked_once():
    con = connected(5_000, distinct=3)
    rows, calls = run(con, f"SELECT count(*) FROM t WHERE {GOOD}")
    assert rows == [(5_000,)]
    assert len(calls) == 3
    with replay(says) as log:
        assert con.connection.sql(f"SELECT count(*) FROM t WHERE {GOOD}").fetchall() == [(5_000,)]
        assert len(log.calls) == 3


def test_unread_map_is_not_computed():
    rows, calls = run(connected(20), f"SELECT id FROM (SELECT id, {TOPIC} AS topic FROM t) x")
    assert len(rows) == 20
    assert calls == []


def test_case_asks_where_it_must():
    """A branch asks about the rows that reach it."""
    sql = f"SELECT CASE WHEN g = 0 THEN {TOPIC} WHEN {GOOD} THEN 'good' ELSE review END AS c FROM t"
    _, calls = run(connected(90), sql)
    assert {c.row["review"] for c in calls if c.operator == "sem_map"} == {
        f"r{i}" for i in range(0, 90, 3)
    }
    assert len([c for c in calls if c.operator == "sem_filter"]) == 60


def test_or_asks_where_the_cheap_side_leaves_it_open():
    _, calls = run(connected(90), f"SELECT id FROM t WHERE g = 0 OR {GOOD}")
    assert len(calls) == 60


def test_or_of_two_filters_asks_the_second_about_the_rest():
    sql = f"SELECT id FROM t WHERE {GOOD} OR sem_filter('{{review}} is long', review)"
    _, calls = run(connected(100), sql)
    assert len([c for c in calls if "long" in c.instruction]) == 10


def test_semantic_join_asks_about_pairs_that_pass_the_cheap_conditions():
    sql = """SELECT a.id, b.id FROM t a JOIN t b ON sem_filter('{x} fits {y}', a.review, b.review)
             WHERE a.id < 4 AND b.id BETWEEN 10 AND 12"""
    rows, calls = run(connected(100), sql)
    assert len(calls) == 12
    assert {c.operator for c in calls} == {"sem_join"}
    assert sorted(rows) == [(a, b) for a in (0, 1, 2) for b in (10, 11, 12)]


def test_equality_comes_before_a_semantic_condition():
    sql = """SELECT count(*) FROM t a JOIN t b ON a.g = b.g AND sem_filter('{x} fits {y}', a.review, b.review)
             WHERE a.id < 6 AND b.id < 9"""
    _, calls = run(connected(100), sql)
    assert len(calls) == 18


def test_exists_stops_at_the_first_row():
    _, calls = run(connected(3_000), f"SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE {GOOD})")
    assert len(calls) <= 1 + WINDOW


def test_groups_that_fall_are_not_asked_about():
    sql = """SELECT g, sem_map('sum up {x}', string_agg(review, ',')) AS s FROM t GROUP BY g
             HAVING count(*) > 33 AND sem_filter('{x} agree', string_agg(review, ','))"""
    rows, calls = run(connected(100), sql)
    assert len(rows) == 1
    assert len(calls) == 2


def test_materialized_cte_is_asked_once_a_row():
    sql = f"WITH c AS MATERIALIZED (SELECT * FROM t WHERE id % 7 = 0) SELECT count(*) FROM c WHERE {GOOD}"
    _, calls = run(connected(700), sql)
    assert len(calls) == 100


def test_a_cte_read_twice_shares_answers():
    sql = f"""WITH c AS (SELECT id, {TOPIC} AS topic FROM t WHERE id < 20)
              SELECT count(*) FROM c a JOIN c b ON a.topic = b.topic"""
    rows, calls = run(connected(100), sql)
    assert rows == [(20,)]
    assert len(calls) == 20


def test_function_column_filtered_from_a_subquery_is_asked_once():
    """DuckDB alone evaluates the column twice: once to filter, once to show."""
    con = connected(100)
    sql = f"SELECT * FROM (SELECT *, {TOPIC} AS k FROM t) WHERE k <> '<r7>'"
    for side in (con, con.connection):
        with replay(says) as log:
            assert len(side.sql(sql).fetchall()) == 99
            assert len(log.calls) == 100
