"""top_k: ranks, updates, windows, and counts that grow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tools import in_the_core
from unit.kernel_check import (
    ROWS,
    SCHEMA,
    ascending,
    check,
    pipeline,
    run,
    serial_input,
    storage_rows,
    testing,
)

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("by", ["i", "x", "u", "j"])
@settings(max_examples=80, deadline=None)
@given(rows=ROWS, k=st.integers(1, 9))
def test_a_list_at_the_end_equals_the_reference(by, rows, k):
    check(pipeline().top_k(k, by, key=["s", "b"], on_error="skip"), rows)
    check(pipeline().top_k(k, by, key=["f"]), rows)


@pytest.mark.parametrize("key", [("s",), ("j", "b"), ("i",)], ids=",".join)
@settings(max_examples=80, deadline=None)
@given(rows=ROWS, k=st.integers(1, 5))
def test_top_k_of_growing_counts(key, rows, k):
    """Fed with the outputs of a count: the bounded structure gives the same rows as the full map."""
    counted = run_serial(pipeline().key_by(*key).count(), serial_input(SCHEMA, rows))
    stage = in_the_core(pipeline().key_by(*key).count().top_k(k, "count")).plan.operators[-1]
    assert stage.by_grows
    full = stage.changed(by_grows=False)
    expected = run_serial(pipeline().key_by(*key).count().top_k(k, "count"), serial_input(SCHEMA, rows))
    for size in (1, 5, 100):
        assert run(stage, counted._storage, size=size)[0] == storage_rows(expected)
        assert run(full, counted._storage, size=size)[0] == storage_rows(expected)


def test_top_k_of_many_keys_stays_small():
    schema = pa.schema([("s", pa.string()), ("n", pa.int64())])
    stage = in_the_core(od.Pipeline(schema).key_by("s").count().top_k(4, "count")).plan.operators[-1]
    kernel = testing.KernelRun(stage.kernel())
    rows = [(f"key {i:07d}".encode(), i // 7 + 1) for i in range(60_000)]
    sizes = []
    for low in range(0, len(rows), 500):
        kernel.push([list(column) for column in zip(*rows[low : low + 500], strict=True)])
        sizes.append(kernel.state_bytes)
    kernel.punctuate()
    assert kernel.rows == sorted(rows, key=lambda row: (-row[1], row[0]))[:4]
    assert max(sizes) < 2_000_000
    assert sizes[-1] <= max(sizes[:20]) * 2
    kernel.close()


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize(
    ("by", "key", "window"),
    [("i", ["s"], None), ("x", ["j", "b"], "i"), ("u", ["x"], "j"), ("j", ["b"], "u")],
)
@FEW
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_top_k_equals_the_reference(by, key, window, emit, on_error, rows):
    rows = ascending(rows, window) if window else rows
    for k in (1, 3):
        check(pipeline().top_k(k, by, key, window=window, emit=emit, rank="rank", on_error=on_error), rows)


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("window", [None, "n"])
@FEW
@given(rows=st.lists(st.integers(0, 6), max_size=60), k=st.integers(1, 4))
def test_top_of_counts_that_grow(emit, window, rows, k):
    data = pa.table(
        {"key": pa.array(rows, pa.int64()), "n": pa.array([i // 7 for i in range(len(rows))], pa.int64())}
    )
    counted = od.Pipeline(data.schema).key_by("key").count()
    if window:
        counted = od.Pipeline(data.schema).key_by("key").count(window=1, time="n")
        built = counted.top_k(k, by="count", window="window", emit=emit)
    else:
        built = counted.top_k(k, by="count", emit=emit)
        assert in_the_core(built).plan.operators[-1].by_grows
    expected = run_serial(built, data)
    for chunk_rows in (1, 5, None):
        found = built.run(data, workers=1, tags=True, chunk_rows=chunk_rows)
        assert (
            list(zip(found.table["_serial"].to_pylist(), found.table["_index"].to_pylist(), strict=True))
            == expected.tags
        )
        assert found.table.drop(["_serial", "_index"]).equals(expected.table)


@pytest.mark.parametrize("k", [33, 10**10, 2**61, 2**63 - 1])
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_far_more_than_there_are_take_no_memory_for_it(k, emit):
    data = pa.table({"key": [i * i % 91 for i in range(300)], "value": [i // 3 for i in range(300)]})
    source = od.Pipeline(data.schema)
    for built in (
        source.key_by("key").count().top_k(k, by="count", emit=emit),
        source.key_by("key")
        .count(window=5, time="value", on_error="skip")
        .top_k(k, by="count", window="window", emit=emit),
        source.top_k(k, by="value", key="key", emit=emit),
        source.key_by("key").top_values("value", k=k, emit=emit),
    ):
        expected = run_serial(built, data).table
        assert built.run(data, workers=1).table.equals(expected)
        assert built.run(data, workers=2, chunk_rows=5).table.equals(expected)
        if emit == "updates":
            assert built.run(data, workers=2, emit="final").table.num_rows <= expected.num_rows


def test_keys_that_left_the_list_are_forgotten():
    rows = [i % 5000 for i in range(15_000)]
    data = pa.table({"key": rows})
    built = od.Pipeline(data.schema).key_by("key").count().top_k(5, by="count", emit="updates")
    assert built.run(data, workers=0).table.equals(run_serial(built, data).table)


def test_windows_by_hand():
    data = pa.table({"w": [0, 0, 0, 1, 1, 3], "k": ["a", "b", "a", "b", "a", "a"], "n": [1, 5, 7, 2, 1, 9]})
    built = od.Pipeline(data.schema).top_k(1, by="n", key="k", window="w", rank="place")
    result = run_serial(built, data)
    assert result.rows == [(0, "a", 7, 1), (1, "b", 2, 1), (3, "a", 9, 1)]
    assert result.tags == [(4, 0), (6, 0), (6, 1)]
    updates = run_serial(
        od.Pipeline(data.schema).top_k(1, by="n", key="k", window="w", emit="updates"), data
    )
    assert updates.rows == [
        *[(0, "a", 1, 1), (0, "b", 5, 1), (0, "a", 7, 1), (0, "a", 7, 1)],
        *[(1, "b", 2, 1), (1, "b", 2, 1), (3, "a", 9, 1), (3, "a", 9, 1)],
    ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.top_k(1, "i", "s", window="x"), "'x' must be an integer, date or time"),
        (lambda p: p.top_k(1, "i", "s", window="i"), "can't be part of the key, nor the window"),
        (lambda p: p.top_k(1, "i", "s", emit="all"), "emit must be"),
        (lambda p: p.top_k(1, "i", "s", rank="s"), "duplicate column name"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_best_of_windows_that_close_together_equal_the_reference(data):
    """Of such windows the rows of a list come by ascending key, each key once; of null keys, strings and
    another order too, for which there is another way."""
    n = data.draw(st.integers(1, 120))
    few = st.integers(0, 5)
    table = pa.table(
        {
            "t": sorted(data.draw(st.lists(st.integers(-25, 25), min_size=n, max_size=n))),
            "k": pa.array(
                data.draw(
                    st.lists(st.none() | few if data.draw(st.booleans()) else few, min_size=n, max_size=n)
                ),
                pa.int64(),
            ),
            "u": pa.array(
                data.draw(st.lists(st.sampled_from([0, 3, 2**63, 2**64 - 1]), min_size=n, max_size=n)),
                pa.uint64(),
            ),
            "s": data.draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=n, max_size=n)),
        }
    )
    key = data.draw(st.sampled_from([("k", "u"), ("u", "k"), ("k",), ("u",), ("s",), ("k", "s")]))
    most = od.count() if data.draw(st.booleans()) else od.max("t")
    windows = od.Pipeline(table.schema).key_by(*key).window(od.tumbling(20), time="t").aggregate(most=most)
    ranked = key[::-1] if data.draw(st.booleans()) else key  # of another order: keys don't ascend
    built = windows.top_k(data.draw(st.integers(1, 9)), "most", ranked, window="start", rank="place")
    assert in_the_core(built).plan.operators[-1].once
    expected = run_serial(built, table)
    for workers in (0, 1, 2, 4):
        for options in ({}, {"chunk_rows": 1}, {"chunk_rows": 7, "buckets": 3}):
            given_rows = built.run(table, workers=workers, tags=True, **options).table
            tags = list(zip(*(given_rows[name].to_pylist() for name in ("_serial", "_index")), strict=True))
            assert tags == expected.tags
            assert given_rows.drop(["_serial", "_index"]).equals(expected.table)


WINDOWED = pa.schema(
    [("k", pa.int64()), ("start", pa.int64()), ("end", pa.int32()), ("n", pa.int64()), ("x", pa.float64())]
)


@pytest.mark.parametrize("by", ["n", "x"])
@pytest.mark.parametrize("order", ["ascending", "once not", "a null"])
def test_rows_of_long_windows_are_kept_as_they_come_or_in_the_map(by, order):
    """One key once, in windows longer than what is kept: only the best stay. With a row out of order, or a
    null, all go to the map: the same rows."""
    rows = [
        (i, window, 7, i * 7919 % 11 - 5, (i * 31 % 23 - 9) / 3)
        for window, size in enumerate([1, 5, 3000, 40, 1500])
        for i in range(size)
    ]
    if order == "once not":
        rows[3006:3046] = rows[3006:3046][::-1]  # the window of 40
    elif order == "a null":
        rows[2000] = (*rows[2000][:2], None, *rows[2000][3:])
    built = od.Pipeline(WINDOWED).top_k(9, by, "k", window="start", rank="place")
    plain = in_the_core(built).plan
    expected = storage_rows(run_serial(built, serial_input(WINDOWED, rows)))
    for once in (False, True):
        stage = plain.operators[-1].changed(by_grows=True, once=once)
        for size in (1, 300, 5000):
            assert run(stage, rows, size=size)[0] == expected


def test_far_fewer_bytes_stay_of_a_long_window_whose_keys_ascend():
    stage = in_the_core(od.Pipeline(WINDOWED).top_k(9, "n", "k", window="start")).plan.operators[-1]
    kernel = testing.KernelRun(stage.changed(by_grows=True, once=True).kernel())
    for low in range(0, 50_000, 500):
        rows = [(i, 0, 7, i % 1000, 0.0) for i in range(low, low + 500)]
        kernel.push([list(column) for column in zip(*rows, strict=True)])
    assert kernel.state_bytes < 200_000
    kernel.close()


def test_the_lists_of_windows_come_before_the_end_of_a_suspended_stream():
    keys, windows = [1, 2, 3, 1, 2, 9, 4, 5], [0, 0, 0, 1, 1, 2, 5, 5]
    data = pa.table({"w": windows, "k": keys, "n": [5, 7, 6, 1, 2, 3, 8, 9]})
    best = od.Pipeline(data.schema).top_k(2, by="n", key="k", window="w")
    whole = run_serial(best, data).table
    for cut in range(len(data) + 1):
        first = best.run(data.slice(0, cut), end="suspend")
        assert first.table.equals(run_serial(best, data.slice(0, cut), end="suspend").table)
        rest = best.run(data.slice(cut), restore=first.snapshot)
        assert pa.concat_tables([first.table, rest.table]).equals(whole)
