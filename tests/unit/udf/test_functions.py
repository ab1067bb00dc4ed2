"""User functions compiled by Numba: rows, state, rollback, replay, errors that name the user's line."""

from __future__ import annotations

import ctypes
import datetime
import decimal
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from udf_stages import I64, SOURCE, batch, check_serial, door, rows_stage, strict

import ordstream as od
from ordstream._core.lab.testing_udf import read_rows
from ordstream.errors import PlanError, SchemaError
from ordstream.reference.run_serial import run_serial
from ordstream.udf import functions as udf

numba = pytest.importorskip("numba")

EVERYTHING = pa.schema(
    {
        "i8": pa.int8(), "u8": pa.uint8(), "i16": pa.int16(), "u16": pa.uint16(), "i32": pa.int32(),
        "u32": pa.uint32(), "i64": pa.int64(), "u64": pa.uint64(), "f32": pa.float32(), "f64": pa.float64(),
        "b": pa.bool_(), "s": pa.string(), "raw": pa.binary(), "t": pa.timestamp("us"), "d": pa.date32(),
        "l": pa.list_(pa.int32()), "m": pa.decimal128(9, 2),
    }
)  # fmt: skip


def everything():
    full = {
        "i8": -128, "u8": 255, "i16": -(2**15), "u16": 2**16 - 1, "i32": 2**31 - 1, "u32": 2**32 - 1,
        "i64": -(2**63), "u64": 2**63 - 1, "f32": 0.5, "f64": 1e300, "b": True, "s": "häuser",
        "raw": b"\x00\xff", "t": datetime.datetime(2020, 1, 2), "d": datetime.date(1969, 12, 31),
        "l": [1, 2, 3], "m": decimal.Decimal("1.25"),
    }  # fmt: skip
    null = dict.fromkeys(full)
    zero = full | {"i8": 0, "b": False, "s": "", "raw": b"", "l": []}
    return pa.RecordBatch.from_pylist([full, null, zero], schema=EVERYTHING)


def pass_all(row, emit):
    emit(
        row.i8, row.u8, row.i16, row.u16, row.i32, row.u32, row.i64, row.u64, row.f32, row.f64, row.b,
        row.s, row.raw, row.t, row.d, row.l, row.m,
    )  # fmt: skip


def add(row, emit):
    emit(row.k + row.x)


def repeat(row, emit):
    for i in range(row.x):
        emit(row.k, i)


def total(row, state, emit):
    state.n += 1
    state.total += row.x
    if row.x < 0:
        raise ValueError("negative")
    emit(row.k, state.n, state.total)


TOTAL_STATE = {"n": int, "total": int}
TOTAL_OUTPUT = {"k": int, "n": int, "total": int}


UINT64 = st.sampled_from([0, 1, 7, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1])


def uint64_same(row, emit):
    emit(row.u, row.v)


def uint64_narrow(row, emit):
    emit(row.u)


def uint64_elements(row, emit):
    emit(row.v)
    if row.l is not None:
        for i in range(len(row.l)):
            if row.k == 3:
                raise ValueError("three")
            emit(row.l[i])


def uint64_fold(row, state, emit):
    state.n += 1
    emit(state.largest, state.n)
    if row.v > state.largest:
        state.largest = row.v
    if row.k == 3:
        raise ValueError("three")


def uint64_flush(key, state, emit):
    emit(state.largest, -state.n)


