"""Pairs with an anchor, and pair_up."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import QUICK, ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)


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


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("column", ["i", "j", "u", "x", "f"])
@FEW
@given(rows=ROWS)
def test_pair_up_equals_the_reference(column, on_error, rows):
    check(
        pipeline()
        .key_by("b")
        .pair_up(column, carry=["s", "l", "i"], left="p", right="q", on_error=on_error),
        rows,
    )


@FEW
@given(rows=ROWS)
def test_pair_up_by_two_columns(rows):
    check(pipeline().key_by("s", "j").pair_up("i", on_error="skip"), rows)


def test_pair_up_with_many_values():
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32())])
    rows = [(i % 2, (i * 37) % 101) for i in range(260)]
    check(od.Pipeline(schema).key_by("k").pair_up("v", carry=["k"]), rows, schema)


def test_pair_up_by_hand():
    data = pa.table({"t": [1, 1, 2, 1, 1], "item": [5, 3, 9, 5, 4], "w": [0, 0, 1, 2, 3]})
    result = run_serial(od.Pipeline(data.schema).key_by("t").pair_up("item", carry=["w"]), data)
    assert result.rows == [(0, 3, 5), (3, 4, 5), (3, 3, 4)]
    assert result.tags == [(2, 0), (5, 0), (5, 1)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.key_by("i").pair_up("s"), "'s' must be a number"),
        (lambda p: p.key_by("i").pair_up("j", left="right"), "duplicate column name"),
        (lambda p: p.key_by("i").pair_up("j", carry=["nope"]), "nope"),
        (lambda p: p.pair_up("j"), "pair_up"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises((od.OrdstreamError, AttributeError), match=message):
        build(pipeline())
