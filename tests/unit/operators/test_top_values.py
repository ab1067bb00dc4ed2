"""top_values: the values that a key saw most often."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize(("key", "value"), [("b", "j"), ("j", "s"), ("s", "x"), ("x", "i")])
@pytest.mark.parametrize("k", [1, 3, 100])
@settings(max_examples=20, deadline=None)
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_top_values_equal_the_reference(key, value, k, emit, rows):
    check(pipeline().key_by(key).top_values(value, k, emit=emit), rows)


def test_long_lists_of_values():
    schema = pa.schema([("k", pa.int32()), ("v", pa.int64())])
    rows = [(i % 3, (i * i) % 71) for i in range(700)]
    check(od.Pipeline(schema).key_by("k").top_values("v", 40), rows, schema)


def test_top_values_by_hand():
    data = pa.table({"bought": [2, 1, 2, 2, 2], "viewed": [7, 5, 6, 6, 6]})
    result = run_serial(od.Pipeline(data.schema).key_by("bought").top_values("viewed", 1), data)
    assert result.rows == [
        *[(2, 7, 1, 1), (1, 5, 1, 1), (2, 6, 1, 1), (2, 6, 2, 1), (2, 6, 3, 1)],
        *[(1, 5, 1, 1), (2, 6, 3, 1)],
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.key_by("s").top_values("i", 0), "k must be an int of at least 1"),
        (lambda p: p.key_by("s").top_values("s", 1), "is a key column"),
        (lambda p: p.key_by("s").top_values("l", 1), "can't be a key"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())
