"""od.union(how="diagonal"): columns that some of the pipelines have not."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

TABLE = pa.table(
    {
        "k": [1, 2, 3, 4],
        "a": ["x", None, "y", "z"],
        "b": [True, None, False, True],
        "d": [decimal.Decimal("1.5"), None, None, decimal.Decimal("2.0")],
        "l": [[1], None, [2, None], []],
        "t": pa.array([["a"], None, [None], []], pa.list_(pa.string())),
        "s": [{"p": 1}, None, {"p": 2}, {"p": None}],
    }
)
SOURCE = od.Pipeline(TABLE.schema)
TYPES = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary(4), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"),
    pa.timestamp("s"), pa.timestamp("ns", "Asia/Tokyo"), pa.duration("ms"), pa.decimal128(20, 3),
    pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.dictionary(pa.int32(), pa.string()), pa.null(),
    pa.list_(pa.int32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2), pa.list_view(pa.int64()),
    pa.list_(pa.struct({"a": pa.int8()})), pa.map_(pa.string(), pa.int8()),
]  # fmt: skip


@pytest.mark.parametrize("name", TABLE.schema.names[1:])
@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2, "chunk_rows": 1}], ids=str)
def test_a_column_that_is_missing_is_null(name, options):
    large, small = SOURCE.branch(od.col("k") > 2)
    both = od.union(large.select("k", name), small.select("k"), how="diagonal")
    found = both.run(TABLE, **options).table
    assert found.equals(run_serial(both, TABLE).table)
    values = TABLE[name].to_pylist()
    assert found.to_pydict() == {"k": [1, 2, 3, 4], name: [None, None, *values[2:]]}


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_of_any_type(type_):
    table = pa.table({"k": [1, 2], "x": pa.nulls(2, type_)})
    source = od.Pipeline(table.schema)
    both = od.union(source.select("k"), source.select("k", "x"), how="diagonal")
    assert both.schema == source.schema
    assert both.run(table).table.equals(run_serial(both, table).table)


def test_columns_come_as_they_are_first_met():
    one, other = SOURCE.select("a", "k"), SOURCE.select("k", "b", "a")
    both = od.union(one, other, how="diagonal")
    assert both.schema.names == ["a", "k", "b"]
    assert both.run(TABLE).table.to_pylist()[:2] == [
        {"a": "x", "k": 1, "b": None},
        {"a": "x", "k": 1, "b": True},
    ]


def test_two_sources_of_other_columns():
    clicks, orders = (od.Pipeline(schema, source=name) for name, schema in {
        "clicks": {"ts": pa.int64(), "page": pa.string()},
        "orders": {"ts": pa.int64(), "amount": pa.float32()},
    }.items())  # fmt: skip
    data = {
        "clicks": pa.table({"ts": [1, 4], "page": ["a", "b"]}),
        "orders": pa.table({"ts": [2, 3], "amount": pa.array([0.5, 1.5], pa.float32())}),
    }
    found = od.union(clicks, orders, how="diagonal").run(data, merge_by="ts").table
    assert found.to_pydict() == {
        "ts": [1, 2, 3, 4],
        "page": ["a", None, None, "b"],
        "amount": [None, 0.5, 1.5, None],
    }
    assert found.schema.field("amount").type == pa.float32()


def test_columns_of_one_name_have_one_type():
    with pytest.raises(od.SchemaError, match=r"'k' is string in one pipeline and int64 in another: .*cast"):
        od.union(SOURCE.select(k="a"), SOURCE.select("k"), how="diagonal")


def test_what_else_is_refused():
    with pytest.raises(od.PlanError, match="how is one of 'vertical', 'diagonal', got 'horizontal'"):
        od.union(SOURCE, SOURCE, how="horizontal")
    with pytest.raises(od.SchemaError, match="how='diagonal'"):
        od.union(SOURCE, SOURCE.select("k"))


@pytest.mark.parametrize(
    "type_", [pa.int32(), pa.float32(), pa.large_string(), pa.list_(pa.int64())], ids=str
)
def test_a_null_has_the_type_that_it_is_cast_to(type_):
    found = od.Pipeline({"k": pa.int64()}).with_columns(x=od.lit(None).cast(type_))
    assert found.schema.field("x").type == type_
    assert found.run(pa.table({"k": [1]})).table["x"].to_pylist() == [None]
