"""Marks at which no operator emits come with rows between them: what these leave in the state is bounded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.plan import clock
from ordstream.testing import run_serial

ROWS, SPAN = 12_000, 10
APART = clock.FORGET_ROWS  # as a run has it; `marks_come_as_wanted` makes it 1 for each test


@pytest.fixture(autouse=True)
def marks_come_as_in_a_run(marks_come_as_wanted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "FORGET_ROWS", APART)


def keys_once(rows: int = ROWS, **columns) -> pa.Table:
    """Each key has one row, one unit behind the row before."""
    numbers = np.arange(rows)
    return pa.table({"k": numbers, "t": numbers, "right": numbers % 2 == 0, **columns})


def kept(pipeline: od.Pipeline, data: pa.Table, **options) -> int:
    """How many keys the operator "here" knows at the end of the data."""
    with pipeline.stream(data, end="suspend", **options) as stream:
        out = pa.Table.from_batches(list(stream), schema=stream.schema)
    assert stream.snapshot is not None
    assert out.equals(run_serial(pipeline, data, end="suspend").table)
    return stream.snapshot.states["here"].num_rows


def forgetful(data: pa.Table) -> dict[str, od.Pipeline]:
    """Operators that emit nothing at marks."""
    start = od.Pipeline(data.schema)
    keyed = start.key_by("k")
    right, left = start.branch(od.col("right"))
    return {
        "deduplicate": start.deduplicate("k", SPAN, time="t", name="here"),
        "rolling": keyed.window(od.rolling(SPAN), time="t").aggregate(n=od.count(), name="here"),
        "updates": keyed.window(od.tumbling(SPAN), time="t").aggregate(
            n=od.count(), emit="updates", name="here"
        ),
        "asof": left.join_asof(right, on="k", tolerance=SPAN, time="t", name="here"),
        "interval": left.join_interval(right, on="k", within=(-SPAN, SPAN), time="t", name="here"),
    }


ARRANGED = [("ct", 7, 16), ("lp", 64, 1), ("et", 1000, 3), ("qst", None, 4)]
NAMES = tuple(forgetful(keys_once(1)))


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_forgotten_late_is_bounded(name, workers):
    data = keys_once()
    found = kept(forgetful(data)[name], data, workers=workers)
    assert 10 * SPAN < found <= APART + 3 * SPAN


@pytest.mark.parametrize(("partitioning", "reorder"), [("hybrid", "nonblocking"), ("partitioned", "lock")])
@pytest.mark.parametrize(("scheduler", "chunk_rows", "buckets"), ARRANGED)
@pytest.mark.parametrize("name", NAMES)
def test_however_a_run_is_arranged(name, scheduler, chunk_rows, buckets, partitioning, reorder):
    data = keys_once()
    how = {"scheduler": scheduler, "chunk_rows": chunk_rows, "buckets": buckets, "reorder": reorder}
    found = kept(forgetful(data)[name], data, workers=4, partitioning=partitioning, **how)
    assert found <= APART + 3 * SPAN


@pytest.mark.parametrize("name", NAMES)
def test_wide_rows_leave_fewer(name):
    data = keys_once(3_000, text=["x" * 10_000] * 3_000)
    assert kept(forgetful(data)[name], data, workers=1) <= 150 + 3 * SPAN


@pytest.mark.parametrize("name", NAMES)
def test_bounded_state_is_forgotten_at_once(name):
    data = keys_once()
    bounded = {"max_state_bytes": 1 << 20}
    assert kept(forgetful(data)[name], data, workers=2, **bounded) <= 4 * SPAN


def test_a_bounded_join_forgets_at_once():
    data = keys_once()
    right, left = od.Pipeline(data.schema).branch(od.col("right"))
    joined = left.join_asof(right, on="k", tolerance=SPAN, time="t", max_state_bytes=1 << 20, name="here")
    assert kept(joined, data, workers=2) <= 4 * SPAN


def test_an_operator_that_emits_at_marks_has_them_all():
    data = keys_once()
    start = od.Pipeline(data.schema)
    closing = start.key_by("k").window(od.tumbling(SPAN), time="t").aggregate(n=od.count(), name="closes")
    assert kept(closing.deduplicate("k", name="here"), data, workers=2) >= ROWS - 4 * SPAN
    both = start.deduplicate("k", SPAN, time="t", name="here").key_by("k")
    pipeline = both.window(od.tumbling(SPAN), time="t").aggregate(n=od.count())
    assert kept(pipeline, data, workers=2) <= 4 * SPAN


@pytest.mark.parametrize("name", NAMES)
def test_marks_that_a_run_was_told_to_make_come_as_told(name):
    data = keys_once()
    every = od.every("t", SPAN)
    with forgetful(data)[name].stream(data, end="suspend", workers=2, punctuate=every) as stream:
        out = pa.Table.from_batches(list(stream), schema=stream.schema)
    assert out.equals(run_serial(forgetful(data)[name], data, punctuate=every, end="suspend").table)
    assert stream.snapshot.states["here"].num_rows <= 4 * SPAN


def test_a_run_goes_on_behind_a_suspended_one():
    data = keys_once()
    made = od.Pipeline(data.schema).deduplicate("k", SPAN, time="t", name="here")
    with made.stream(data.slice(0, 5_000), end="suspend") as first:
        rows = sum(batch.num_rows for batch in first)
    with made.stream(data.slice(5_000), end="suspend", restore=first.snapshot) as second:
        rows += sum(batch.num_rows for batch in second)
    assert rows == ROWS
    assert second.snapshot.states["here"].num_rows <= APART + 3 * SPAN


def late_rows() -> dict[str, od.Pipeline]:
    """Operators that give rows late, which still have the clock's column; `late` has one of these rows."""
    start = od.Pipeline({"g": int, "t": int, "u": int, "v": int})
    late = start.filter(od.col("v") == 3)
    keyed = late.key_by("g", "t")
    return {
        "count": keyed.count(emit="final"),
        "aggregate": keyed.aggregate(n=od.count()),
        "sessionize": keyed.sessionize("u", 5),
        "top_values": keyed.top_values("v", 1, emit="final"),
        "top_k": late.top_k(1, "v", "g"),
    }


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", tuple(late_rows()))
def test_rows_that_come_late_meet_what_the_reference_has_forgotten(name, workers):
    late = late_rows()[name]
    live = od.Pipeline({"g": int, "t": int, "u": int, "v": int})
    data = pa.table({"g": [1, 2, 2, 1, 1], "t": range(0, 401, 100), "u": [0] * 5, "v": [1, 2, 3, 4, 5]})
    both = od.union(live.select("g", "t"), late.select("g", "t")).deduplicate("g", 10, time="t")
    assert both.run(data, workers=workers).table.equals(run_serial(both, data).table)


@pytest.mark.parametrize("rows", [1, 40, 1000])
def test_windows_of_top_k_do_not_depend_on_the_batches_of_the_source(rows):
    data = pa.table({"g": [1, 1, 9, 9, 9], "w": [0, 1, 1, 1, 2], "t": [0, 1, 15, 100, 101], "v": [1] * 5})
    made = od.Pipeline(data.schema).top_k(3, "v", "g", window="w").deduplicate("g", 10, time="t")
    expected = run_serial(made, data).table
    assert made.run(iter(data.to_batches(max_chunksize=rows)), workers=1).table.equals(expected)
