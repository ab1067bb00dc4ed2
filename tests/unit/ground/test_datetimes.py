"""ordstream.ground.datetimes: its objects are pyarrow's, or it leaves them to pyarrow."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.datetimes import check_parts, counter, maker, one_maker
from ordstream.testing import run_serial

ZONES = (None, "UTC", "Europe/Berlin", "America/New_York", "+02:00", "-09:30")
SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000}
#: Hours of a year around the changes of the clocks, the epoch, before it, and far away.
MOMENTS = [
    -2_208_988_800,
    -1,
    0,
    1,
    1_711_846_799,
    1_711_846_800,
    1_729_989_000,
    1_729_992_600,
    4_102_444_800,
]


def types():
    yield pa.date32()
    for unit in SECONDS:
        yield pa.duration(unit)
        yield from (pa.timestamp(unit, zone) for zone in ZONES)


def storage_of(type_, seconds):
    if type_ == pa.date32():
        return np.array([s // 86_400 for s in seconds], np.int32)
    return np.array(seconds, np.int64) * SECONDS[type_.unit]


def by_arrow(type_, storage, valid=None):
    integers = pa.array(storage, mask=None if valid is None else ~valid)
    return integers.view(type_).to_pylist()


@pytest.mark.parametrize("type_", list(types()), ids=str)
def test_objects_are_those_of_pyarrow(type_):
    storage = storage_of(type_, MOMENTS)
    valid = np.arange(len(storage)) % 3 != 1
    made = maker(type_)
    for mask in (None, valid):
        found, expected = made(storage.copy(), mask), by_arrow(type_, storage, mask)
        assert found == expected
        assert [type(value) for value in found] == [type(value) for value in expected]
        assert [getattr(value, "tzinfo", None) for value in found] == [
            getattr(value, "tzinfo", None) for value in expected
        ]
        assert [getattr(value, "fold", 0) for value in found] == [getattr(v, "fold", 0) for v in expected]
    assert made(storage[:0].copy(), None) == []


def facts(value):
    return type(value), value, getattr(value, "tzinfo", None), getattr(value, "fold", 0)


@pytest.mark.parametrize("type_", list(types()), ids=str)
def test_one_object_is_that_of_a_column(type_):
    storage = storage_of(type_, MOMENTS)
    found = [one_maker(type_)(count) for count in storage.tolist()]
    assert list(map(facts, found)) == list(map(facts, by_arrow(type_, storage)))


@pytest.mark.parametrize("type_", list(types()), ids=str)
def test_one_object_at_the_ends_is_that_of_a_column_or_left_to_pyarrow(type_):
    width = np.int32 if type_ == pa.date32() else np.int64
    seconds = (-62_135_596_800, 253_402_300_799, -(86_400 * 999_999_999), 86_400 * 1_000_000_000 - 1)
    near = [storage_of(type_, [second])[0] + step for second in seconds for step in (-1, 0, 1)]
    for count in [*map(int, near), np.iinfo(width).min, np.iinfo(width).max]:
        found = one_maker(type_)(int(count))
        if found is not None:
            assert facts(found) == facts(by_arrow(type_, np.array([count], width))[0])


@pytest.mark.parametrize("type_", list(types()), ids=str)
def test_what_no_object_holds_is_left_to_pyarrow(type_):
    made = maker(type_)
    width = np.int32 if type_ == pa.date32() else np.int64
    for value in (np.iinfo(width).min, np.iinfo(width).max):
        storage = np.array([value, 0], width)
        if type_ == pa.duration("us") and value > 0:
            assert made(storage.copy(), None) == by_arrow(type_, storage)
        else:
            assert made(storage.copy(), None) is None
        # A null slot may hold anything.
        assert made(storage.copy(), np.array([False, True])) == by_arrow(
            type_, storage, np.array([False, True])
        )


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_the_calendar_s_ends(zone):
    """In a zone they may lie outside of the calendar: then Arrow decides."""
    type_ = pa.timestamp("s", zone)
    for second in (-62_135_596_800, 253_402_300_799):
        storage = np.array([second])
        found = maker(type_)(storage.copy(), None)
        assert found is None or found == by_arrow(type_, storage)


@pytest.mark.parametrize(
    "type_", [pa.timestamp("ns"), pa.time64("us"), pa.duration("ns"), pa.int64()], ids=str
)
def test_other_types_are_arrow_s(type_):
    assert maker(type_) is None
    assert one_maker(type_)(5) is None


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone])
def test_no_call_of_python_s_per_value(zone):
    """A clock with a zone was made by `replace`, called for each value: most of what a row cost."""
    made, calls = maker(pa.timestamp("us", zone)), []
    storage = np.arange(500) * 3_600_000_000
    sys.setprofile(lambda frame, event, of: calls.append(event) if event in ("call", "c_call") else None)
    try:
        found = made(storage, None)
    finally:
        sys.setprofile(None)
    assert found == by_arrow(pa.timestamp("us", zone), storage)
    assert len(calls) < 50


@pytest.mark.parametrize("type_", list(types()), ids=str)
def test_objects_are_counted_as_pyarrow_does(type_):
    storage = storage_of(type_, MOMENTS)
    objects = by_arrow(type_, storage)
    assert [counter(type_)(value) for value in objects] == storage.tolist()


def test_what_does_not_fit_is_not_counted():
    day, clock, utc = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 67), UTC
    cases = [
        (pa.date32(), clock),
        (pa.timestamp("us"), day),
        (pa.timestamp("us"), clock.replace(tzinfo=utc)),
        (pa.timestamp("us", "UTC"), clock),
        (pa.timestamp("ms"), clock),
        (pa.timestamp("s"), clock),
        (pa.timestamp("ns"), datetime(9999, 1, 1)),
        (pa.duration("ms"), timedelta(microseconds=1)),
        (pa.duration("ns"), timedelta(days=999_999)),
        (pa.time64("us"), clock.time().replace(tzinfo=utc)),
        (pa.time64("us"), clock),
        (pa.time32("ms"), clock.time()),
        (pa.date64(), clock),
    ]
    for type_, value in cases:
        assert counter(type_)(value) is None, (type_, value)
    assert counter(pa.time64("us"))(clock.time()) == ((3 * 60 + 4) * 60 + 5) * 10**6 + 67
    assert counter(pa.time64("ns"))(clock.time()) == (((3 * 60 + 4) * 60 + 5) * 10**6 + 67) * 1_000
    assert counter(pa.time32("s"))(clock.time().replace(microsecond=0)) == (3 * 60 + 4) * 60 + 5
    assert counter(pa.date64())(day) == (day - date(1970, 1, 1)).days * 86_400_000
    assert counter(pa.timestamp("ns"))(clock) == int(np.datetime64(clock, "ns").astype(np.int64))


def test_functions_get_them():
    """With and without nulls, behind a filter that leaves some of the rows."""
    type_ = pa.timestamp("ms", "Europe/Berlin")
    column = pa.array([1_729_989_000_000, None, 0, 1_729_992_600_000], type_)
    table = pa.table({"k": [1, 2, 3, 4], "at": column})
    seen = []
    pipeline = od.Pipeline(table.schema).filter(od.col("k") != 3)
    pipeline.map(lambda row: seen.append(row.at) or row, schema=table.schema).run(table, workers=0)
    assert seen == column.take([0, 1, 3]).to_pylist()


@pytest.mark.parametrize("how", ["map", "flat_map", "process", "list"])
def test_nanoseconds_of_a_time_of_day_are_not_cut_off(how):
    """Python's time has none: a function that gave its time back lost them, silently."""
    type_ = pa.time64("ns")
    table = pa.table({"k": range(4), "at": pa.array([1_000, None, 86_399_000_001_000, 1_500], type_)})
    table = table.append_column("all", pa.array([[0], None, [1_000, None], [1]], pa.list_(type_)))
    name = "all" if how == "list" else "at"
    out = pa.schema([table.schema.field(name)])
    begun = od.Pipeline(table.schema)
    pipeline = {
        "map": lambda: begun.map(lambda row: (row.at,), schema=out),
        "flat_map": lambda: begun.flat_map(lambda row: [(row.at,)], schema=out),
        "process": lambda: begun.key_by("k").process(lambda row, _, emit: emit(row.at), schema=out),
        "list": lambda: begun.map(lambda row: (row.all,), schema=out),
    }[how]()
    assert pipeline.run(table.slice(0, 3)).table.equals(table.slice(0, 3).select([name]))
    assert "failed at serial 4: ValueError" in str(run_serial(pipeline, table).error)
    for rows in (1, 7):
        with pytest.raises(od.OperatorError, match=r"serial 4: ValueError: the time of day 00:00:00\.0000"):
            pipeline.run(table, workers=0, chunk_rows=rows)


