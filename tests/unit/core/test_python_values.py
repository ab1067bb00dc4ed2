"""Values between chunks and Python: reading, strict writing."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from value_columns import COLUMNS

from ordstream._core.lab.testing_udf import read_rows, write_rows
from ordstream.ground.types import to_storage

I64 = pa.int64()


class TestValues:
    @pytest.mark.parametrize("name", COLUMNS)
    @pytest.mark.parametrize("nulls", [False, True])
    def test_read_as_to_pylist_and_written_back(self, name, nulls):
        type_, values = COLUMNS[name]
        values = [*values, None, values[0]] if nulls else values
        schema = pa.schema({"c": type_})
        data = pa.record_batch([pa.array(values, type_)], schema=schema)
        expected = data.column(0).to_pylist()
        assert [row.c for row in read_rows(schema, data)] == expected
        every_second = list(range(0, len(values), 2))
        assert [row.c for row in read_rows(schema, data, select=every_second)] == expected[::2]
        written, error = write_rows(schema, [(value,) for value in expected])
        assert error is None
        assert [row[0] for row in written] == expected

    @pytest.mark.parametrize("name", COLUMNS)
    def test_storage_values(self, name):
        type_, values = COLUMNS[name]
        schema = pa.schema({"c": type_})
        data = pa.record_batch([pa.array(values, type_)], schema=schema)
        stored = [to_storage(value, type_, "c") for value in data.column(0).to_pylist()]
        assert [row.c for row in read_rows(schema, data, storage=True)] == stored

    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            (pa.int64(), 1.0), (pa.int64(), True), (pa.int64(), "1"), (pa.int64(), 2**63), (pa.int8(), 128),
            (pa.uint8(), -1), (pa.uint64(), -1), (pa.uint64(), 2**64), (pa.float64(), "1"),
            (pa.float64(), True), (pa.float64(), 2**53 + 1), (pa.float32(), 2**24 + 1), (pa.bool_(), 1),
            (pa.string(), b"a"), (pa.string(), "\ud800"), (pa.binary(), "a"), (pa.date32(), "2020-01-01"),
            (pa.list_(pa.int8()), [300]), (pa.list_(pa.int8()), 3), (pa.decimal128(4, 1), 1.5),
        ],
    )  # fmt: skip
    def test_strict(self, type_, value):
        """As `to_storage`: nothing is truncated, wrapped or guessed."""
        written, error = write_rows(pa.schema({"c": type_}), [(None,), (value,)])
        assert written == [(None,)]
        with pytest.raises(type(error)):
            to_storage(value, type_, "c")

    @pytest.mark.parametrize(
        ("type_", "value", "stored"),
        [
            (pa.int64(), np.int32(7), 7), (pa.float64(), 3, 3.0), (pa.float64(), np.float32(0.5), 0.5),
            (pa.float32(), 0.1, float(np.float32(0.1))), (pa.float32(), 1e300, float("inf")),
            (pa.bool_(), np.bool_(True), True), (pa.string(), np.str_("a"), "a"),
            (pa.binary(), bytearray(b"a"), b"a"), (pa.date32(), 1, datetime.date(1970, 1, 2)),
            (pa.uint64(), 2**64 - 1, 2**64 - 1), (pa.list_(pa.int8()), (1, 2), [1, 2]),
            (pa.list_(pa.int8()), np.array([3], "i1"), [3]),
        ],
    )  # fmt: skip
    def test_accepted(self, type_, value, stored):
        assert write_rows(pa.schema({"c": type_}), [(value,)]) == ([(stored,)], None)

    def test_not_nullable(self):
        schema = pa.schema([pa.field("c", I64, nullable=False)])
        written, error = write_rows(schema, [(1,), (None,)])
        assert written == [(1,)]
        assert "without nulls" in str(error)

    def test_many_rows_keep_their_nulls(self):
        values = [None if i % 7 == 3 else f"v{i}" for i in range(5000)]
        written, _ = write_rows(pa.schema({"c": pa.string()}), [(v,) for v in values])
        assert [row[0] for row in written] == values

    def test_shapes_of_a_result(self):
        schema = pa.schema({"a": I64, "b": pa.string()})
        assert write_rows(schema, [(1, "x"), [2, "y"], {"b": "z", "a": 3}])[0] == [
            (1, "x"),
            (2, "y"),
            (3, "z"),
        ]
        for wrong in [(1,), (1, "x", 2), {"a": 1}, {"a": 1, "b": "", "c": 0}, 5, None, "ab"]:
            assert write_rows(schema, [wrong])[1] is not None
