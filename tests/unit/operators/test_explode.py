"""explode: a tuple per item of a list."""

from __future__ import annotations

from hypothesis import given
from unit.kernel_check import QUICK, ROWS, check, pipeline

import ordstream as od


@QUICK
@given(rows=ROWS)
def test_explode_equals_the_reference(rows):
    check(pipeline().flat_map(od.explode("l", name="e", carry=["s", "x", "b"])), rows)
