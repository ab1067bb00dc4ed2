"""count without a window, by keys of every type."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from unit.kernel_check import QUICK, ROWS, check, pipeline

import ordstream as od

KEYS = [("i",), ("j",), ("u",), ("x",), ("f",), ("b",), ("s",), ("s", "j"), ("x", "b", "u")]


@pytest.mark.parametrize("key", KEYS, ids=",".join)
@pytest.mark.parametrize("emit", ["updates", "final"])
@QUICK
@given(rows=ROWS)
@pytest.mark.thin(9)
def test_count_equals_the_reference(key, emit, rows):
    check(pipeline().key_by(*key).count(emit=emit), rows)


@pytest.mark.parametrize("emit", ["updates", "final"])
@QUICK
@given(rows=ROWS)
def test_count_without_a_key(emit, rows):
    check(pipeline().count(emit=emit), rows)


def test_name_is_that_of_the_operator():
    """It named the output column, and a column given beside it was lost."""
    keyed = od.Pipeline(pa.schema([("k", pa.int64())])).key_by("k")
    for built, column in ((keyed.count("c", name="m"), "c"), (keyed.count(name="m"), "count")):
        assert built.schema.names == ["k", column]
        assert built.plan.operators[-1].name == "m"
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'operator'.*; the call is count\("):
        keyed.count(operator="m")
