"""Built-in kernels, one operator at a time, against the sequential reference: values, order, failures."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_tools import in_the_core
from unit.kernel_check import (
    QUICK,
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

# -------------------------------------------------------------------------------------- expressions

INTEGERS = st.deferred(
    lambda: (
        st.sampled_from(
            [
                od.col("i"),
                od.col("j"),
                od.col("i"),
                od.lit(3),
                od.lit(-1),
                od.lit(0),
                od.lit(None, pa.int64()),
            ]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a // b,
                    lambda a, b: a % b,
                    lambda a, b: a.minimum(b),
                    lambda a, b: a.maximum(b),
                    lambda a, b: a.coalesce(b),
                ]
            ),
            INTEGERS,
            INTEGERS,
        )
        | st.builds(lambda a: -a, INTEGERS)
        | st.builds(abs, INTEGERS)
        | st.builds(od.if_else, BOOLEANS, INTEGERS, INTEGERS)
        | st.just(od.col("l").length())
        | st.just(od.col("s").length())
        | st.just(od.col("i").lookup(pa.array([10, None, 30])))
        | st.builds(lambda a: a.cast(pa.int64()), REALS_)
    )
)
REALS_ = st.deferred(
    lambda: (
        st.sampled_from(
            [od.col("x"), od.col("f"), od.lit(2.0), od.lit(0.0), od.lit(-0.5), od.lit(None, pa.float64())]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [
                    lambda a, b: a + b,
                    lambda a, b: a - b,
                    lambda a, b: a * b,
                    lambda a, b: a / b,
                    lambda a, b: a // b,
                    lambda a, b: a % b,
                    lambda a, b: a**b,
                    lambda a, b: a.minimum(b),
                    lambda a, b: a.maximum(b),
                    lambda a, b: a.atan2(b),
                    lambda a, b: a.coalesce(b),
                ]
            ),
            REALS_,
            REALS_,
        )
        | st.builds(
            lambda f, a: getattr(a, f)(),
            st.sampled_from(["sqrt", "exp", "log", "floor", "ceil", "round", "__neg__", "__abs__", "atan"]),
            REALS_,
        )
        | st.builds(od.if_else, BOOLEANS, REALS_, REALS_)
        | st.just(od.col("i").lookup(pa.array([0.5, 1.5])))
        | st.builds(lambda a: a.cast(pa.float64()), INTEGERS)
    )
)
BOOLEANS = st.deferred(
    lambda: (
        st.sampled_from(
            [od.col("b"), od.lit(True), od.lit(False), od.lit(None, pa.bool_()), od.col("s").is_null()]
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a == b, lambda a, b: a != b]
            ),
            INTEGERS,
            INTEGERS,
        )
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from(
                [lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a > b]
            ),
            REALS_,
            REALS_,
        )
        | st.builds(
            lambda f, a: f(od.col("s"), a),
            st.sampled_from([lambda a, b: a < b, lambda a, b: a == b]),
            st.sampled_from(["a", "", "b"]),
        )
        | st.builds(lambda a, b: a & b, BOOLEANS, BOOLEANS)
        | st.builds(lambda a, b: a | b, BOOLEANS, BOOLEANS)
        | st.builds(lambda a: ~a, BOOLEANS)
        | st.builds(lambda a: a.is_null(), INTEGERS | REALS_)
        | st.builds(lambda a: a.is_not_null(), INTEGERS | REALS_)
        | st.builds(lambda a, v: a.isin(v), INTEGERS, st.lists(st.integers(-5, 5), max_size=20))
        | st.builds(
            lambda v: od.col("s").isin(v), st.lists(st.sampled_from(["a", "b", "zz", ""]), max_size=4)
        )
    )
)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(max_examples=250, deadline=None)
@given(rows=ROWS, predicate=BOOLEANS)
def test_filter_equals_the_reference(on_error, rows, predicate):
    check(pipeline().filter(predicate, on_error=on_error), rows)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(max_examples=250, deadline=None)
@given(rows=ROWS, integer=INTEGERS, real=REALS_, boolean=BOOLEANS)
def test_project_equals_the_reference(on_error, rows, integer, real, boolean):
    check(pipeline().select("s", "l", "u", a=integer, b=real, c=boolean, on_error=on_error), rows)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    "type_",
    [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32()],
    ids=str,
)
@QUICK
@given(rows=ROWS)
def test_casts_are_range_checked(type_, on_error, rows):
    source = od.col("x") if type_ == pa.float32() else od.col("i")
    check(
        pipeline().select("i", y=source.cast(type_), z=od.lit(-1).cast(pa.int64()), on_error=on_error), rows
    )


@QUICK
@given(rows=ROWS)
def test_uint64_loads_are_checked(rows):
    check(pipeline().filter(od.col("u") > 2, on_error="skip"), rows)
    check(pipeline().select(v=od.col("u") + 1), rows)


@QUICK
@given(rows=ROWS)
def test_strings_pass_through_expressions(rows):
    choice = (
        od.when(od.col("b"), od.col("s")).when(od.col("s").is_null(), od.lit("none")).otherwise(od.lit("no"))
    )
    check(pipeline().select(t=choice, n=od.col("s").coalesce("?").length()), rows)


# ------------------------------------------------------------------------------------------------ lists


@QUICK
@given(rows=ROWS)
def test_pairs_and_explode_equal_the_reference(rows):
    check(pipeline().flat_map(od.pairs("l", carry=["s", "j"])), rows)
    check(pipeline().flat_map(od.pairs("k")), rows)
    check(pipeline().flat_map(od.explode("l", name="e", carry=["s", "x", "b"])), rows)


def test_pairs_of_a_long_list():
    schema = pa.schema([("l", pa.list_(pa.int32()))])
    rows = [([*range(200), 5, 3],), (None,), ([4, 4],)]
    check(od.Pipeline(schema).flat_map(od.pairs("l")), rows, schema)


# ------------------------------------------------------------------------------------------------ keyed

KEYS = [("i",), ("j",), ("u",), ("x",), ("f",), ("b",), ("s",), ("s", "j"), ("x", "b", "u")]


@pytest.mark.parametrize("key", KEYS, ids=",".join)
@pytest.mark.parametrize("emit", ["updates", "final"])
@QUICK
@given(rows=ROWS)
def test_count_equals_the_reference(key, emit, rows):
    check(pipeline().key_by(*key).count(emit=emit), rows)


@pytest.mark.parametrize("emit", ["updates", "final"])
@QUICK
@given(rows=ROWS)
def test_count_without_a_key(emit, rows):
    check(pipeline().count(emit=emit), rows)


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
def test_scan_equals_the_reference(on_error, keyed, rows, names):
    start = pipeline().key_by("s") if keyed else pipeline()
    check(start.scan(on_error=on_error, **{name: AGGREGATES[name] for name in names}), rows)


EVENTS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 3),
        st.none() | st.integers(0, 60) | st.sampled_from([2**63 - 1, -(2**63)]),
        st.none() | st.integers(-9, 9),
        st.floats(-1, 1),
    ),
    max_size=80,
)
EVENT_SCHEMA = pa.schema(
    [("user", pa.int32()), ("ts", pa.int64()), ("item", pa.int32()), ("price", pa.float64())]
)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(max_examples=150, deadline=None)
@given(rows=EVENTS, timeout=st.integers(0, 20))
def test_sessionize_equals_the_reference(on_error, rows, timeout):
    stage = (
        od.Pipeline(EVENT_SCHEMA)
        .key_by("user")
        .sessionize("ts", timeout, {"items": "item", "prices": "price"}, on_error=on_error)
    )
    check(stage, ascending(rows, "ts", EVENT_SCHEMA), EVENT_SCHEMA)


@settings(max_examples=100, deadline=None)
@given(rows=EVENTS, timeout=st.integers(0, 20), period=st.integers(5, 40))
def test_sessionize_closes_at_time_punctuations(rows, timeout, period):
    rows = sorted(
        (row for row in rows if None not in row[1:] and abs(row[1]) < 1000), key=lambda row: row[1]
    )
    line = od.Pipeline(EVENT_SCHEMA).key_by("user").sessionize("ts", timeout, {"items": "item"})
    expected = run_serial(line, serial_input(EVENT_SCHEMA, rows), time_punctuation=od.every("ts", period))
    times, latest = {}, None
    for position, row in enumerate(rows):
        if latest is None or row[1] // period > latest:
            if latest is not None:
                times[position] = row[1] // period * period
            latest = row[1] // period
    for buckets in (1, 4):
        assert run(line.plan.operators[0], rows, buckets=buckets, times=times)[0] == storage_rows(expected)


def test_sessions_with_long_lists_recycle_their_memory():
    schema = pa.schema([("user", pa.int64()), ("ts", pa.int64())])
    line = od.Pipeline(schema).key_by("user").sessionize("ts", 10, {"t": "ts"})
    (stage,) = line.plan.operators
    kernel = testing.KernelRun(stage.kernel(), stage.key, 2)
    sizes = []
    for session in range(30):
        times = [session * 10_000 + i for i in range(500)]
        for user in range(3):
            kernel.push([[user] * 500, times])
        sizes.append(kernel.state_bytes)
    assert [row[3] for row in kernel.rows] == [500] * 87
    assert all(row[4] == list(range(row[1], row[1] + 500)) for row in kernel.rows)
    assert sizes[-1] == sizes[3]
    kernel.close()


# ------------------------------------------------------------------------------------------------ top_k


@pytest.mark.parametrize("by", ["i", "x", "u", "j"])
@settings(max_examples=80, deadline=None)
@given(rows=ROWS, k=st.integers(1, 9))
def test_top_k_equals_the_reference(by, rows, k):
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


# ------------------------------------------------------------------------------------------------ builder


def test_pruned_columns_pass_through():
    """Columns that nothing reads have no data; operators that only carry them must not look."""
    for line in (
        pipeline().flat_map(od.pairs("l", carry=["s", "x"])),
        pipeline().filter(od.col("i") > 0),
        pipeline().scan(n=od.sum("i")),
        pipeline().top_k(2, "i", key="j"),
    ):
        (stage,) = line.plan.operators
        kernel = testing.KernelRun(stage.kernel(), stage.key)
        columns = {"i": [1, 2, 3], "j": [1, 1, 2], "l": [[1, 2], [2], [3, 4]]}
        if stage.op == "pairs":
            found = kernel.push([columns.get(name) for name in SCHEMA.names])
            assert [row[2:] for _, row in found] == [(1, 2), (3, 4)]
        kernel.close()
