"""Windows of the calendar, and windows with an offset: where they begin, in every zone and unit; when they
close; what `zoneinfo` and Polars say of the same rows.
"""

from __future__ import annotations

import collections
import datetime
import random
import zoneinfo

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from property.compare import agree, run_core
from state_runs import Segment
from unit.operators.test_window import SCHEMA as NUMBERS
from unit.operators.test_window import both, per_key
from unit.operators.test_window import rows as number_rows

import ordstream as od
from ordstream.operators.calendar import INTERVALS, Calendar
from ordstream.testing import run_serial

ZONES = (
    *(None, "UTC", "+05:30", "Europe/Berlin", "Asia/Kathmandu"),
    "America/Havana",  # midnight comes twice a year, or is skipped
    "Pacific/Apia",  # left out 2011-12-30
    "America/Sao_Paulo",
)


def times(unit, zone, count=400, begin=datetime.datetime(2011, 9, 20), seed=0):
    """Times that ascend, some by hours; two keys."""
    rnd = random.Random(f"{unit} {zone} {seed}")
    at = [begin]
    while len(at) < count:
        at.append(at[-1] + datetime.timedelta(seconds=rnd.choice((0, 1800, 7 * 3600, 26 * 3600))))
    counts = pa.array(at, pa.timestamp("us")).cast(pa.timestamp(unit)).view(pa.int64())
    return pa.table(
        {
            "ts": counts.cast(pa.timestamp(unit, zone)),
            "k": [rnd.choice("ab") for _ in at],
            "x": range(count),
        }
    )


def windowed(data, kind, **options):
    keyed = od.Pipeline(data.schema).key_by("k").window(kind, time="ts")
    return keyed.aggregate(n=od.count(), s=od.sum("x"), **options)


def local_date(instant, zone):
    if zone is None or zone == "UTC":
        return instant.replace(tzinfo=None).date()
    if zone == "+05:30":
        return (instant + datetime.timedelta(hours=5.5)).date()
    return instant.astimezone(zoneinfo.ZoneInfo(zone)).date()