class TestRows:
    def test_every_type_passes_through(self):
        pipeline = od.Pipeline(EVERYTHING).map(pass_all, schema=EVERYTHING, compiled=True)
        data = everything()
        assert check_serial(pipeline, data) == [tuple(row.values()) for row in data.to_pylist()]
        assert check_serial(pipeline, data.slice(0, 1)) == [tuple(data.to_pylist()[0].values())]

    def test_row_is_storage_values(self):
        rows = read_rows(EVERYTHING, everything().slice(0, 1), storage=True)
        assert (rows[0].t, rows[0].d) == (1577923200000000, -1)

    def test_narrow_integers_compute_in_64_bits(self):
        def widen(row, emit):
            emit(row.i8 * 1000 + row.u8, row.u32 * 2, row.i32 + 1)

        pipeline = od.Pipeline(EVERYTHING).map(widen, schema={"a": int, "b": int, "c": int}, compiled=True)
        assert check_serial(pipeline, everything().slice(0, 1)) == [(-127745, 8589934590, 2**31)]

    def test_filter_and_flat(self):
        data = batch(SOURCE, k=[1, 2, 3], x=[0, 2, 1])
        pipeline = od.Pipeline(SOURCE).flat_map(
            repeat, schema={"k": int, "i": int}, fan_out=2, compiled=True
        )
        assert check_serial(pipeline, data) == [(2, 0), (2, 1), (3, 0)]

    def test_large_fan_out_goes_in_slices(self):
        data = batch(SOURCE, k=list(range(50)), x=[i % 3 for i in range(50)])
        for fan_out in (5000, 100_000):
            pipeline = od.Pipeline(SOURCE).flat_map(
                repeat, schema={"k": int, "i": int}, fan_out=fan_out, compiled=True
            )
            assert len(check_serial(pipeline, data)) == 49

    def test_too_many_outputs_fail_their_row_whatever_the_chunk(self):
        data = batch(SOURCE, k=[1, 2, 3], x=[0, 3, 1])
        pipeline = od.Pipeline(SOURCE).flat_map(
            repeat, schema={"k": int, "i": int}, fan_out=2, compiled=True
        )
        check_serial(pipeline, data)
        kernel = door(pipeline.plan.operators[-1])
        assert kernel.apply(data)[0] == []
        assert kernel.failure[0] == 1
        assert "fan_out" in str(kernel.failure[3])

    def test_exact(self):
        pipeline = od.Pipeline(SOURCE).map(repeat, schema={"k": int, "i": int}, compiled=True)
        check_serial(pipeline, batch(SOURCE, k=[1, 2], x=[1, 0]))

    def test_nulls(self):
        def or_zero(row, emit):
            emit(0 if row.x is None else row.x, row.x)

        pipeline = od.Pipeline(SOURCE).map(or_zero, schema={"y": int, "x": int}, compiled=True)
        assert check_serial(pipeline, batch(SOURCE, k=[1, 2, 3], x=[5, None, 7])) == [
            (5, 5),
            (0, None),
            (7, 7),
        ]
        assert check_serial(pipeline, batch(SOURCE, k=[1], x=[5])) == [(5, 5)]

    def test_none_and_strings(self):
        source = pa.schema({"s": pa.string(), "raw": pa.binary()})

        def classify(row, emit):
            if row.s == "a":
                emit("is a", len(row.s))
            elif row.s is None:
                emit(None, None)
            elif row.s != "bb" and row.s == row.s:
                emit(row.s, len(row.s))
            else:
                emit("", 0)

        pipeline = od.Pipeline(source).map(classify, schema={"s": str, "n": int}, compiled=True)
        data = pa.record_batch(
            [pa.array(["a", None, "bb", "äöü", "ab", ""]), pa.array([b""] * 6)], schema=source
        )
        rows = check_serial(pipeline, data)
        assert rows == [("is a", 1), (None, None), ("", 0), ("äöü", 3), ("ab", 2), ("", 0)]

    def test_lists(self):
        source = pa.schema({"l": pa.list_(pa.int16())})

        def ends(row, emit):
            if len(row.l) > 1:
                emit(row.l[0], row.l[-1], row.l)

        pipeline = od.Pipeline(source).flat_map(
            ends, schema={"a": int, "b": int, "l": pa.list_(pa.int16())}, compiled=True
        )
        data = pa.record_batch([pa.array([[1, 2, 3], [4], [-5, 6]], pa.list_(pa.int16()))], schema=source)
        assert check_serial(pipeline, data) == [(1, 3, [1, 2, 3]), (-5, 6, [-5, 6])]

    def test_index_error_names_the_row(self):
        source = pa.schema({"l": pa.list_(pa.int64())})

        def second(row, emit):
            emit(row.l[1])

        pipeline = od.Pipeline(source).map(second, schema={"y": int}, compiled=True)
        data = pa.record_batch([pa.array([[1, 2], [3]], pa.list_(pa.int64()))], schema=source)
        kernel = door(pipeline.plan.operators[-1])
        assert kernel.apply(data)[0] == [(2,)]
        slot, _, message, exception = kernel.failure
        assert (slot, type(exception), message) == (1, IndexError, "IndexError: list index out of range")

    @pytest.mark.parametrize("value", [128, -129, 2**40])
    def test_overflow_of_a_narrow_column(self, value):
        def narrow(row, emit):
            emit(row.x)

        pipeline = od.Pipeline(SOURCE).map(narrow, schema={"y": pa.int8()}, compiled=True)
        kernel = door(pipeline.plan.operators[-1])
        assert kernel.apply(batch(SOURCE, k=[1, 2], x=[127, value]))[0] == [(127,)]
        assert isinstance(kernel.failure[3], OverflowError)

    def test_division_by_zero_and_replay(self):
        def divide(row, emit):
            emit(row.k // row.x)

        pipeline = od.Pipeline(SOURCE).map(divide, schema={"y": int}, compiled=True)
        data = batch(SOURCE, k=[7, 8, 9], x=[-2, 0, 1])
        check_serial(pipeline, data)
        kernel = door(pipeline.plan.operators[-1])
        assert kernel.apply(data)[0] == [(-4,)]
        assert kernel.failure[0] == 1
        assert isinstance(kernel.failure[3], ZeroDivisionError)

    def test_skip(self):
        def divide(row, emit):
            emit(row.k // row.x)

        pipeline = od.Pipeline(SOURCE).map(divide, schema={"y": int}, compiled=True, on_error="skip")
        kernel = door(pipeline.plan.operators[-1])
        data = batch(SOURCE, k=[7, 8, 9, 1], x=[-2, 0, 1, 0])
        assert kernel.apply(data) == ([(-4,), (9,)], [0, 2])
        assert kernel.skipped == 2

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    @settings(max_examples=20, deadline=None)
    @given(
        rows=st.lists(
            st.tuples(UINT64, UINT64, st.none() | st.lists(UINT64, max_size=2), st.integers(0, 3)),
            max_size=9,
        )
    )
    def test_uint64_of_any_size(self, on_error, rows):
        """Those above the range of the integers inside, too: the interpreted function takes such a row
        over, state and all.
        """
        source = pa.schema({"u": pa.uint64(), "v": pa.uint64(), "l": pa.list_(pa.uint64()), "k": I64})
        columns = zip(*rows, strict=True) if rows else [()] * 4
        data = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(columns, source, strict=True)], schema=source
        )
        plain, policy = od.Pipeline(source), {"compiled": True, "on_error": on_error}
        u64 = pa.uint64()
        fold = {
            "schema": {"u": u64, "n": int},
            "state": {"largest": u64, "n": int},
            "on_flush": uint64_flush,
            **policy,
        }
        for pipeline in (
            plain.map(uint64_same, schema={"u": u64, "v": u64}, **policy),
            plain.map(uint64_narrow, schema={"u": I64}, **policy),
            plain.flat_map(uint64_elements, schema={"v": u64}, fan_out=3, **policy),
            plain.process(uint64_fold, **fold),
            plain.key_by("k").process(uint64_fold, **fold),
            plain.key_by("u").process(uint64_fold, **fold),
        ):
            expected = run_serial(pipeline, data)
            for options in ({"workers": 0}, {"workers": 2, "chunk_rows": 3}):
                with pipeline.stream(data, **options) as stream:
                    found, error = [], None
                    try:
                        for one in stream:
                            found += [tuple(row.values()) for row in one.to_pylist()]
                    except od.OperatorError as raised:
                        error = raised
                assert found == expected.rows
                assert str(error) == str(expected.error)

    def test_closures_globals_and_helpers(self):
        factor = 3

        @numba.njit
        def helper(row, n):
            return row.x * n

        def scaled(row, emit):
            emit(helper(row, factor))

        pipeline = od.Pipeline(SOURCE).map(scaled, schema={"y": int}, compiled=True)
        assert door(pipeline.plan.operators[-1]).apply(batch(SOURCE, k=[1], x=[5]))[0] == [(15,)]

    def test_dispatcher_is_recompiled_by_our_rules(self):
        pipeline = od.Pipeline(SOURCE).map(numba.njit(add), schema={"y": int}, compiled=True)
        assert door(pipeline.plan.operators[-1]).apply(batch(SOURCE, k=[1], x=[5]))[0] == [(6,)]

    def test_compilation_is_kept_until_a_constant_changes(self):
        def make(n):
            def plus(row, emit):
                emit(row.x + n)

            return plus

        plus = make(1)
        stage = rows_stage(plus, strict(y=I64))
        first = udf.compile_rows(plus, SOURCE, stage.output)
        assert udf.compile_rows(plus, SOURCE, stage.output) is first
        assert udf.compile_rows(make(2), SOURCE, stage.output) is not first


