"""What functions return, written without an array of Arrow's for each value."""

from __future__ import annotations

import datetime
import decimal
import random

import pyarrow as pa
import pytest
from value_columns import COLUMNS

import ordstream as od
from ordstream._core.lab.testing_udf import write_rows
from ordstream._core.state import python_values
from ordstream.ground.types import from_storage, to_storage
from ordstream.testing import run_serial

D = decimal.Decimal
DAY = datetime.date(2024, 2, 29)
#: More types: those that are made of others, and what has odd sizes.
MORE = {
    "wide": (pa.decimal128(30, 2), [D("123456789012345678901234567.50"), D("-0.01"), D(0)]),
    "money": (pa.decimal128(12, 2), [D("1.25"), D(-7), D("9999999999.99")]),
    "deep": (pa.list_(pa.list_(pa.int16())), [[[1], None, [None, -2]], []]),
    "structs": (
        pa.list_(pa.struct({"x": pa.bool_(), "y": pa.date32()})),
        [[{"x": True, "y": DAY}, None], []],
    ),
    "of struct": (
        pa.struct({"a": pa.struct({"b": pa.decimal128(9, 1)})}),
        [{"a": {"b": D(1)}}, {"a": None}],
    ),
    "times": (
        pa.struct({"t": pa.time64("us"), "d": pa.date64(), "n": pa.uint64()}),
        [{"t": datetime.time(1, 2, 3, 4), "d": DAY, "n": 2**64 - 1}],
    ),
    "of maps": (pa.map_(pa.int32(), pa.list_(pa.string())), [{1: ["a", None], -2: None}, [(3, [])], {}]),
    "long": (pa.list_(pa.string()), [["x" * 5_000, "é" * 700], ["y"] * 900]),
    "many": (pa.list_(pa.int64()), [list(range(3_000)), [None] * 600, [1, None]]),
    "three texts": (pa.list_(pa.string(), 3), [["a", None, "c"]]),
    "three bools": (pa.list_(pa.bool_(), 3), [[True, None, False]]),
    "empty": (pa.struct([]), [{}]),
    "singles": (pa.struct({"f": pa.float32(), "g": pa.float16()}), [{"f": 0.1, "g": 0.5}]),
}
ALL = {**COLUMNS, **MORE}
#: What does not fit, or is no value of the usual classes: `to_storage` says what becomes of it.
ODD = [
    (pa.list_(pa.string()), ["a", 1]), (pa.list_(pa.string()), "ab"), (pa.list_(pa.string()), ["\ud800"]),
    (pa.list_(pa.int8()), [300]), (pa.list_(pa.int8()), [1.0]), (pa.struct({"a": pa.int8()}), {"a": 128}),
    (pa.struct({"a": pa.int8()}), {"b": 1}), (pa.struct({"a": pa.int8()}), {"a": 1, "b": 1}),
    (pa.struct({"a": pa.int8()}), {}), (pa.struct({"a": pa.int8()}), [1]), (pa.binary(2), b"abc"),
    (pa.struct([pa.field("a", pa.int8(), nullable=False)]), {"a": None}), (pa.list_(pa.int8(), 2), [1]),
    (pa.map_(pa.string(), pa.int8()), {None: 1}), (pa.map_(pa.string(), pa.int8()), [("a",)]),
    (pa.decimal128(4, 1), D("1.25")), (pa.decimal128(30, 1), D("NaN")), (pa.decimal128(30, 1), D("1e40")),
    (pa.time32("s"), datetime.time(1, 2, 3, 4)), (pa.time64("us"), datetime.time(1, tzinfo=datetime.UTC)),
    (pa.date64(), datetime.datetime(2020, 1, 1, 5)), (pa.float64(), 2**53 + 1), (pa.float32(), 2**24 + 1),
    (pa.list_(pa.float32()), [True]),
    (pa.timestamp("us"), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
]  # fmt: skip


def stored(value, type_):
    """What `to_storage` makes of a value, in Python's objects."""
    return from_storage([to_storage(value, type_, "c")], type_)[0].as_py()


@pytest.mark.parametrize("name", ALL)
def test_as_to_storage_has_it(name):
    type_, values = ALL[name]
    random_ = random.Random(name)
    values = [None, *values, *(random_.choice([None, *values]) for _ in range(20))]
    written, error = write_rows(pa.schema({"c": type_}), [(value,) for value in values])
    assert error is None
    assert [row[0] for row in written] == [stored(value, type_) for value in values]


@pytest.mark.parametrize(("type_", "value"), ODD)
def test_what_does_not_fit_has_the_same_error(type_, value):
    with pytest.raises((TypeError, ValueError, OverflowError)) as expected:
        to_storage(value, type_, "c")
    written, error = write_rows(pa.schema({"c": type_}), [(None,), (value,)])
    assert written == [(None,)]
    assert (type(error), str(error)) == (type(expected.value), str(expected.value))


@pytest.mark.parametrize("name", sorted(set(ALL) - {"half", "empty", "singles", "u64", "times"}))
def test_no_value_is_made_by_arrow(name, monkeypatch):
    """A list of texts took 24 us, a struct 34, a decimal 8, a time of day 14."""
    type_, values = ALL[name]

    def refused(*_):
        raise AssertionError("one by one")

    monkeypatch.setattr(python_values, "to_storage", refused)
    written, error = write_rows(pa.schema({"c": type_}), [(value,) for value in values])
    assert error is None
    assert len(written) == len(values)


def test_functions_give_what_run_serial_gives():
    """Also under "skip", where one value of some does not fit, and one by one."""
    data = pa.table({"i": range(500)})
    schema = pa.schema(
        {"tags": pa.list_(pa.string()), "s": pa.struct({"a": pa.int8(), "b": pa.string()}),
         "m": pa.map_(pa.string(), pa.decimal128(20, 2)), "t": pa.time64("us"), "f": pa.float32(),
         "l": pa.list_(pa.timestamp("us"))}
    )  # fmt: skip

    def made(row):
        i = row.i
        tags = [f"t{i}"] * (i % 4) if i % 7 else None
        part = {"b": None if i % 5 else "é" * (i % 9), "a": i}
        when = datetime.datetime(2024, 1, 1) + datetime.timedelta(i)
        of = {"x": D(i) / 4, "y": None}
        return (
            tags,
            part,
            of if i % 3 else list(of.items()),
            datetime.time(i % 24),
            i / 3,
            [when, None][: i % 3],
        )

    pipelines = [
        od.Pipeline(data.schema).map(made, schema=schema, on_error="skip"),
        od.Pipeline(data.schema).flat_map(
            lambda row: [made(row)] * (row.i % 3), schema=schema, on_error="skip"
        ),
        od.Pipeline(data.schema).map(
            lambda row: dict(zip(schema.names, made(row), strict=True)), schema=schema, on_error="skip"
        ),
    ]
    for pipeline in pipelines:
        serial = run_serial(pipeline, data)
        assert len(serial.skipped) > 0
        for options in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 64}, {}):
            assert pipeline.run(data, **options).table.equals(serial.table)
