"""top_k with ranks, updates and windows; top_values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tools import in_the_core
from unit.kernel_check import ROWS, ascending, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize(
    ("by", "key", "window"),
    [("i", ["s"], None), ("x", ["j", "b"], "i"), ("u", ["x"], "j"), ("j", ["b"], "u")],
)
@FEW
@given(rows=ROWS)
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


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize(("key", "value"), [("b", "j"), ("j", "s"), ("s", "x"), ("x", "i")])
@pytest.mark.parametrize("k", [1, 3, 100])
@settings(max_examples=20, deadline=None)
@given(rows=ROWS)
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
        (lambda p: p.top_k(1, "i", "s", window="x"), "'x' must be an integer, date or time"),
        (lambda p: p.top_k(1, "i", "s", window="i"), "can't be part of the key, nor the window"),
        (lambda p: p.top_k(1, "i", "s", emit="all"), "emit must be"),
        (lambda p: p.top_k(1, "i", "s", rank="s"), "duplicate column name"),
        (lambda p: p.key_by("s").top_values("i", 0), "k must be an int of at least 1"),
        (lambda p: p.key_by("s").top_values("s", 1), "is a key column"),
        (lambda p: p.key_by("s").top_values("l", 1), "can't be a key"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())
