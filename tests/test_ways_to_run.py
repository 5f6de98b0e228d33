"""However a frame is run, its NULLs are warned of."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings

import polars as pl
import pytest

import semops
from semops.testing import Reply, replay

WAYS = {
    "collect": lambda lf, _: lf.collect(),
    "in memory": lambda lf, _: lf.collect(engine="in-memory"),
    "collect_all": lambda lf, _: pl.collect_all([lf]),
    "async": lambda lf, _: asyncio.run(awaited(lf)),
    "background": lambda lf, _: lf.collect(background=True).fetch_blocking(),
    "batches": lambda lf, _: list(lf.collect_batches()),
    "sink": lambda lf, folder: lf.sink_parquet(folder / "out.parquet"),
    "csv": lambda lf, folder: lf.sink_csv(folder / "out.csv"),
    "lazy sink": lambda lf, folder: lf.sink_ndjson(folder / "out.json", lazy=True).collect(),
}


async def awaited(lazy):
    return await lazy.collect_async()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_run_warns_of_nulls_each_time(way, tmp_path):
    """A sink is as silent as Polars' threads are, unless we speak."""

    def cut(_operator, _instruction, row):
        return Reply("on and on", cut_off=row["t"] == "cut")

    lazy = pl.DataFrame({"t": ["a", "cut"]}).sem_map("Say {t}", "m", max_tokens=4)
    for _ in range(2):
        with replay(cut), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            WAYS[way](lazy, tmp_path)
        assert [str(found.message)[:25] for found in caught] == ["some answers are NULL (se"]
        assert caught[0].category is semops.SemopsWarning
        with replay(lambda *_: "fine"), warnings.catch_warnings():
            warnings.simplefilter("error")
            WAYS[way](lazy, tmp_path)
        with replay(cut), warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(semops.SemopsWarning):
                WAYS[way](lazy, tmp_path)


def test_a_stream_that_is_left_early_warns_of_what_was_null():
    """Polars closes it from outside."""
    df = pl.DataFrame({"t": ["cut"] * 300})
    with (
        replay(lambda *_: Reply("on", cut_off=True)),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        rows = next(iter(df.sem_map("Say {t}", "m").collect_batches(chunk_size=1)))
        assert rows.height == 1
        gc.collect()
        deadline = time.monotonic() + 20
        while not caught and time.monotonic() < deadline:
            pl.Series()  # Polars lets go of a stream when somebody calls it
            time.sleep(0.01)
    assert caught
    assert caught[0].category is semops.SemopsWarning
