"""Medians and quantiles of so many values that they lie in blocks (_core/state/sorted_words.hpp)."""

from __future__ import annotations

import bisect
import math
import random
import time

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema({"k": pa.int64(), "ts": pa.int64(), "x": pa.float64()})
CALLS = {"half": od.median("x"), "tenth": od.quantile("x", 0.1), "most": od.quantile("x", 1)}


def values_of(kind, n):
    rng = random.Random(kind)
    if kind == "equal":
        return [rng.choice([0.0, -0.0, 1.5, math.nan]) for _ in range(n)]
    if kind == "ascending":
        return [i / 4 for i in range(n)]
    if kind == "descending":
        return [-i / 4 for i in range(n)]
    return [rng.choice([None, rng.random(), float(rng.randrange(9)), -math.inf]) for _ in range(n)]


def table(kind, n=9_000):
    # the window empties at once behind two thirds, so that what lay in blocks is few again
    ts = [i if i < 2 * n // 3 else i + 10 * n for i in range(n)]
    return pa.table([[int(i % 50 == 7) for i in range(n)], ts, values_of(kind, n)], ["k", "ts", "x"])


KINDS = {
    "scan": (None, lambda p: p.scan(**CALLS)),
    "rolling": (2_500, lambda p: p.window(od.rolling(2_500), time="ts").aggregate(**CALLS)),
}


def pipeline_of(kind):
    return KINDS[kind][1](od.Pipeline(SCHEMA).key_by("k"))


def place(value):
    return math.isnan(value), value, math.copysign(1, value)


def quantile(ordered, q):
    below = math.floor((len(ordered) - 1) * q)
    v, part = ordered[below], (len(ordered) - 1) * q - below
    if part and ordered[below + 1] != v:
        if math.isinf(v):
            return v  # as NumPy and DuckDB
        v += (ordered[below + 1] - v) * part
    return v


def shown(data, period):
    """As run_serial, which sorts a window's values again at each row, by a list that is kept in order."""
    kept = {0: ([], []), 1: ([], [])}
    for k, ts, x in zip(*(data[name].to_pylist() for name in ("k", "ts", "x")), strict=True):
        rows, ordered = kept[k]
        while period and rows and rows[0][0] <= ts - period:
            del ordered[bisect.bisect_left(ordered, place(rows[0][1]), key=place)]
            del rows[0]
        if x is not None:
            rows.append((ts, x))
            bisect.insort(ordered, x, key=place)
        yield [quantile(ordered, q) if ordered else None for q in (0.5, 0.1, 1)]


def same(a, b):
    return a.schema == b.schema and repr(a.to_pylist()) == repr(b.to_pylist())


@pytest.mark.parametrize("values", ["drawn", "equal", "ascending", "descending"])
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_values_in_order(kind, values):
    data = table(values)
    expected = [repr(row) for row in shown(data, KINDS[kind][0])]
    for options in ({"workers": 0}, {"workers": 2, "chunk_rows": 100}):
        out = pipeline_of(kind).run(data, **options).table.select(list(CALLS))
        assert [repr(list(row.values())) for row in out.to_pylist()] == expected


def test_they_are_those_of_a_serial_run():
    data = table("drawn", 2_600).append_column("n", pa.array(range(2_600)))
    pipeline = od.Pipeline(data.schema).key_by("k").window(od.rows(2_300)).aggregate(half=od.median("x"))
    expected = run_serial(pipeline, data).table
    assert same(pipeline.run(data, workers=2, chunk_rows=100).table, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_blocks(kind):
    data = table("drawn")
    pipeline = pipeline_of(kind)
    whole = pipeline.run(data, workers=0).table
    first = pipeline.run(data.slice(0, 5_000), workers=0, end="suspend")
    rest = pipeline.run(data.slice(5_000), workers=0, restore=first.snapshot)
    assert same(pa.concat_tables([first.table, rest.table]), whole)


def test_memory_comes_back_when_a_large_window_is_over():
    n = 200_000
    x = np.random.default_rng(1).random(n)
    data = pa.table({"k": np.zeros(n, np.int64), "ts": np.arange(n), "x": x})
    late = pa.table({"k": [0] * 10, "ts": [10 * n + i for i in range(10)], "x": [1.0] * 10})
    pipeline = od.Pipeline(SCHEMA).key_by("k").window(od.rolling(n), time="ts").aggregate(a=od.median("x"))
    held = []
    for given in (data, pa.concat_tables([data, late])):
        report = pipeline.run(given, workers=0, end="suspend").report.to_dict()
        held.append(report["operators"][0]["state_bytes"])
    assert held[0] > 16 * n
    assert held[1] < held[0] / 20


@pytest.mark.parametrize("kind", ["scan", "rolling"])
def test_a_value_is_put_among_many_as_quickly_as_among_few(kind):
    """CPU of four times the rows: 16 times as much when each one moved half of the others, now 5."""
    pipeline = od.Pipeline(SCHEMA).key_by("k")
    shown = (
        pipeline.scan(a=od.median("x"))
        if kind == "scan"
        else pipeline.window(od.rolling(10**9), time="ts").aggregate(a=od.median("x"))
    )
    spent = []
    for n in (50_000, 200_000):
        x = np.random.default_rng(1).random(n)
        data = pa.table({"k": np.zeros(n, np.int64), "ts": np.arange(n), "x": x})
        best = math.inf
        for _ in range(3):
            before = time.process_time()
            shown.run(data, workers=0)
            best = min(best, time.process_time() - before)
        spent.append(best)
    assert spent[1] < 10 * spent[0], spent
