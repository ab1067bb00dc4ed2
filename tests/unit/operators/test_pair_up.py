"""pair_up: each value of a key with those before it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("column", ["i", "j", "u", "x", "f"])
@FEW
@given(rows=ROWS)
@pytest.mark.thin(5)
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
