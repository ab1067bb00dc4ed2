"""NumPy's times, in constants and as what a function gives: of any unit, exactly, or refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

AT = dt.datetime(2024, 2, 29, 5, 6, 7)
DATA = pa.table({"at": pa.array([AT, None], pa.timestamp("us"))})
P = od.Pipeline(DATA.schema)
AT_COLUMN = od.col("at")


def both(pipeline):
    """The rows of a run, which are those of `run_serial`."""
    serial = run_serial(pipeline, DATA)
    assert serial.error is None
    rows = serial.table.to_pylist()
    assert pipeline.run(DATA).table.to_pylist() == rows
    return rows


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (np.datetime64("2024-02-29"), pa.timestamp("us"), dt.datetime(2024, 2, 29)),
        (np.datetime64("2024-02"), pa.timestamp("s"), dt.datetime(2024, 2, 1)),
        (np.datetime64("2024-02-29T05", "h"), pa.timestamp("ms"), dt.datetime(2024, 2, 29, 5)),
        (np.datetime64("2024-02-29T05:06:07", "ns"), pa.timestamp("us"), AT),
        (np.datetime64("2024-02-29", "ns"), pa.date32(), dt.date(2024, 2, 29)),
        (np.datetime64("2024-02-29", "D"), pa.date64(), dt.date(2024, 2, 29)),
        (np.timedelta64(1_000, "ns"), pa.duration("us"), dt.timedelta(microseconds=1)),
        (np.timedelta64(2, "W"), pa.duration("s"), dt.timedelta(weeks=2)),
    ],
)
def test_any_unit_that_is_exact(value, type_, expected):
    made = P.map(lambda row: (value,), schema={"x": type_})
    assert both(made) == [{"x": expected}] * 2
    assert both(P.select(x=od.lit(value, type_))) == [{"x": expected}] * 2


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        # Arrow takes the number of these as it is: 1972-09-27 and a millisecond came of the first two.
        (np.timedelta64(1_000, "ns"), pa.date32(), "timedelta64"),
        (np.timedelta64(1_000, "ns"), pa.time64("us"), "timedelta64"),
        (np.timedelta64(1, "M"), pa.duration("us"), "timedelta64"),
        (np.timedelta64(5), pa.duration("us"), "timedelta64"),
        (np.datetime64("2024-02-29", "ns"), pa.time64("us"), "datetime64"),
        (np.datetime64("2024-02-29T05", "h"), pa.date32(), "can't be stored exactly"),
        (np.datetime64("2024-02-29T00:00:00.5", "ms"), pa.timestamp("s"), "can't be stored exactly"),
        (np.datetime64("9999-01-01", "D"), pa.timestamp("ns"), "can't be stored exactly"),
        (np.datetime64("2024-02-29"), pa.timestamp("us", "UTC"), "has no time zone: a datetime has one"),
        (dt.date(2024, 2, 29), pa.timestamp("us"), r"is a date: its midnight is datetime.datetime\(2024,"),
    ],
)
def test_what_does_not_fit_is_refused(value, type_, text):
    made = P.map(lambda row: (value,), schema={"x": type_})
    with pytest.raises(od.OperatorError, match=text) as met:
        made.run(DATA)
    assert met.value.serial == 1
    assert str(run_serial(made, DATA).error) == str(met.value)
    with pytest.raises(od.SchemaError, match=f"select_1: .*{text}"):
        P.select(x=od.lit(value, type_))


@pytest.mark.parametrize("value", [np.datetime64("NaT", "us"), np.timedelta64("NaT"), pd.NaT], ids=repr)
def test_a_time_that_is_none_is_refused(value):
    type_ = pa.duration("us") if isinstance(value, np.timedelta64) else pa.timestamp("us")
    made = P.map(lambda row: (value,), schema={"x": type_})
    with pytest.raises(od.OperatorError, match=r"NaT.* is no time: a null is None") as met:
        made.run(DATA)
    assert str(run_serial(made, DATA).error) == str(met.value)
    with pytest.raises(od.SchemaError, match="NaT can't be a constant in an expression: a null is None"):
        od.lit(value, type_)
    with pytest.raises(od.SchemaError, match="NaT can't be a constant in an expression: a null is None"):
        P.select(x=AT_COLUMN + value)


def test_beside_a_column():
    assert both(P.filter(np.datetime64("2024-02-28") < AT_COLUMN)) == [{"at": AT}]
    assert both(P.filter(AT_COLUMN.is_in([np.datetime64("2024-02-29T05:06:07", "ns")]))) == [{"at": AT}]


@pytest.mark.parametrize(
    ("value", "type_"), [("2024-02-29", pa.date32()), ("2024-02-29T05", pa.timestamp("s"))]
)
def test_a_constant_has_a_type_of_its_own(value, type_):
    assert P.select(x=od.lit(np.datetime64(value))).schema.field("x").type == type_


@pytest.mark.parametrize(
    ("value", "why"),
    [(dt.timedelta.max, "has no type of its own; write od"), (np.timedelta64(1, "M"), "write it in weeks")],
)
def test_a_constant_without_a_type_of_its_own(value, why):
    with pytest.raises(od.SchemaError, match=rf"select_1: .*{why}"):
        P.select(x=od.lit(value))


@pytest.mark.parametrize(
    ("days", "expected"),
    [(10**6, AT + dt.timedelta(days=10**6)), (-700_000, AT - dt.timedelta(days=700_000))],
)
def test_a_long_time_is_added(days, expected):
    """Of so many days there are more nanoseconds than 64 bits hold: they wrapped around."""
    assert both(P.select(x=AT_COLUMN + np.timedelta64(days, "D"))) == [{"x": expected}, {"x": None}]


@pytest.mark.parametrize("value", [np.timedelta64(1, "M"), np.timedelta64(1, "Y"), np.timedelta64(5)])
def test_what_has_no_length_is_not_added(value):
    """An average month was added, and 5 ns."""
    with pytest.raises(od.SchemaError, match=r"is no length of time: .*write datetime\.timedelta"):
        P.select(x=AT_COLUMN + value)


def test_numpy_on_the_left():
    """Nanoseconds were taken for microseconds: nothing was after the year 56,000."""
    later = np.datetime64("2024-02-28", "ns") < AT_COLUMN
    moved = np.timedelta64(1_000, "ns") + AT_COLUMN
    assert both(P.select(later=later, moved=moved)) == [
        {"later": True, "moved": AT + dt.timedelta(microseconds=1)},
        {"later": None, "moved": None},
    ]
    with pytest.raises(od.SchemaError, match="can't be a constant"):
        np.array([1, 2]) == AT_COLUMN  # noqa: B015