class TestProcess:
    def pipeline(self, **options):
        pipeline = od.Pipeline(SOURCE)
        keyed = pipeline.key_by("k") if options.pop("keyed", True) else pipeline
        return keyed.process(total, schema=TOTAL_OUTPUT, state=TOTAL_STATE, compiled=True, **options)

    @pytest.mark.parametrize("keyed", [True, False])
    def test_state(self, keyed):
        data = batch(SOURCE, k=[1, 2, 1, None, 2], x=[5, 6, 7, 8, 9])
        rows = check_serial(self.pipeline(keyed=keyed), data)
        assert rows[-1] == ((2, 2, 15) if keyed else (2, 5, 35))

    def test_failed_row_is_rolled_back(self):
        data = batch(SOURCE, k=[1, 2, 1, 1, 2, 3], x=[5, 6, -7, 8, 9, -1])
        kernel = door(self.pipeline(on_error="skip").plan.operators[-1])
        rows, origins, done = kernel.process(data)
        assert rows == run_serial(self.pipeline(on_error="skip"), data).rows
        assert (origins, done) == ([0, 1, 3, 4], 6)

    def test_slices_keep_states(self):
        def several(row, state, emit):
            for _ in range(row.x):
                state.n += 1
                emit(row.k, state.n, 0)
            if row.x == 2:
                raise ValueError("two")

        data = batch(SOURCE, k=[i % 3 for i in range(60)], x=[i % 4 for i in range(60)])
        pipeline = od.Pipeline(SOURCE).key_by("k").process(
            several, schema=TOTAL_OUTPUT, state=TOTAL_STATE, fan_out=9000, compiled=True, on_error="skip",
            on_flush=lambda key, state, emit: emit(key, state.n, 1),
        )  # fmt: skip
        check_serial(pipeline, data)

    def test_exception_is_recovered(self):
        data = batch(SOURCE, k=[1, 1, 1], x=[5, -6, 7])
        kernel = door(self.pipeline().plan.operators[-1])
        rows, _, done = kernel.process(data)
        assert (rows, done) == ([(1, 1, 5)], 1)
        slot, _, message, exception = kernel.failure
        assert (slot, message) == (1, "ValueError: negative")
        assert isinstance(exception, ValueError)

    def test_flush_and_time(self):
        calls = []

        def flush(key, state, emit):
            calls.append((key, state.n))
            emit(key, state.n, state.total)
            state.n = 0

        def tick(key, state, time, emit):
            state.total += time
            emit(key, state.n, state.total)

        pipeline = self.pipeline(on_flush=flush, on_time=tick, on_error="skip")
        data = batch(SOURCE, k=[2, 1, None, 2, 3], x=[6, 5, 8, 9, -1])
        kernel = door(pipeline.plan.operators[-1])
        kernel.process(data)
        rows, status, keyed = kernel.punctuate(time=100)
        assert rows == [(None, 1, 108), (1, 1, 105), (2, 2, 115)]  # key 3 has no state: its only row failed
        assert (status, keyed) == (0, [True] * 3)
        assert kernel.punctuate()[0] == rows
        assert calls == [(None, 1), (1, 1), (2, 2)]
        assert kernel.punctuate()[0] == [(None, 0, 108), (1, 0, 105), (2, 0, 115)]

    def test_flush_failure(self):
        def flush(key, state, emit):
            emit(key, 0, 0)
            if key == 2:
                raise KeyError(key)

        data = batch(SOURCE, k=[3, 1, 2], x=[1, 1, 1])
        kernel = door(self.pipeline(on_flush=flush).plan.operators[-1])
        kernel.process(data)
        assert kernel.punctuate()[:2] == ([(1, 0, 0)], -1)
        assert isinstance(kernel.failure[3], KeyError)
        kernel = door(self.pipeline(on_flush=flush, on_error="skip").plan.operators[-1])
        kernel.process(data)
        assert kernel.punctuate()[:2] == ([(1, 0, 0), (3, 0, 0)], 0)
        assert kernel.skipped == 1

    def test_every_state_type(self):
        state = {
            "a": pa.int8(), "b": pa.uint16(), "c": pa.int32(), "d": pa.float32(), "e": pa.float64(),
            "f": pa.bool_(), "g": pa.uint64(), "h": pa.timestamp("us"), "i": pa.date32(),
        }  # fmt: skip

        def mix(row, state, emit):
            state.a += 1
            state.b += 2
            state.c -= row.x
            state.d += 0.5
            state.e = state.e + row.x
            state.f = not state.f
            state.g += row.x
            state.h += 1
            state.i = row.x
            emit(state.a, state.b, state.c, state.d, state.e, state.f, state.g, state.h, state.i)

        pipeline = od.Pipeline(SOURCE).key_by("k").process(mix, schema=state, state=state, compiled=True)
        check_serial(pipeline, batch(SOURCE, k=[1, 2, 1, 1], x=[5, 6, 7, 8]))
        kernel = door(pipeline.plan.operators[-1])
        _, _, done = kernel.process(batch(SOURCE, k=[1] * 200, x=[1] * 200))
        assert done == 127  # int8 overflows
        assert isinstance(kernel.failure[3], OverflowError)

    def test_string_key(self):
        source = pa.schema({"k": pa.string(), "x": I64})

        def count(row, state, emit):
            state.n += row.x
            emit(row.k, state.n)

        pipeline = (
            od.Pipeline(source)
            .key_by("k")
            .process(
                count,
                schema={"k": str, "n": int},
                state={"n": int},
                compiled=True,
                on_flush=lambda k, s, e: e(k, -s.n),
            )
        )
        data = pa.record_batch([pa.array(["b", "a", None, "b"]), pa.array([1, 2, 3, 4])], schema=source)
        assert check_serial(pipeline, data)[4:] == [(None, -3), ("a", -2), ("b", -5)]


