"""Every keyed operator counts the strings of its keys among the bytes of its state, once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od

KEYS, SIZE = 4_000, 400

OPERATORS = {
    "count": lambda keyed: keyed.count(),
    "count of windows": lambda keyed: keyed.count(window=10, time="t"),
    "scan": lambda keyed: keyed.scan(n=od.sum("t")),
    "aggregate": lambda keyed: keyed.aggregate(n=od.sum("t")),
    "lag": lambda keyed: keyed.lag({"before": "t"}),
    "forward_fill": lambda keyed: keyed.forward_fill("t"),
    "fill_gaps": lambda p: p.window(od.tumbling(9), time="t", fill_gaps=True).aggregate(n=od.count()),
    "assert_ordered": lambda keyed: keyed.assert_ordered("t"),
    "sessionize": lambda keyed: keyed.sessionize("t", timeout=5),
    "sessionize, lists": lambda keyed: keyed.sessionize("t", 5, ["t"]),
    "pair_up": lambda keyed: keyed.pair_up("t"),
    "preceding": lambda keyed: keyed.preceding(3, ["t"]),
    "top_k": lambda keyed: keyed.top_k(3, by="t"),
    "top_values": lambda keyed: keyed.top_values("t", 3),
    "regression": lambda keyed: keyed.regression("t", "t"),
    "process": lambda keyed: keyed.process(nothing, schema={"n": int}, state={"n": int}),
    "compiled": lambda keyed: keyed.process(nothing, schema={"n": int}, state={"n": int}, compiled=True),
}


def nothing(row, state, emit):
    state.n += 1


def state_bytes(build, size):
    keys = [f"{n:0{size}}" for n in range(KEYS)]
    data = pa.table({"k": keys, "t": np.arange(KEYS)})
    built = build(od.Pipeline(data.schema).key_by("k", buckets=4))
    return built.run(data, workers=0).report.operators[-1].state_bytes


@pytest.mark.parametrize("name", OPERATORS)
def test_the_strings_of_keys_count_once(name):
    if name == "compiled":
        pytest.importorskip("numba")
    more = state_bytes(OPERATORS[name], SIZE) - state_bytes(OPERATORS[name], 4)
    twice = name in ("top_k", "top_values")  # a row that is kept has its key; each key is in two maps
    kept = KEYS * SIZE * (1 + twice)
    assert 0.95 * kept < more < 1.5 * kept  # blocks of memory are larger than what lies in them
