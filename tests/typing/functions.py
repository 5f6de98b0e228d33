"""What type checkers see; checked by mypy, never run."""

from __future__ import annotations

from typing import assert_type

import polars as pl

import semops
from semops.testing import replay


def functions() -> None:
    """Use every public function once."""
    lf = pl.LazyFrame({"text": ["a"]})
    df = lf.collect()

    assert_type(semops.sem_filter(df, "{text} is kind"), pl.LazyFrame)
    assert_type(lf.pipe(semops.sem_filter, "{text} is kind"), pl.LazyFrame)
    assert_type(lf.pipe(semops.sem_map, "Shorten {text}", "short", max_tokens=8), pl.LazyFrame)
    assert_type(semops.sem_join(lf, df, "{text:left} is {text:right}", suffix="_2"), pl.LazyFrame)
    assert_type(semops.explain(lf), str)
    assert_type(semops.last_profile(), semops.Profile | None)

    with semops.profile() as profile, replay(lambda _operator, _instruction, _row: True) as log:
        assert_type(profile.errors(), pl.DataFrame)
        assert_type(log.calls[0].operator, str)