def first_of(day, interval):
    if interval == "1d":
        return day
    if interval == "1w":
        return day - datetime.timedelta(days=day.weekday())
    months = {"1mo": 1, "1q": 3, "1y": 12}[interval]
    return day.replace(day=1, month=(day.month - 1) // months * months + 1)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_intervals_are_those_of_the_zones_clocks(unit, zone, interval):
    """Each row is counted under its date by `zoneinfo`; windows lie side by side."""
    data = times(unit, zone)
    utc = data["ts"].cast(pa.timestamp("us")) if zone is None else data["ts"].cast(pa.timestamp("us", "UTC"))
    dates = [first_of(local_date(one.as_py().replace(tzinfo=datetime.UTC), zone), interval) for one in utc]
    wanted = collections.Counter(zip(dates, data["k"].to_pylist(), strict=True))
    expected = run_serial(windowed(data, od.calendar(interval)), data)
    agree(
        windowed(data, od.calendar(interval)),
        expected,
        run_core(windowed(data, od.calendar(interval)), data),
    )
    table = windowed(data, od.calendar(interval)).run(data, workers=2, chunk_rows=5).table
    plain = pa.timestamp(unit) if zone is None else pa.timestamp(unit, "UTC")
    starts = table["start"].cast(plain).cast(pa.timestamp("us", plain.tz)).to_pylist()
    ends = table["end"].cast(plain).cast(pa.timestamp("us", plain.tz)).to_pylist()
    found = collections.Counter()
    for start, end, key, n in zip(starts, ends, table["k"].to_pylist(), table["n"].to_pylist(), strict=True):
        start, end = start.replace(tzinfo=datetime.UTC), end.replace(tzinfo=datetime.UTC)
        found[first_of(local_date(start, zone), interval), key] += n
        last = local_date(end - datetime.timedelta(seconds=1), zone)
        assert first_of(last, interval) == first_of(local_date(start, zone), interval)
        assert first_of(local_date(end, zone), interval) > first_of(last, interval)
    assert found == wanted


# not where midnight is skipped: Polars begins such a day an hour early, in the day before
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", None])
@pytest.mark.parametrize("interval", INTERVALS)
def test_beside_polars(interval, zone):
    data = times("us", zone, 1_000)
    found = windowed(data, od.calendar(interval)).run(data, workers=2).table
    theirs = pl.from_arrow(data.sort_by("k")).group_by_dynamic("ts", every=interval, group_by="k")
    theirs = theirs.agg(n=pl.len(), s=pl.col("x").sum()).sort("ts", "k").select("ts", "k", "n", "s")
    assert pl.from_arrow(found).sort("start", "k").select("start", "k", "n", "s").rows() == theirs.rows()


@pytest.mark.parametrize("emit", ["close", "updates", "both"])
@pytest.mark.parametrize(
    "kind",
    [
        *(od.calendar("1d"), od.calendar("1w"), od.tumbling("1mo"), od.tumbling("1y")),
        *(od.tumbling("1d", offset="3h"), od.tumbling("36h", offset=datetime.timedelta(hours=-5))),
        *(od.hopping("1d", every="6h", offset="90m"), od.hopping("50h", every="20h", offset="-7h")),
    ],
    ids=str,
)
@pytest.mark.parametrize("zone", [None, "America/Havana"])
@pytest.mark.thin(16)
def test_the_core_and_the_reference(kind, emit, zone):
    data = times("us", zone, 300, seed=1)
    for time in ("ts", "at"):  # the clock; and a column that a function made, which is none
        source = od.Pipeline(data.schema)
        if time == "at":
            schema = pa.schema([*data.schema, data.schema.field("ts").with_name("at")])
            source = source.map(lambda row: (*row, row.ts), schema=schema)
        pipeline = source.key_by("k").window(kind, time=time).aggregate(n=od.count(), emit=emit)
        expected = run_serial(pipeline, data)
        assert expected.rows
        for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7, "buckets": 3}):
            agree(pipeline, expected, run_core(pipeline, data, **way))


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        (od.calendar("1d"), "2024-03-31T22:00"),  # summer time began: 23 hours
        (od.calendar("1mo"), "2024-03-31T22:00"),
        (od.tumbling("1d"), "2024-04-01T00:00"),  # of UTC
        (od.tumbling("1d", offset="3h"), "2024-04-01T03:00"),
    ],
    ids=str,
)
def test_the_clock_closes_them_when_they_end(kind, mark):
    berlin = pa.timestamp("ms", "Europe/Berlin")
    end = datetime.datetime.fromisoformat(mark).replace(tzinfo=datetime.UTC)
    before = end - datetime.timedelta(milliseconds=1)
    at = [datetime.datetime(2024, 3, 31, 12, tzinfo=datetime.UTC), before, end, end]
    data = pa.table({"ts": pa.array(at, berlin), "k": ["a", "b", "c", "c"], "x": [1, 2, 3, 4]})
    pipeline = windowed(data, kind)
    expected = run_serial(pipeline, data)
    agree(pipeline, expected, run_core(pipeline, data, workers=0, chunk_rows=1))
    assert [serial for serial, _ in expected.tags] == [3, 3, 4]
    assert {row[2].astimezone(datetime.UTC) for row in expected.rows[:2]} == {end}


def test_days_of_a_zone_and_of_utc():
    """`tumbling("1d")` counts from 1970 in UTC and says so; dates have the same days either way."""
    data = times("us", "Europe/Berlin", 50)
    assert (
        "days of UTC: od.calendar('1d') has those of Europe/Berlin"
        in windowed(data, od.tumbling("1d")).explain()
    )
    for other in (od.tumbling("6h"), od.calendar("1d"), od.tumbling("1d", offset="1h")):
        assert "days of UTC" not in windowed(data, other).explain()
    days = data.set_column(0, "ts", data["ts"].cast(pa.timestamp("us")).cast(pa.date32()))
    by_days = windowed(days, od.calendar("1d")).run(days).table
    assert by_days.equals(windowed(days, od.tumbling("1d")).run(days).table)
    assert by_days.schema.field("start").type == pa.date32()
    months = windowed(days, od.tumbling("1mo")).run(days).table
    assert {one.as_py().day for one in months["start"]} == {1}


