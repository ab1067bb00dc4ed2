"""pairs, with and without an anchor."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import QUICK, ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)


@QUICK
@given(rows=ROWS)
def test_pairs_equal_the_reference(rows):
    check(pipeline().flat_map(od.pairs("l", carry=["s", "j"])), rows)
    check(pipeline().flat_map(od.pairs("k")), rows)


def test_pairs_of_a_long_list():
    schema = pa.schema([("l", pa.list_(pa.int32()))])
    rows = [([*range(200), 5, 3],), (None,), ([4, 4],)]
    check(od.Pipeline(schema).flat_map(od.pairs("l")), rows, schema)


@pytest.mark.parametrize("anchor", [0, 2, -(2**63), 77])
@QUICK
@given(rows=ROWS)
def test_anchored_pairs_equal_the_reference(anchor, rows):
    check(pipeline().flat_map(od.pairs("l", carry=["s", "j"], anchor=anchor)), rows)


@pytest.mark.parametrize("anchor", [0.0, -0.0, 1.5, math.nan, math.inf])
@FEW
@given(rows=ROWS)
def test_anchored_pairs_of_floats(anchor, rows):
    check(pipeline().flat_map(od.pairs("k", anchor=anchor, carry=["b"])), rows)


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.uint16(), pa.float32(), pa.bool_(), pa.date32(), pa.uint64()], ids=str
)
def test_anchors_of_other_types(type_):
    schema = pa.schema([("l", pa.list_(type_))])
    one, zero = (True, False) if type_ == pa.bool_() else (1, 0)
    rows = [([one, zero, one],), ([zero],), (None,), ([],), ([one, one],), ([zero, one, zero, zero, one],)]
    check(od.Pipeline(schema).flat_map(od.pairs("l", anchor=one)), rows, schema)


def test_anchored_pairs_by_hand():
    data = pa.table({"l": [[3, 1, 2, 1], [1], [2, 3], [1, 9]]})
    built = od.Pipeline(data.schema).flat_map(od.pairs("l", anchor=1))
    assert run_serial(built, data).rows == [(2, 1), (3, 1), (9, 1)]
    with pytest.raises(od.SchemaError, match="anchor"):
        od.Pipeline(data.schema).flat_map(od.pairs("l", anchor="x"))


def test_an_anchor_of_arrow():
    table = pa.table({"l": pa.array([[1, 3]], pa.list_(pa.timestamp("us")))})
    pipeline = od.Pipeline(table.schema).flat_map(od.pairs("l", anchor=pa.scalar(3, pa.timestamp("us"))))
    assert pipeline.run(table).table.cast(pa.schema({"left": "int64", "right": "int64"})).to_pylist() == [
        {"left": 1, "right": 3}
    ]