class TestBuildErrors:
    """Mistakes are found when the kernel is built, and name the user's line."""

    def error(self, fn, output=None, state=None):
        output = output or {"y": int}
        pipeline = od.Pipeline(SOURCE)
        if state is None:
            pipeline = pipeline.map(fn, schema=output, compiled=True)
        else:
            pipeline = pipeline.key_by("k").process(fn, schema=output, state=state, compiled=True)
        with pytest.raises(PlanError) as caught:
            pipeline.plan.operators[-1].kernel()
        return str(caught.value)

    def test_unknown_column(self):
        def wrong(row, emit):
            emit(row.y)

        text = self.error(wrong)
        assert "emit(row.y)" in text
        assert f'File "{__file__}", line {wrong.__code__.co_firstlineno + 1}' in text

    def test_emit_arity(self):
        def wrong(row, emit):
            emit(row.x, 1)

        text = self.error(wrong)
        assert "emit takes 1 values (y), got 2" in text
        assert "emit(row.x, 1)" in text

    def test_emit_type(self):
        def wrong(row, emit):
            emit(row.x / 2)

        assert "column 'y' takes int64, got float64" in self.error(wrong)

        def boolean(row, emit):
            emit(row.x > 2)

        assert "column 'y' takes int64, got bool" in self.error(boolean)

    def test_none_where_nulls_are_not_declared(self):
        def wrong(row, emit):
            emit(None)

        assert "not nullable" in self.error(wrong, strict(y=I64))

    def test_result(self):
        def wrong(row, emit):
            return row.x

        assert "emits its outputs" in self.error(wrong)

    def test_state_types(self):
        def wrong(row, state, emit):
            state.n = row.x / 2

        text = self.error(wrong, state={"n": int})
        assert "state.n takes int64, got float64" in text
        assert "state.n = row.x / 2" in text

    def test_state_of_variable_size(self):
        pipeline = od.Pipeline(SOURCE).process(
            lambda row, state, emit: None, schema={"y": int}, state={"s": str}, compiled=True
        )
        with pytest.raises(SchemaError, match="'s': string"):
            pipeline.plan.operators[-1].kernel()

    def test_unsupported_python(self):
        def wrong(row, emit):
            emit({"a": row.x})

        assert "does not compile" in self.error(wrong)

    def test_not_a_function(self):
        with pytest.raises(PlanError, match="@njit function"):
            udf.compile_rows(len, SOURCE, strict(y=I64))


