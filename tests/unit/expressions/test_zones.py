"""Zones where Arrow alone has no answer, or a wrong one: hours that a change of the clock repeats or skips,
years behind 2037, and behind Arrow's calendar.
"""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import OperatorError
from ordstream.ground.datetimes import UTC_ZONES
from ordstream.ground.types import INT64_MAX, INT64_MIN
from ordstream.testing import run_serial

X = od.col("x")
UTC = datetime.UTC
MINUTE = datetime.timedelta(minutes=1)


def instants(zone: str, first: str, minutes: int, n: int) -> pa.Array:
    """n instants from one in UTC on."""
    at = datetime.datetime.fromisoformat(first).replace(tzinfo=UTC)
    return pa.array([at + k * minutes * MINUTE for k in range(n)], pa.timestamp("us", zone))


def answers(column: pa.Array, **columns: od.col) -> dict[str, list[object]]:
    """What the core and the reference give, which is the same."""
    data = pa.table({"x": column})
    pipeline = od.Pipeline(data.schema).select(**columns)
    expected = run_serial(pipeline, data).table
    for options in ({"workers": 0}, {"workers": 2, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7}):
        assert pipeline.run(data, **options).table.equals(expected)
    return expected.to_pydict()


@pytest.mark.parametrize("every", [1, 10, 15, 30, 60])
def test_truncates_in_the_hour_that_a_zone_has_twice(every):
    column = instants("Europe/Rome", "2024-10-26T22:00", 5, 60)
    found = answers(column, y=X.dt.truncate(f"{every}m"))["y"]
    for value, begin in zip(column.to_pylist(), found, strict=True):
        assert begin.utcoffset() == value.utcoffset()
        assert begin.replace(tzinfo=None) == value.replace(tzinfo=None, minute=value.minute // every * every)
        assert begin.astimezone(UTC) <= value.astimezone(UTC)


def test_an_interval_that_begins_in_an_hour_that_is_there_twice():
    column = instants("Europe/Rome", "2024-10-26T23:30", 60, 4)  # 01:30, 02:30, 02:30 and 03:30 there
    found = answers(column, y=X.dt.truncate("2h"))["y"]
    assert [str(begin)[11:13] + str(begin)[19:] for begin in found] == [
        "00+02:00", "02+02:00", "02+01:00", "02+01:00"
    ]  # fmt: skip


def test_a_day_whose_midnight_is_skipped_begins_at_the_change():
    column = instants("America/Sao_Paulo", "2018-11-04T02:00", 60, 4)
    found = answers(column, y=X.dt.truncate("1d"))["y"]
    assert list(map(str, found)) == ["2018-11-03 00:00:00-03:00"] + ["2018-11-04 01:00:00-02:00"] * 3


@pytest.mark.parametrize(
    ("zone", "monday", "begin"),
    [
        ("Asia/Tehran", "2021-03-22", "01:00:00+04:30"),  # whose midnight is skipped
        ("America/Sao_Paulo", "1997-10-06", "01:00:00-02:00"),
        ("Europe/Rome", "1943-10-04", "00:00:00+02:00"),  # clocks go back at 03:00
    ],
)
def test_a_week_that_begins_on_the_day_of_a_change(zone, monday, begin):
    column = instants(zone, f"{monday}T12:00", 24 * 60, 6)
    found = answers(column, y=X.dt.truncate("1w"))["y"]
    assert list(map(str, found)) == [f"{monday} {begin}"] * 6


ZONES = ("Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Asia/Gaza")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [1890, 2024, 2037, 2038, 2050, 2100, 6481, 9998])
@pytest.mark.thin(16)
def test_readings_are_those_of_the_zones_rule(zone, year):
    column = instants(zone, f"{year}-01-01T00:00", 7 * 24 * 60 + 35, 52)
    values = [value.astimezone(ZoneInfo(zone)) for value in column.to_pylist()]
    found = answers(
        column,
        hour=X.dt.hour(),
        minute=X.dt.minute(),
        day=X.dt.day(),
        week=X.dt.week(),
        ordinal_day=X.dt.ordinal_day(),
        reading=X.dt.replace_time_zone(None),
        again=X.dt.replace_time_zone(None).dt.replace_time_zone(zone, ambiguous="earliest"),
        month=X.dt.truncate("1mo"),
    )
    assert found["hour"] == [value.hour for value in values]
    assert found["minute"] == [value.minute for value in values]
    assert found["day"] == [value.day for value in values]
    assert found["week"] == [value.isocalendar().week for value in values]
    assert found["ordinal_day"] == [value.timetuple().tm_yday for value in values]
    assert found["reading"] == [value.replace(tzinfo=None) for value in values]
    assert found["again"] == values
    assert found["month"] == [
        value.replace(day=1, hour=0, minute=0, second=0, microsecond=0) for value in values
    ]


