"""lag: values of the tuple before."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import ROWS, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=40, deadline=None)
EVERY = {f"before_{name}": name for name in pipeline().schema.names if name not in ("s", "l", "k")}
ALL = {f"before_{name}": name for name in pipeline().schema.names}


@pytest.mark.parametrize("key", [("b",), ("j", "s"), ("x",), ()])
@FEW
@given(rows=ROWS)
def test_lag_equals_the_reference(key, rows):
    keyed = pipeline().key_by(*key) if key else pipeline()
    check(keyed.lag(EVERY), rows)
    check(keyed.lag({"one": "i", "two": "i"}), rows)
    check(keyed.lag(ALL), rows)
    check(keyed.lag(ALL, 3), rows)


def test_the_first_tuple_of_a_key_has_nulls_and_so_has_one_behind_a_null():
    data = pa.table({"user": [1, 2, 1, 1, 2, 1], "x": pa.array([10, 20, None, 30, 40, 50], pa.int16())})
    built = od.Pipeline(data.schema).key_by("user").lag({"previous": "x"})
    found = built.run(data, workers=1).table
    assert found["previous"].to_pylist() == [None, None, 10, None, 20, 30]
    assert found.equals(run_serial(built, data).table)
    assert found.schema == built.schema


def test_many_keys_over_workers_and_chunks():
    n, keys = 200_000, 30_000
    data = pa.table(
        {"user": [i * 7919 % keys for i in range(n)], "t": range(n), "even": [i % 2 == 0 for i in range(n)]}
    )
    built = (
        od.Pipeline(data.schema)
        .key_by("user")
        .lag({"last_t": "t", "was_even": "even"})
        .select("t", gap=od.col("t") - od.col("last_t"))
    )
    expected = pa.table({"t": range(n), "gap": [None] * keys + [keys] * (n - keys)})
    for workers in (1, 2):
        found = built.run(data, workers=workers).table
        assert found.cast(expected.schema).equals(expected)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "columns must be a column, a list of columns, or a mapping"),
        ([], "columns must be a column, a list of columns, or a mapping"),
        ([1], "columns must be a column, a list of columns, or a mapping"),
        (["nothing"], "nothing"),
        ({"i": "j"}, "duplicate column name"),
        ({"a": "nothing"}, "nothing"),
        ({"": "i"}, "a name must be a non-empty str"),
        (["i", "i"], r"lag_1: duplicate column name\(s\) 'i'"),
        (["i", od.col("i")], r"lag_1: duplicate column name\(s\) 'i'"),
        (od.col("i") + 1, "lag_1: a column name is needed, got .*compute it first"),
    ],
)
def test_mistakes(columns, message):
    with pytest.raises(od.OrdstreamError, match=message):
        pipeline().key_by("b").lag(columns)


def test_columns_without_names_have_their_own_with_a_suffix():
    data = pa.table({"k": [1, 1, 1], "a": [1, 2, 3], "s": ["x", "y", "z"]})
    keyed = od.Pipeline(data.schema).key_by("k")
    for build, names in (
        (keyed.lag("a"), ["a_lag"]),
        (keyed.lag(["a", "s"], 2), ["a_lag", "s_lag"]),
        (keyed.lead(("s",)), ["s_lead"]),
        (keyed.lag(od.col("a")), ["a_lag"]),
        (keyed.lag([od.col("a"), "s"], 2), ["a_lag", "s_lag"]),
        (keyed.lead(od.col("s")), ["s_lead"]),
        (keyed.lag({"b": od.col("a")}), ["b"]),
    ):
        assert build.schema.names == ["k", "a", "s", *names]
        assert build.run(data).table.equals(run_serial(build, data).table)


def test_explain_names_key_and_columns():
    assert "lag by b: i, x" in pipeline().key_by("b").lag({"p": "i", "q": "x"}).explain()