def parts_of_day(counts):
    """Values that have times of day inside."""
    flat = pa.array(counts, pa.time64("ns"))
    ends = pa.array([0, *range(1, len(counts) + 1)], pa.int32())
    lists = pa.ListArray.from_arrays(ends, flat)
    return {
        "struct": pa.StructArray.from_arrays([flat], ["at"]),
        "lists of lists": pa.ListArray.from_arrays(ends, lists),
        "fixed": pa.FixedSizeListArray.from_arrays(flat, 1),
        "map": pa.MapArray.from_arrays(ends, pa.array(["a"] * len(counts)), flat),
        "struct of lists": pa.StructArray.from_arrays([lists], ["all"]),
    }


@pytest.mark.parametrize("name", parts_of_day([0]))
@pytest.mark.parametrize("by", ["map", "inspect"])
def test_nanoseconds_inside_of_a_value_are_not_cut_off(name, by):
    """Functions got them without; of a list of lists `run_serial` could not even say so."""
    good, bad = (parts_of_day([0, last])[name] for last in (86_399_000_001_000, 1_500))
    begun = od.Pipeline(pa.schema({"x": good.type}))
    seen = []
    if by == "map":
        pipeline = begun.map(lambda row: seen.append(row.x) or (row.x,), schema=begun.schema)
    else:
        pipeline = begun.inspect(lambda row: seen.append(row.x))
    table = pa.table({"x": good})
    assert pipeline.run(table).table.equals(table)
    assert seen == good.to_pylist()
    assert run_serial(pipeline, table).table.equals(table)
    for rows in (1, 7):
        with pytest.raises(od.OperatorError, match=r"serial 2: ValueError: the time of day 00:00:00\.0000"):
            pipeline.run(pa.table({"x": bad}), workers=0, chunk_rows=rows)
    unread = begun.head(2).run(pa.table({"x": bad})).table["x"].combine_chunks()
    assert unread.equals(bad)
    with pytest.raises(ValueError, match="has nanoseconds"):  # what it holds are Python's values
        run_serial(begun, pa.table({"x": bad}))


def test_nanoseconds_in_a_map_are_those_of_the_rows_that_there_are():
    """Arrow gives the keys and items of a whole array for a slice of it."""
    times = pa.array([1_000, 1, 2_000], pa.time64("ns"))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), times)
    for part in (maps.slice(0, 1), maps.slice(2), maps.slice(1, 0)):
        check_parts(part)
    with pytest.raises(ValueError, match="nanoseconds"):
        check_parts(maps.slice(1, 1))