def test_changes_behind_2037():
    zone = ZoneInfo("Europe/Rome")
    clocks = [datetime.datetime(2040, 3, 25, 2, 30), datetime.datetime(2040, 10, 28, 2, 30), None]
    column = pa.array(clocks, pa.timestamp("ms"))
    found = answers(
        column,
        early=X.dt.replace_time_zone("Europe/Rome", ambiguous="earliest", non_existent="earliest"),
        late=X.dt.replace_time_zone("Europe/Rome", ambiguous="latest", non_existent="latest"),
    )
    change, twice = datetime.datetime(2040, 3, 25, 1, tzinfo=UTC), clocks[1]
    assert found["early"] == [change - MINUTE / 60_000, twice.replace(tzinfo=zone), None]
    assert found["late"] == [change, twice.replace(tzinfo=zone, fold=1), None]
    for row, word in enumerate(("skips", "twice")):
        data = pa.table({"x": column.slice(row, 1)})
        pipeline = od.Pipeline(data.schema).select(y=X.dt.replace_time_zone("Europe/Rome"))
        assert isinstance(run_serial(pipeline, data).error, OperatorError)
        with pytest.raises(OperatorError, match=word):
            pipeline.run(data)


def test_four_hundred_years_later_clocks_read_the_same():
    zone, cycle = "America/New_York", 146_097 * 86_400
    seconds = [2_550_000_000 + 1_234_567 * k for k in range(50)]  # up to the year 2052
    early = answers(pa.array(seconds, pa.timestamp("s", zone)), y=X.dt.replace_time_zone(None).dt.epoch("s"))
    later = pa.array([second + 50 * cycle for second in seconds], pa.timestamp("s", zone))
    found = answers(later, y=X.dt.replace_time_zone(None).dt.epoch("s"))
    assert found["y"] == [reading + 50 * cycle for reading in early["y"]]


@pytest.mark.parametrize(
    ("type_", "value", "expression"),
    [
        (pa.timestamp("us", "Europe/Rome"), INT64_MAX, X.dt.hour()),  # PostgreSQL's infinity
        (pa.timestamp("us", "Europe/Rome"), INT64_MAX, X.dt.truncate("1h")),
        (pa.timestamp("s"), INT64_MAX, X.dt.truncate("1y")),
        (pa.timestamp("ms"), INT64_MIN, X.dt.truncate("1mo")),
        (pa.timestamp("ns"), INT64_MIN, X.dt.truncate("1mo")),
        (pa.timestamp("ns", "Asia/Kolkata"), INT64_MAX, X.dt.replace_time_zone(None)),
        (pa.timestamp("ns"), INT64_MAX, X.dt.replace_time_zone("America/New_York")),
        (pa.timestamp("s"), 10**15, X.dt.week()),
        (pa.date32(), 2**31 - 1, X.dt.ordinal_day()),
        (pa.date32(), -(2**31), X.dt.truncate("1q")),
    ],
    ids=str,
)
def test_behind_the_calendar_is_an_error_at_its_row(type_, value, expression):
    storage = pa.int32() if type_ == pa.date32() else pa.int64()
    data = pa.table({"x": pa.array([0, None, value, 1], storage).view(type_)})
    pipeline = od.Pipeline(data.schema).select(y=expression)
    expected = run_serial(pipeline, data)
    assert expected.error is not None
    for rows in (1, 64):
        with pytest.raises(OperatorError) as caught:
            pipeline.run(data, workers=0, chunk_rows=rows)
        assert (caught.value.serial, str(caught.value)) == (3, str(expected.error))


@pytest.mark.parametrize("zone", sorted(UTC_ZONES))
def test_zones_that_show_utc_read_alike(zone):
    times = pa.array([0, None, -1, 1_700_000_000_123_456], pa.timestamp("us"))
    readings = {"h": X.dt.hour(), "d": X.dt.truncate("1d").cast(pa.int64()), "w": X.dt.weekday()}
    found = [
        od.Pipeline({"x": type_}).select(**readings).run(pa.table({"x": times.view(type_)}), workers=0).table
        for type_ in (pa.timestamp("us", zone), pa.timestamp("us", "UTC"))
    ]
    assert found[0] == found[1]