def test_missing_numba_names_the_command():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import pyarrow as pa\n"
        "from ordstream.udf import functions as udf\n"
        "def f(row, emit): emit(row.x)\n"
        "s = pa.schema({'x': pa.int64()})\n"
        "try: udf.compile_rows(f, s, s)\n"
        "except ImportError as e: print(e)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert "pip install 'ordstream[jit]'" in done.stdout


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.parametrize(
    "fn", [lambda row: row.x, lambda row, state, emit, more: None, lambda: None], ids=["1", "4", "0"]
)
def test_a_function_with_other_parameters(fn):
    with pytest.raises(PlanError, match=r"takes \(row, emit\), got <lambda>\("):
        od.Pipeline({"x": int}).map(fn, schema={"y": int}, compiled=True).run([], workers=0)


def test_a_compile_error_shows_the_users_line_and_the_reason_only():
    def other(row, emit):
        emit(row.x)

    def wrong(row, emit):
        emit(row.absent)

    with pytest.raises(PlanError) as caught:
        od.Pipeline({"x": int}).map(wrong, schema={"y": int}, compiled=True).run([], workers=0)
    text = str(caught.value)
    assert "emit(row.absent)" in text
    assert "Unknown attribute 'absent'" in text
    assert "other" not in text
    assert "elided" not in text


def test_a_native_function_without_compiled_is_told_when_built():
    native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
        lambda n, call, data: n
    )
    p = od.Pipeline({"x": int})
    for build in (
        lambda: p.map(native, schema={"y": int}),
        lambda: p.flat_map(native, schema={"y": int}),
        lambda: p.map_batches(native, schema={"y": int}),
        lambda: p.filter(native),
        lambda: p.process(native, schema={"y": int}, state={"n": int}),
    ):
        with pytest.raises(PlanError, match="compiled=True"):
            build()
