"""Ctrl-C ends a query however it is run: it is never taken for the end of the rows, and nothing goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

WAYS = {
    "collect": "lazy.collect()",
    "in memory": "lazy.collect(engine='in-memory')",
    "sink": "lazy.sink_parquet(folder + '/out.parquet')",
    "batches": "rows = sum(batch.height for batch in lazy.collect_batches(chunk_size=5))",
    "lazy batches": "rows = sum(batch.height for batch in lazy.collect_batches(lazy=True))",
    "below a sort": "lazy.sort('m').sem_map('Say {m}', 'n').collect()",
    "join": "frame.sem_join(frame.rename({'t': 'u'}), '{t} is {u}').collect()",
    "calibrated": "frame.sem_filter('{t} ok', calibrate=True).collect()",
}
CODE = """
import os, signal, tempfile, threading, time
import polars as pl, semops
from semops.testing import Reply, replay
frame = pl.DataFrame({"t": [f"row {n}" for n in range(1_000)]})
lazy = frame.sem_filter("{t} ok").sem_map("Sum {t}", "m")
rows = None
def interrupt():
    while len(log.calls) < 8:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
with tempfile.TemporaryDirectory() as folder, replay(
    lambda operator, *_: Reply(True if operator != "sem_map" else "x", 0.2), max_running=4
) as log:
    threading.Thread(target=interrupt).start()
    try:
        WAY
        print("finished", rows)
    except KeyboardInterrupt:
        print("interrupted")
    deadline = time.monotonic() + 20
    while log.engine.scheduler.ledger.used and time.monotonic() < deadline:
        pl.Series()  # Polars lets go of a stream when somebody calls it
        time.sleep(0.01)
    print(log.engine.scheduler.ledger.used)
    print(frame.head(3).sem_filter("{t} ok").collect().height)
"""


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_ends_a_query_and_is_told(way: str) -> None:
    code = CODE.replace("WAY", WAYS[way])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n") == ["interrupted", "0", "3", ""], done.stderr
