"""Dates and times as text: what is put together of columns is what Arrow writes one by one."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.expressions import written_times
from ordstream.testing import run_serial

LETTERS = "aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyY%"
QUICK = "YyCmdHMSFTXRDxbhapIent%"
SPANS = [
    (-62_167_219_200 - 10**6, 253_402_300_800 + 10**6),
    (-62_167_219_200, 253_402_300_799),
    (0, 2 * 10**9),
]
ZONES = ["UTC", "Etc/UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "+05:30", "-03:00",
         "Africa/Monrovia"]  # fmt: skip


def drawn(random_, least, most, n):
    return [
        random_.choice([None, random_.randint(least, most), random_.randint(least, most)]) for _ in range(n)
    ]


def counts(seconds, type_):
    """The seconds as counts of a type's unit."""
    if pa.types.is_date32(type_):
        return pa.array([None if one is None else one // 86_400 for one in seconds], pa.int32()).view(type_)
    if pa.types.is_date64(type_):
        days = [None if one is None else one // 86_400 * 86_400_000 for one in seconds]
        return pa.array(days, pa.int64()).view(type_)
    return pa.array(seconds, pa.int64()).view(type_)


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.date32(), pa.date64()])
def test_formats_are_written_as_arrow_does(type_):
    random_ = random.Random(str(type_))
    for _ in range(400):
        letters = QUICK if random_.random() < 0.7 else LETTERS
        pieces = (random_.choice([f"%{random_.choice(letters)}", "é", "-", " x"]) for _ in range(6))
        format_ = "".join(pieces)
        values = counts(drawn(random_, *random_.choice(SPANS), random_.choice([1, 15, 16, 40])), type_)
        found, expected = written_times.written_by(values, format_), pc.strftime(values, format=format_)
        there = values.is_valid()
        assert found.filter(there).to_pylist() == expected.filter(there).to_pylist(), format_


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_offsets_are_written_as_arrow_does(unit):
    random_ = random.Random(unit)
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    for _ in range(200):
        least, most = random_.choice([(-3 * 10**9, 2 * 10**9), (0, 10**9), (-9 * 10**9, 9 * 10**9)])
        given = drawn(random_, least * ticks, most * ticks, random_.choice([1, 16, 40]))
        values = pa.array(given, pa.int64()).view(pa.timestamp(unit, random_.choice(ZONES)))
        assert written_times.with_offset(values).equals(values.cast(pa.large_string())), values.type


@pytest.mark.parametrize("day", [-719_529, -719_528, 2_932_896, 2_932_897])
def test_days_at_the_ends_of_four_digits(day):
    values = pa.array([day] * 20, pa.int32()).view(pa.date32())
    expected = written_times._STRFTIME.call([values], pc.StrftimeOptions("%Y-%m-%d"))
    assert written_times.written_by(values, "%Y-%m-%d").to_pylist() == expected.to_pylist()


def test_everyday_formats_are_not_written_one_by_one(monkeypatch):
    """0.9 us a row, where Polars takes 0.1."""
    asked = []
    real = written_times._STRFTIME

    class Spy:
        def call(self, arguments, options):
            asked.append(len(arguments[0]))
            return real.call(arguments, options)

    data = pa.table({"t": pa.array(range(0, 5_000 * 86_399_000_000, 86_399_000_000), pa.timestamp("us"))})
    zoned = pa.table({"t": data["t"].cast(pa.timestamp("us", "Europe/Berlin"))})
    for table in (data, zoned):
        for format_ in ("%Y-%m-%d", "%d/%b/%Y:%H:%M:%S", "%a %I:%M %p", "%F %T"):
            pipeline = od.Pipeline(table.schema).select(a=od.col("t").dt.strftime(format_))
            expected = run_serial(pipeline, table).table
            with monkeypatch.context() as patch:
                patch.setattr(written_times, "_STRFTIME", Spy())
                assert pipeline.run(table, chunk_rows=1_000, workers=0).table.equals(expected)
    assert asked == []
    pipeline = od.Pipeline(zoned.schema).select(a=od.col("t").cast(str))
    assert pipeline.run(zoned, chunk_rows=1_000).table.equals(run_serial(pipeline, zoned).table)


@pytest.mark.parametrize("format_", ["%EY", "%EC", "%Ed", "%Om%Y", "%%EY", "%Ex"])
def test_letters_with_a_modifier_are_the_same_in_few_rows_and_in_many(format_):
    """Of the year 1 the C++ library writes `%EY` as 1, and `%Y` as 0001."""
    days = pa.array(range(-719_162, -719_142), pa.int32()).cast(pa.date32())
    for values in (days, days.cast(pa.timestamp("s"))):
        data = pa.table({"t": values})
        pipeline = od.Pipeline(data.schema).select(v=od.col("t").dt.strftime(format_))
        expected = pc.strftime(values, format_).to_pylist()
        assert run_serial(pipeline, data).table["v"].to_pylist() == expected
        for chunk_rows in (1, 64):
            assert pipeline.run(data, chunk_rows=chunk_rows).table["v"].to_pylist() == expected
