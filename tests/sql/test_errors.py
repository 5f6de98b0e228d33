"""What goes wrong inside a pipeline or a function reaches the user as what it is."""

from __future__ import annotations

import threading

import duckdb
import polars as pl
import pytest
from sql_tables import GOOD, TOPIC, connected, says

import semops
from semops.sql.failures import FETCHES, kept
from semops.testing import Reply, replay

RAISE = "SELECT id, review FROM t WHERE sem_filter('{r} ok', review, {'on_error': 'raise'})"
AS_FUNCTION = f"{RAISE} AND id IN [1, 2, 3]"


def undecided(operator, instruction, row):
    return None


READS = {
    "fetchall": lambda con, sql: con.sql(sql).fetchall(),
    "execute": lambda con, sql: con.execute(sql).fetchall(),
    "fetchone": lambda con, sql: con.execute(sql).fetchone(),
    "frame": lambda con, sql: con.query(sql).pl(),
    "table": lambda con, sql: con.execute(sql).to_arrow_table(),
    "derived": lambda con, sql: con.sql(sql).filter("id < 3").order("id").fetchall(),
    "length": lambda con, sql: len(con.sql(sql)),
    "shape": lambda con, sql: con.sql(sql).shape,
    "write": lambda con, sql: con.execute(f"CREATE TABLE made AS {sql}"),
    "first of several": lambda con, sql: con.execute(f"CREATE TABLE made AS {sql}; SELECT 1"),
    "cursor": lambda con, sql: con.cursor().execute(sql).fetchall(),
}


@pytest.mark.parametrize("sql", [RAISE, AS_FUNCTION], ids=["planned", "function"])
@pytest.mark.parametrize("read", READS)
def test_a_row_without_an_answer_is_an_engine_error(read, sql):
    con = connected(20)
    with replay(undecided):
        with pytest.raises(semops.EngineError, match="could not answer for a row") as caught:
            READS[read](con, sql)
        assert "on_error" in str(caught.value)
    with replay(says):
        assert con.sql(f"SELECT count(*) FROM t WHERE {GOOD}").fetchall() == [(18,)]


def test_an_instruction_of_the_data_that_is_wrong_is_a_template_error():
    con = connected(3)
    with replay(says), pytest.raises(semops.TemplateError, match="placeholders are: none"):
        con.sql("SELECT sem_filter(review, review) FROM t").fetchall()


@pytest.mark.parametrize("tail", ["", " AND id IN range(900)"], ids=["planned", "function"])
def test_an_interrupt_is_an_interrupt(tail):
    con = connected(900)
    asked = threading.Event()

    def slow(*_):
        asked.set()
        return Reply(True, delay_s=0.02)

    def interrupt():
        asked.wait(60)
        con.interrupt()

    with replay(slow, max_running=2):
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(duckdb.InterruptException):
            con.execute(f"SELECT id FROM t WHERE {GOOD}{tail}").fetchall()
        thread.join(60)


def test_an_error_of_duckdb_s_own_stays_one():
    con = connected(20)
    with pytest.raises(ValueError, match="nope"), kept():
        raise ValueError("nope")  # left behind by a plain connection
    with pytest.raises(duckdb.BinderException, match="nope"):
        con.sql("SELECT nope FROM t")
    with replay(says):
        for sql in ("SELECT review::INT FROM t", f"SELECT review::INT FROM t WHERE {GOOD}"):
            with pytest.raises(duckdb.ConversionException, match="Could not convert"):
                con.sql(sql).fetchall()


def test_a_semantic_frame_in_from():
    con = semops.attach()
    frame = pl.DataFrame({"a": ["x"]}).sem_filter("{a} ok", on_error="raise")
    with replay(undecided), pytest.raises(semops.EngineError, match="could not answer"):
        con.sql("SELECT * FROM frame").fetchall()
    assert frame.collect_schema().names() == ["a"]


def test_a_relation_is_a_relation_to_duckdb():
    con = connected(5)
    with replay(says):
        good = con.sql(f"SELECT id, {TOPIC} AS topic FROM t WHERE {GOOD}")
        assert isinstance(good, duckdb.DuckDBPyRelation)
        assert con.sql("SELECT max(id) FROM good").fetchall() == [(4,)]
        assert good.join(con.table("t"), "id").columns[:3] == ["id", "topic", "g"]
        assert good.union(con.sql("SELECT 9, 'nine'")).aggregate("sum(id)").fetchall() == [(16,)]
        other = pl.DataFrame({"id": [4]})
        assert good.query(
            "good_rows", "SELECT id FROM good_rows JOIN other USING (id)"
        ).fetchall() == [(4,)]
        assert other.height == 1
        assert pl.DataFrame(good).height == 4


def test_methods_that_read_are_those_of_a_connection():
    assert all(hasattr(duckdb.DuckDBPyConnection, name) for name in FETCHES)
    known = {"arrow", "df", "numpy", "fetch", "torch", "tf"}
    methods = {n for n in dir(duckdb.DuckDBPyConnection) if any(word in n for word in known)}
    assert {n for n in methods if not n.startswith(("_", "from_"))} == FETCHES
