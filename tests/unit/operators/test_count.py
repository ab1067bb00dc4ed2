"""count without a window, by keys of every type."""

from __future__ import annotations

import pytest
from hypothesis import given
from unit.kernel_check import QUICK, ROWS, check, pipeline

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
