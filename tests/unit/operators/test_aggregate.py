"""Aggregations, with and without conditions: scan, aggregate, sessionize."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import QUICK, ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

CONDITIONS = {
    "plain": None,
    "bool": od.col("b"),
    "null": od.lit(None, pa.bool_()),
    "never": od.lit(False),
    "fails": od.col("i") + 1 > 0,
    "divides": 1 // od.col("j") > 0,
}


def aggregates(where):
    return {
        "si": od.sum("i", where=where),
        "sx": od.sum("x", where=where),
        "su": od.sum("u"),
        "lo": od.min("j", where=where),
        "hi": od.max("x", where=where),
        "hu": od.max("u", where=where),
        "lf": od.min("f"),
        "n": od.count(where=where),
        "ns": od.count("s", where=where),
        "first": od.first("b", where=where),
        "last": od.last("f", where=where),
        "mean": od.mean("j", where=where),
        "mx": od.mean("x"),
    }


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("where", CONDITIONS)
@settings(max_examples=25, deadline=None)
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_aggregate_equals_the_reference(where, emit, on_error, rows):
    chosen = aggregates(CONDITIONS[where])
    check(pipeline().key_by("j").aggregate(emit=emit, on_error=on_error, **chosen), rows)


@pytest.mark.parametrize("key", [("x",), ("s", "b"), ("f", "u"), ()], ids=str)
@QUICK
@given(rows=ROWS)
def test_aggregate_by_other_keys(key, rows):
    keyed = pipeline().key_by(*key) if key else pipeline()
    check(keyed.aggregate(total=od.sum("x"), n=od.count(), last=od.last("i")), rows)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@QUICK
@given(rows=ROWS)
def test_scan_with_conditions(on_error, rows):
    check(pipeline().key_by("j").scan(on_error=on_error, **aggregates(od.col("i") + 1 > 0)), rows)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_final_flush_of_many_keys_is_in_key_order(workers):
    """So many that they are sorted by radix: keys whose first bytes do not tell them apart, negative
    ones, nulls, NaN.
    """
    n = 1500
    mixed = [i * 7919 % n for i in range(n)]
    floats = [float("nan") if i == 7 else -0.0 if i == 8 else (i - 700) * 1e-3 for i in mixed]
    columns = {
        "i": [None if i == 5 else (i - 700) << 40 for i in mixed],
        "s": [None if i == 5 else "the same begin" * (i % 3) + str(i % 500) for i in mixed],
        "f": floats,
        "x": list(range(n)),
    }
    data = pa.table(columns)
    for key in (["i"], ["s"], ["f"], ["s", "i"]):
        job = od.Pipeline(data.schema).key_by(*key).aggregate(n=od.count(), x=od.last("x"), emit="final")
        found, expected = job.run(data, workers=workers, chunk_rows=100).table, run_serial(job, data).table
        assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is not equal to itself


def test_aggregate_by_hand():
    data = pa.table({"k": [2, 1, 2], "x": [5, 7, 6]})
    build = od.Pipeline(data.schema).key_by("k")
    result = run_serial(build.aggregate(total=od.sum("x"), mean=od.mean("x")), data)
    assert result.rows == [(2, 5, 5.0), (1, 7, 7.0), (2, 11, 5.5), (1, 7, 7.0), (2, 11, 5.5)]
    assert result.tags == [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)]
    result = run_serial(build.aggregate(big=od.count(where=od.col("x") > 5), emit="final"), data)
    assert result.rows == [(1, 1), (2, 1)]
    assert run_serial(od.Pipeline(data.schema).aggregate(n=od.count()), data.slice(0, 0)).rows == []


def test_a_key_whose_only_tuples_failed_has_no_values():
    data = pa.table({"k": [1, 2], "u": pa.array([2**64 - 1, 1], pa.uint64())})
    built = od.Pipeline(data.schema).key_by("k").aggregate(t=od.sum("u"), emit="final", on_error="skip")
    assert run_serial(built, data).rows == [(2, 1)]
    assert built.run(data, workers=1).table.to_pylist() == [{"k": 2, "t": 1}]


@pytest.mark.parametrize(
    ("column", "there"),
    [
        (pa.array([[1], None, [], [None]]), [1, 1, 2, 3]),
        (pa.array([["a"], None, [], [None]]), [1, 1, 2, 3]),
        (pa.array([{"a": 1}, None, {"a": None}, None]), [1, 1, 2, 2]),
        (pa.array([1, None, 2, None], pa.float16()), [1, 1, 2, 2]),
        (pa.array([b"1" * 16, None, None, b"2" * 16], pa.uuid()), [1, 1, 1, 2]),
    ],
    ids=["list", "texts", "struct", "half", "uuid"],
)
def test_values_of_any_type_are_counted(column, there):
    """Those of lists, structs and the like were refused."""
    data = pa.table({"i": [1, 2, 3, 4], "x": column})
    built = od.Pipeline(data.schema).scan(n=od.count("x"), late=od.count("x", where=od.col("i") > 1))
    expected = [(n, n - 1) for n in there]
    assert [row[2:] for row in run_serial(built, data).rows] == expected
    for rows in (1, 4):
        found = built.run(data, workers=0, chunk_rows=rows).table
        assert list(zip(found["n"].to_pylist(), found["late"].to_pylist(), strict=True)) == expected
    # a window takes values out again: of a struct {"a": None} is one
    long = pa.table({"i": range(40), "x": pa.chunked_array([column] * 10)})
    keyed = od.Pipeline(data.schema).with_columns(k=od.col("i") % 3).key_by("k")
    for windows in (keyed.window(od.rows(5)), keyed.window(od.rolling(30), time="i")):
        built = windows.aggregate(n=od.count("x"), late=od.count("x", where=od.col("i") > 9))
        last = [row[-2:] for row in run_serial(built, long).rows]
        found = built.run(long, workers=0, chunk_rows=1).table
        assert list(zip(found["n"].to_pylist(), found["late"].to_pylist(), strict=True)) == last


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.aggregate(), "at least one aggregation"),
        (lambda p: p.aggregate(n=od.count(), emit="last"), "emit must be 'updates' or 'final'"),
        (lambda p: p.aggregate(n=od.count(where=od.col("i"))), "a boolean expression is needed"),
        (lambda p: p.aggregate(n=3), "n must be an aggregation"),
        (lambda p: p.key_by("i").aggregate(i=od.count()), "duplicate column name"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())


@pytest.mark.parametrize(
    "key", [["i", "u"], ["u", "x", "i"], ["i", "s", "u"], ["x"], ["w", "i"]], ids=",".join
)
def test_a_long_flush_is_sorted_by_key(key):
    """From 512 keys on keys are sorted as words: of integers near each other, and of the least and largest
    ones, of nulls, of floats with NaN and both zeros, of strings with one beginning."""
    n = 3000
    table = pa.table(
        {
            "i": [None if k % 97 == 0 else k * 7919 % 1009 - 500 for k in range(n)],
            "u": pa.array([(0, 2**64 - 1, 2**63)[k * k % 3] for k in range(n)], pa.uint64()),
            "x": [None if k % 89 == 0 else (0.0, -0.0, float("nan"), -1.5, k / 7)[k % 5] for k in range(n)],
            "s": ["the same beginning " * (k % 2) + "ab"[k % 3 // 2] for k in range(n)],
            "w": [None if k % 5 == 0 else (-(2**63), 2**63 - 1, k)[k % 3] for k in range(n)],
        }
    )
    built = od.Pipeline(table.schema).key_by(*key).aggregate(n=od.count(), emit="final")
    expected = run_serial(built, table)
    assert len(expected.rows) >= 512
    for workers in (0, 2):
        assert repr(built.run(table, workers=workers).table.to_pylist()) == repr(expected.table.to_pylist())
