"""scan: running aggregations, beside the columns of the tuple."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kernel_check import ROWS, check, pipeline

import ordstream as od

AGGREGATES = {
    "si": od.sum("i"),
    "sj": od.sum("j"),
    "sx": od.sum("x"),
    "sf": od.sum("f"),
    "su": od.sum("u"),
    "lo": od.min("i"),
    "hi": od.max("x"),
    "lf": od.min("f"),
    "hu": od.max("u"),
    "lu": od.min("u"),
    "n": od.count(),
    "ni": od.count("s"),
    "fi": od.first("b"),
    "la": od.last("j"),
    "lx": od.last("f"),
    "mj": od.mean("j"),
    "mx": od.mean("x"),
}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("keyed", [True, False])
@settings(max_examples=120, deadline=None)
@given(rows=ROWS, names=st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=6, unique=True))
@pytest.mark.thin(2)
def test_scan_equals_the_reference(on_error, keyed, rows, names):
    start = pipeline().key_by("s") if keyed else pipeline()
    check(start.scan(on_error=on_error, **{name: AGGREGATES[name] for name in names}), rows)
