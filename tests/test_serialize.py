"""One text for every type, the same whatever wrote the value."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import semops  # noqa: F401 - adds the operators
from semops.errors import SchemaError
from semops.serialize import check_dtypes, text_of, values_of
from semops.testing import replay

UTC = dt.UTC


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n{x}", "as it is\n{x}"),
        ("", ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-3, "-3"),
        (3.0, "3.0"),
        (0.1, "0.1"),
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.50"),
        (dt.date(2020, 1, 2), "2020-01-02"),
        (dt.time(3, 4, 5), "03:04:05"),
        (dt.datetime(2020, 1, 2, 3, 4, 5), "2020-01-02 03:04:05"),  # noqa: DTZ001
        (dt.datetime(2020, 1, 2, 3, tzinfo=UTC), "2020-01-02 03:00:00+00:00"),
        (dt.timedelta(hours=1, minutes=2), "01:02:00"),
        (-dt.timedelta(hours=1, minutes=2), "-01:02:00"),
        (dt.timedelta(days=2, microseconds=1_500_000), "48:00:01.5"),
        ([1, "a", None, True], '[1, "a", null, true]'),
        ({"ü": [1.5], "d": dt.date(2020, 1, 2)}, '{"ü": [1.5], "d": "2020-01-02"}'),
        ([], "[]"),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("value", [b"bytes", object(), {1, 2}, [b"bytes"]])
def test_a_value_without_text_form_is_an_error(value: Any) -> None:
    with pytest.raises(SchemaError, match="cast the column to text"):
        text_of(value)


@given(st.text())
def test_text_is_never_changed(text: str) -> None:
    assert text_of(text) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=3))
def test_nested_values_are_json(value: list[Any]) -> None:
    assert json.loads(text_of(value)) == value


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pl.Int8, [1]),
        (pl.UInt64, [2**63]),
        (pl.Float32, [0.5]),
        (pl.Decimal(10, 2), [Decimal("1.5")]),
        (pl.Datetime("ms", "Europe/Berlin"), [dt.datetime(2020, 1, 1, tzinfo=UTC)]),
        (pl.Duration, [dt.timedelta(1)]),
        (pl.Enum(["a"]), ["a"]),
        (pl.Categorical, ["a"]),
        (pl.List(pl.Int64), [[1]]),
        (pl.Array(pl.Int64, 2), [[1, 2]]),
        (pl.Struct({"a": pl.Date}), [{"a": dt.date(2020, 1, 1)}]),
    ],
)
def test_every_accepted_type_of_a_column_has_a_text(dtype: Any, values: list[Any]) -> None:
    series = pl.Series("c", values, dtype=dtype)
    check_dtypes(pl.Schema({"c": series.dtype}), ("c",), "sem_map")
    assert text_of(series.to_list()[0])


@pytest.mark.parametrize(
    "dtype",
    [pl.Binary, pl.Object, pl.List(pl.Binary), pl.Struct({"a": pl.List(pl.Binary)})],
    ids=str,
)
def test_a_type_without_text_form_is_an_error_before_anything_runs(dtype: Any) -> None:
    schema = pl.Schema({"c": dtype, "d": pl.String})
    check_dtypes(schema, ("d",), "sem_map")
    with pytest.raises(SchemaError, match=r"sem_map reads the column 'c'.*Turn it into text first"):
        check_dtypes(schema, ("c",), "sem_map")


TABLE = {
    "Int8": (pl.Series([-3], dtype=pl.Int8), "-3"),
    "UInt64": (pl.Series([2**64 - 1], dtype=pl.UInt64), "18446744073709551615"),
    "Int128": (pl.Series([2**100], dtype=pl.Int128), str(2**100)),
    "Float32": (pl.Series([0.1], dtype=pl.Float32), "0.1"),
    "Float64": (pl.Series([0.1]), "0.1"),
    "Boolean": (pl.Series([True]), "true"),
    "String": (pl.Series(["{x} \n雨"]), "{x} \n雨"),
    "Categorical": (pl.Series(["a"], dtype=pl.Categorical), "a"),
    "Enum": (pl.Series(["a"], dtype=pl.Enum(["a"])), "a"),
    "Date": (pl.Series([dt.date(2020, 1, 2)]), "2020-01-02"),
    "Time": (pl.Series([dt.time(3, 4, 5)]), "03:04:05"),
    "Datetime": (pl.Series([dt.datetime(2020, 1, 2, 3)]), "2020-01-02 03:00:00"),  # noqa: DTZ001
    "Datetime with zone": (
        pl.Series([dt.datetime(2020, 1, 2, 3, tzinfo=UTC)]),
        "2020-01-02 03:00:00+00:00",
    ),
    "Duration": (pl.Series([dt.timedelta(minutes=-2)]), "-00:02:00"),
    "Decimal": (pl.Series([Decimal("1.50")]), "1.50"),
    "List": (pl.Series([[0.1, None]], dtype=pl.List(pl.Float32)), "[0.1, null]"),
    "Array": (pl.Series([[1, 2]], dtype=pl.Array(pl.Int8, 2)), "[1, 2]"),
    "Struct": (
        pl.Series(
            [{"a": 0.1, "b": 0.1, "c": [dt.date(2020, 1, 2)]}],
            dtype=pl.Struct({"a": pl.Float32, "b": pl.Float64, "c": pl.List(pl.Date)}),
        ),
        '{"a": 0.1, "b": 0.1, "c": ["2020-01-02"]}',
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_every_type_reaches_the_prompt_as_its_text(name: str) -> None:
    column, text = TABLE[name]
    frame = pl.DataFrame({"value": column, "id": [1]})
    assert text_of(values_of(column)[0]) == text
    with replay(lambda *_: "fine") as log:
        frame.sem_map("Describe {value}", "out").collect()
    assert text_of(log.calls[0].row["value"]) == text
