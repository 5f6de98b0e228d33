"""Threads, cursors, open results, interrupts, early ends: right rows, and nothing hangs or stays behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import duckdb
import polars as pl
import pytest
from sql_tables import GOOD, TOPIC, connected, says

from semops.testing import Reply, replay


def slow(operator, instruction, row):
    return Reply(says(operator, instruction, row), delay_s=0.02)


def settled(log):
    """Return whether the engine gives back all memory soon."""
    for _ in range(100):
        if not log.engine.scheduler.ledger.used:
            return True
        time.sleep(0.05)
    return False


def test_four_threads_of_duckdb_over_many_rows():
    con = connected(600_000, distinct=100)
    con.execute("SET threads = 4")
    with replay(says) as log:
        sql = f"SELECT count(*) FROM (SELECT {TOPIC} AS m, review FROM t) WHERE m <> '<r7>' AND {GOOD}"
        assert con.connection.sql(sql).fetchall() == [(534_000,)]
        assert len(log.calls) <= 200


def test_cursors_in_threads():
    con = connected(300, distinct=20)
    found: dict[int, list[tuple[int]]] = {}

    def work(number):
        side = con.cursor() if number % 2 else con.cursor().connection
        sql = f"SELECT count(*) FROM t WHERE sem_filter('{{r}} is {number}', review)"
        found[number] = side.execute(sql).fetchall()

    with replay(says) as log:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == {number: [(270,)] for number in range(6)}
        assert len(log.calls) == 120


def test_two_cursors_take_turns():
    con = connected(400)
    with replay(says) as log:
        first, second = con.cursor(), con.cursor()
        first.execute(f"SELECT id FROM t WHERE {GOOD}")
        second.execute(f"SELECT id, {TOPIC} FROM t WHERE {GOOD}")
        for number in (0, 1, 2, 4, 5):
            assert first.fetchone() == (number,)
            assert second.fetchone() == (number, f"<r{number}>")
        assert len(first.fetchall()) == len(second.fetchall()) == 355
        assert settled(log)


def test_open_reader_while_another_query_runs():
    con = connected(3_000)
    with replay(says) as log:
        reader = con.sql(f"SELECT id FROM t WHERE {GOOD}").to_arrow_reader(8)
        got = reader.read_next_batch().column(0).to_pylist()
        other = con.cursor().sql(f"SELECT count(*) FROM t WHERE {GOOD} AND id < 100")
        assert other.fetchall() == [(90,)]
        got += reader.read_next_batch().column(0).to_pylist()
        assert got == [i for i in range(3_000) if i % 10 != 3][: len(got)]
        with pytest.raises(duckdb.Error, match="open result"):
            con.execute(f"SELECT id FROM t WHERE {GOOD}")
        reader.close()
        assert con.execute(f"SELECT count(*) FROM t WHERE {GOOD}").fetchall() == [(2_700,)]
        assert settled(log)


def test_a_reader_that_waits_holds_the_query_back():
    """What isn't read isn't asked about, but for a small lead."""
    con = connected(50_000)
    with replay(says) as log:
        reader = con.sql(f"SELECT id, repeat('x', 1000) FROM t WHERE {GOOD}").to_arrow_reader(8)
        reader.read_next_batch()
        time.sleep(0.5)
        before = len(log.calls)
        assert before < 1_000
        time.sleep(0.5)
        assert len(log.calls) == before
        started = time.monotonic()
        reader.close()
        assert time.monotonic() - started < 5
        assert settled(log)


@pytest.mark.parametrize("side", ["planned", "function"])
def test_interrupt(side):
    con = connected(5_000)
    with replay(slow, max_running=4) as log:
        target = con if side == "planned" else con.connection
        timer = threading.Timer(0.5, con.interrupt)
        timer.start()
        with pytest.raises(duckdb.Error, match=r"(?i)interrupt"):
            target.execute(f"SELECT id FROM t WHERE {GOOD}").fetchall()
        assert len(log.calls) < 1_000
        assert settled(log)
        assert con.sql("SELECT count(*) FROM t").fetchall() == [(5_000,)]
        sql = f"SELECT id FROM t WHERE id < 3 AND {GOOD}"
        assert con.sql(sql).fetchall() == [(0,), (1,), (2,)]


def test_interrupt_of_the_plain_connection_reaches_a_planned_statement():
    con = connected(5_000)
    with replay(slow, max_running=4) as log:
        threading.Timer(0.5, con.connection.interrupt).start()
        with pytest.raises(duckdb.InterruptException):
            con.execute(f"SELECT id FROM t WHERE {GOOD}").fetchall()
        assert settled(log)


def test_frames_over_sql_and_sql_over_frames():
    con = connected(400)
    with replay(says) as log:
        lazy = con.cursor().sql("SELECT * FROM t").pl(lazy=True)
        chain = lazy.sem_filter("{review} is good").sem_map("topic of {review}", "topic")
        assert chain.filter(pl.col("id") > 100).head(5).collect()["id"].to_list() == [
            101,
            102,
            104,
            105,
            106,
        ]
        assert len(log.calls) < 60
        before = len(log.calls)
        assert con.sql("SELECT id, topic FROM chain WHERE id < 4").fetchall() == [
            (i, f"<r{i}>") for i in (0, 1, 2)
        ]
        assert len(log.calls) - before == 7
        before = len(log.calls)
        assert len(con.sql("SELECT id FROM chain LIMIT 3").fetchall()) == 3
        assert len(log.calls) - before < 40
        assert con.sql("SELECT count(*), count(topic) FROM chain").fetchall() == [(360, 360)]
        assert settled(log)


def test_functions_below_a_semantic_frame():
    """DuckDB calls a function on its threads while Polars waits for DuckDB's rows."""
    con = connected(3_000, distinct=50)
    with replay(says):
        lazy = con.connection.sql(f"SELECT {TOPIC} AS m FROM t").pl(lazy=True)
        assert lazy.sem_filter("{m} ok").collect().height == 3_000


def test_script_that_leaves_a_result_open_ends(tmp_path):
    code = (
        "import semops, sys\n"
        "from semops.testing import Reply, replay\n"
        "con = semops.attach()\n"
        "con.execute('CREATE TABLE t AS SELECT i AS id, i::VARCHAR AS r FROM range(5000) x(i)')\n"
        "context = replay(lambda *_: Reply(True, delay_s=0.01)); context.__enter__()\n"
        "con.execute(\"SELECT id FROM t WHERE sem_filter('{r} ok', r)\")\n"
        "print(con.fetchone())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "(0,)", "")


def test_keyboard_interrupt_ends_a_statement(tmp_path):
    code = (
        "import os, signal, threading, semops\n"
        "from semops.testing import Reply, replay\n"
        "con = semops.attach()\n"
        "con.execute('CREATE TABLE t AS SELECT i AS id, i::VARCHAR AS r FROM range(5000) x(i)')\n"
        "with replay(lambda *_: Reply(True, delay_s=0.01), max_running=2) as log:\n"
        "    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    try:\n"
        "        con.execute(\"SELECT id FROM t WHERE sem_filter('{r} ok', r)\").fetchall()\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', len(log.calls) < 2000)\n"
        "    print(con.execute(\"SELECT id FROM t WHERE id = 1 AND sem_filter('{r} ok', r)\").fetchall())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["interrupted True", "[(1,)]"]), done