@pytest.mark.parametrize("type_", [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns")], ids=str)
def test_where_a_calendar_ends(type_):
    calendar = Calendar("1mo", type_)
    first, last = calendar.years
    assert (first, last) == ((1678, 2261) if type_ == pa.timestamp("ns") else (1, 9999))
    inside = [int(calendar.starts[0]), int(calendar.starts[-1]) - 1]
    schema = pa.schema([pa.field("ts", type_), pa.field("k", pa.string()), pa.field("x", pa.int64())])
    if pa.types.is_date64(type_):
        inside[1] -= 86_400_000 - 1
    step = 86_400_000 if pa.types.is_date64(type_) else 1
    for counts, fails in ((inside, False), ([inside[0] - step], True), ([inside[1] + step], True)):
        width = pa.int32() if type_.bit_width == 32 else pa.int64()
        data = pa.table(
            [pa.array(counts, width).view(type_), ["a"] * len(counts), [1] * len(counts)], schema=schema
        )
        pipeline = windowed(data, od.calendar("1mo"))
        expected = run_serial(pipeline, data)
        assert (expected.error is not None) == fails
        agree(pipeline, expected, run_core(pipeline, data, workers=0))


def test_starts_ascend_in_every_zone():
    """And every day is one of 23 to 25 hours, but for what zones did at their changes of side or rule."""
    odd = 0
    for zone in ("Pacific/Apia", *sorted(zoneinfo.available_timezones())[::24]):
        for interval in ("1d", "1mo"):
            calendar = Calendar(interval, pa.timestamp("s", zone))
            lengths = np.diff(calendar.starts)
            assert lengths.min() > 0
            if interval == "1d":
                odd += int(((lengths < 23 * 3600) | (lengths > 25 * 3600)).sum())
            assert calendar.marks >= 1
            recent = calendar.starts[calendar.starts >= 0]
            assert not (recent % calendar.marks).any()
    assert odd < 100


def test_negative_offsets_are_the_same_as_positive_ones():
    data = number_rows((1, "b", 1), (4, "a", 10), (7, "a", 20), (23, "c", 5))
    for one, other in (
        (od.tumbling(10, offset=-3), od.tumbling(10, offset=7)),
        (od.hopping(10, every=4, offset=-9), od.hopping(10, every=4, offset=3)),
        (od.tumbling(10, offset=20), od.tumbling(10)),
    ):
        assert both(per_key(one), data) == both(per_key(other), data)
    found, serials = both(per_key(od.tumbling(10, offset=7)), data)
    assert found == [("a", -3, 7, 1), ("b", -3, 7, 1), ("a", 7, 17, 1), ("c", 17, 27, 1)]
    assert serials == [3, 3, 4, 4]


@pytest.mark.parametrize("offset", [2**62, 2**63 - 2, -1])
def test_windows_as_long_as_time(offset):
    """What is behind a start, and an offset, are no more than 64 bits together."""
    for time in (-(2**63) + 1, -(2**62) - 1, -1, 0, 2**62, 2**63 - 2):
        both(per_key(od.tumbling(2**63 - 1, offset=offset)), number_rows((time, "a", 1)))
        both(per_key(od.hopping(2**63 - 1, every=2**63 - 1, offset=offset)), number_rows((time, "a", 1)))


def test_a_state_moves_on_and_a_damaged_one_is_refused():
    data = times("us", "America/Havana", 60)
    pipeline = windowed(data, od.calendar("1d"), name="days")
    expected = run_serial(pipeline, data).rows
    with Segment(pipeline, workers=0) as segment:
        segment.push(data.slice(0, 30))
        state = segment.state_of("days")
        early = [tuple(row.values()) for batch in segment.batches for row in batch.to_pylist()]
    with Segment(pipeline, workers=0) as segment:
        segment.install({"days": state})
        segment.push(data.slice(30))
        late = [tuple(row.values()) for batch in segment.batches for row in batch.to_pylist()]
    assert early + late == expected[: len(early + late)]
    assert late
    (one, *_) = state.to_pylist()
    for change in ("start", "last"):
        other = {**one, change: one[change] + datetime.timedelta(days=2, hours=1)}
        with Segment(pipeline, workers=0) as segment, pytest.raises(od.PlanError, match="starts elsewhere"):
            segment.install({"days": pa.Table.from_pylist([other], state.schema)})


def test_behind_a_reorder():
    data = times("us", "Europe/Berlin", 200)
    rnd = random.Random(5)
    mixed = data.take(sorted(range(200), key=lambda i: i + rnd.random() * 3))
    ordered = od.Pipeline(data.schema).reorder("ts", slack="4d")
    pipeline = ordered.key_by("k").window(od.calendar("1w"), time="ts").aggregate(n=od.count())
    assert "closed by the clock that leaves" in pipeline.explain()
    expected = run_serial(pipeline, mixed)
    agree(pipeline, expected, run_core(pipeline, mixed, workers=2, chunk_rows=3))
    assert len({serial for serial, _ in expected.tags}) > 2


def test_what_is_refused():
    dated = od.Pipeline(pa.schema({"ts": pa.timestamp("us"), "k": pa.string()})).key_by("k").window
    plain = od.Pipeline(NUMBERS).key_by("k").window
    for window, kind, message in (
        (dated, od.calendar("2mo"), "one of '1d', '1w', '1mo', '1q', '1y', got '2mo'; windows of another"),
        (dated, od.calendar(5), "got 5"),
        (dated, od.calendar(None), "got None"),
        (dated, od.calendar(["1d"]), r"got \['1d'\]"),
        (dated, od.tumbling("1mo", offset="1d"), "windows of the calendar take no offset, got '1d'"),
        (dated, od.session("1mo"), "session: '1mo' is an interval of the calendar"),
        (dated, od.hopping("1y", every="1d"), "hopping: '1y' is an interval of the calendar"),
        (dated, od.rolling("1q"), "rolling: '1q' is an interval of the calendar"),
        (dated, od.tumbling("1d", offset="x"), "tumbling: offset"),
        (dated, od.hopping("1d", every="1h", offset=1.5), "hopping: offset"),
        (plain, od.tumbling(10, offset="1h"), "has no unit of time"),
    ):
        with pytest.raises(od.PlanError, match=message):
            window(kind, time="ts").aggregate(n=od.count())
    with pytest.raises(od.SchemaError, match="'ts' must be a timestamp or a date, it is int64"):
        plain(od.calendar("1d"), time="ts").aggregate(n=od.count())
    nowhere = pa.schema({"ts": pa.timestamp("us", "Nowhere/City"), "k": pa.string()})
    with pytest.raises(od.SchemaError, match="Nowhere/City"):
        od.Pipeline(nowhere).key_by("k").window(od.calendar("1d"), time="ts").aggregate(n=od.count())


@pytest.mark.parametrize("interval", ["1d", "1w", "1mo", "1q", "1y"])
@pytest.mark.parametrize("year", [1, 1890, 2150, 9999])
def test_utc_has_the_years_of_a_column_without_a_zone(interval, year):
    """Its months went from 1900 to 2100, its days everywhere."""
    at = pa.array([datetime.datetime(year, 5, 17, 3)], pa.timestamp("us"))
    count = at.cast(pa.int64())[0].as_py()
    for zone in (None, "UTC"):
        data = pa.table({"ts": at.cast(pa.timestamp("us", zone))})
        window = od.Pipeline(data.schema).window(od.calendar(interval), time="ts")
        found = window.aggregate(n=od.count()).run(data).table
        start, end = (found[name].cast(pa.int64()).to_pylist()[0] for name in ("start", "end"))
        assert start <= count < end
        assert start % (86_400 * 10**6) == end % (86_400 * 10**6) == 0
