"""Python kernels: rows, filters, batches, state, failures; against the sequential reference."""

from __future__ import annotations

import datetime
import gc
import random
import sys

import numpy as np
import pyarrow as pa
import pytest
from value_columns import COLUMNS

import ordstream as od
from ordstream._core.lab.testing_udf import PyKernel
from ordstream.reference.run_serial import run_serial

I64 = pa.int64()
SOURCE = pa.schema({"k": I64, "x": I64, "s": pa.string()})


def door(pipeline):
    stage = pipeline.plan.operators[-1]
    return PyKernel(stage.kernel(), stage)


def batch(schema=SOURCE, **columns):
    n = max(map(len, columns.values()))
    arrays = [pa.array(columns.get(f.name, [None] * n), f.type) for f in schema]
    return pa.record_batch(arrays, schema=schema)


def check_serial(pipeline, data):
    """The kernel's outputs, failure and skips are those of the sequential reference."""
    reference = run_serial(pipeline, data)
    kernel = door(pipeline)
    stage = pipeline.plan.operators[-1]
    origins = None
    if stage.kind == "SL":
        rows, origins = kernel.apply(data)
    else:
        rows, origins, _ = kernel.process(data)
        if reference.error is None and getattr(stage, "on_flush", None):
            rows += kernel.punctuate()[0]
            origins = None
    assert rows == reference.rows
    if origins is not None:
        assert [slot + 1 for slot in origins] == [serial for serial, _ in reference.tags]
    if reference.error is None:
        assert kernel.failure is None or stage.on_error == "skip"
    else:
        slot, _, message, exception = kernel.failure
        assert slot + 1 == reference.error.serial
        assert message == reference.error.reason
        assert type(exception) is type(reference.error.__cause__)
    assert stage.kind != "SL" or kernel.skipped == len(reference.skipped)
    assert kernel.live == 0
    return rows


# ------------------------------------------------------------------------------------------------ rows

DATA = batch(k=[1, 2, None, 4, 5], x=[10, -3, 0, None, 7], s=["a", None, "", "dd", "e"])


def double(row):
    return row.k, None if row.x is None else row.x * 2, row.s


def picky(row):
    if row.k is None:
        raise ValueError("no key")
    return {"k": row.k, "x": row.x, "s": row.s}


class TestRows:
    def test_map(self):
        assert check_serial(od.Pipeline(SOURCE).map(double, schema=SOURCE), DATA)[1] == (2, -6, None)

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_map_failure(self, on_error):
        rows = check_serial(od.Pipeline(SOURCE).map(picky, schema=SOURCE, on_error=on_error), DATA)
        assert len(rows) == (2 if on_error == "fail" else 4)

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    @pytest.mark.parametrize("result", [None, 3, (1,), (1.5, 1, "a"), (1, 2, 3), {"k": 1}, [1, 2, "x", 4]])
    def test_map_wrong_result(self, result, on_error):
        def wrong(row):
            return result if row.k == 2 else (row.k, row.x, row.s)

        check_serial(od.Pipeline(SOURCE).map(wrong, schema=SOURCE, on_error=on_error), DATA)

    def test_row_is_a_named_tuple(self):
        seen = []
        pipeline = od.Pipeline(SOURCE).map(lambda row: seen.append(row) or row, schema=SOURCE)
        door(pipeline).apply(DATA)
        assert seen[0] == (1, 10, "a")
        assert seen[0]._asdict() == {"k": 1, "x": 10, "s": "a"}
        with pytest.raises(AttributeError, match="no column 'y'"):
            _ = seen[0].y

    def test_selection(self):
        rows, origins = door(od.Pipeline(SOURCE).map(double, schema=SOURCE)).apply(DATA, select=[4, 1])
        assert rows == [(5, 14, "e"), (2, -6, None)]
        assert origins == [4, 1]

    def test_empty(self):
        assert door(od.Pipeline(SOURCE).map(double, schema=SOURCE)).apply(DATA, select=[])[0] == []
        assert door(od.Pipeline(SOURCE).filter(lambda row: True)).apply(DATA, select=[])[0] == []

    @pytest.mark.parametrize("answer", [True, False, None, np.True_, np.False_])
    def test_filter_answers(self, answer):
        check_serial(od.Pipeline(SOURCE).filter(lambda row: answer), DATA)

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    @pytest.mark.parametrize("wrong", [1, "yes", []])
    def test_filter(self, wrong, on_error):
        def keep(row):
            return wrong if row.k == 2 else row.k != 4

        rows = check_serial(od.Pipeline(SOURCE).filter(keep, on_error=on_error), DATA)
        assert rows[0] == (1, 10, "a")

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_flat_map(self, on_error):
        def split(row):
            for i in range(row.k or 0):
                if i == 3:
                    raise ValueError("too many")
                yield row.k, i, row.s

        rows = check_serial(od.Pipeline(SOURCE).flat_map(split, schema=SOURCE, on_error=on_error), DATA)
        assert rows == [(1, 0, "a"), (2, 0, None), (2, 1, None)]

    @pytest.mark.parametrize(
        "result", [None, 5, "ab", b"ab", {"k": 1}, [3], [(1,)], [(1, 2, "x"), (1, 2, 3)]]
    )
    def test_flat_map_wrong_result(self, result):
        check_serial(od.Pipeline(SOURCE).flat_map(lambda row: result, schema=SOURCE), DATA)

    def test_flat_map_many(self):
        pipeline = od.Pipeline(SOURCE).flat_map(
            lambda row: [(i, i, None) for i in range(3000)], schema=SOURCE
        )
        assert len(check_serial(pipeline, DATA)) == 15000

    def test_unreadable_row_fails_alone(self):
        """A timestamp that datetime cannot hold is a failure of its row only."""
        schema = pa.schema({"t": pa.timestamp("s")})
        data = pa.record_batch([pa.array([0, 2**60, 60], I64).cast(pa.timestamp("s"))], schema=schema)
        kernel = door(od.Pipeline(schema).map(lambda row: (row.t,), schema=schema, on_error="skip"))
        _, origins = kernel.apply(data)
        assert origins == [0, 2]
        assert kernel.skipped == 1

    def test_interrupt_is_never_skipped(self):
        def interrupted(row):
            if row.k == 2:
                raise KeyboardInterrupt
            return tuple(row)

        kernel = door(od.Pipeline(SOURCE).map(interrupted, schema=SOURCE, on_error="skip"))
        assert kernel.apply(DATA)[0] == [(1, 10, "a")]
        assert isinstance(kernel.failure[3], KeyboardInterrupt)

    def test_exception_whose_text_fails(self):
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError

        def fail(row):
            raise Odd

        kernel = door(od.Pipeline(SOURCE).map(fail, schema=SOURCE))
        kernel.apply(DATA)
        assert (kernel.failure[2], type(kernel.failure[3])) == ("Odd", Odd)

    def test_references_are_dropped(self):
        class Token(str):
            pass

        def fail(row):
            raise ValueError(token)

        token = Token("x")
        kernel = door(od.Pipeline(SOURCE).map(fail, schema=SOURCE))
        before = sys.getrefcount(token)
        for _ in range(20):
            kernel.apply(DATA)
        kernel.apply(DATA, select=[])
        gc.collect()
        assert sys.getrefcount(token) <= before + 1


# ------------------------------------------------------------------------------------------------ batches

NUMBERS = pa.schema({"k": I64, "x": pa.float64()})
FULL = pa.record_batch([pa.array([1, 2, 3, 4]), pa.array([0.5, -1.0, 4.0, 9.0])], schema=NUMBERS)


def roots(columns):
    if (columns["x"] < 0).any():
        raise ValueError("negative")
    return {"k": columns["k"] + 1, "root": np.sqrt(columns["x"])}


ROOTS = {"k": int, "root": float}


class TestBatches:
    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_failing_row_is_found(self, on_error):
        pipeline = od.Pipeline(NUMBERS).map_batches(roots, schema=ROOTS, on_error=on_error)
        rows = check_serial(pipeline, FULL)
        assert [row[0] for row in rows] == ([2] if on_error == "fail" else [2, 4, 5])

    def test_whole_batch_in_one_call(self):
        lengths = []

        def note(columns):
            lengths.append(len(columns["k"]))
            return columns

        kernel = door(od.Pipeline(NUMBERS).map_batches(note, schema=NUMBERS))
        assert kernel.apply(FULL)[0] == [(1, 0.5), (2, -1.0), (3, 4.0), (4, 9.0)]
        assert kernel.apply(FULL, select=[3, 0]) == ([(4, 9.0), (1, 0.5)], [3, 0])
        assert lengths == [4, 2]

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_nulls_are_errors_in_numpy(self, on_error):
        data = pa.record_batch([pa.array([1, 2, None, 4]), pa.array([0.5, 1.0, 4.0, None])], schema=NUMBERS)
        pipeline = od.Pipeline(NUMBERS).map_batches(lambda c: c, schema=NUMBERS, on_error=on_error)
        assert check_serial(pipeline, data) == [(1, 0.5), (2, 1.0)]

    def test_a_failure_before_a_null_comes_first(self):
        data = pa.record_batch([pa.array([1, 2, None]), pa.array([0.5, -1.0, 4.0])], schema=NUMBERS)
        check_serial(od.Pipeline(NUMBERS).map_batches(roots, schema=ROOTS), data)

    @pytest.mark.parametrize("name", COLUMNS)
    @pytest.mark.parametrize("format", ["numpy", "arrow"])
    def test_every_type(self, name, format):
        type_, values = COLUMNS[name]
        schema = pa.schema({"c": type_})
        data = pa.record_batch([pa.array(values * 2, type_)], schema=schema)
        seen = []
        pipeline = od.Pipeline(schema).map_batches(
            lambda batch: seen.append(batch) or batch, schema=schema, format=format
        )
        rows = check_serial(pipeline, data)
        if format == "arrow":
            assert rows == [(value,) for value in values * 2]
        else:
            expected = data.column(0).to_numpy(zero_copy_only=False)
            given = next(columns["c"] for columns in seen if len(columns["c"]) == len(data))
            assert given.dtype == expected.dtype
            assert str(given.tolist()) == str(expected.tolist())

    @pytest.mark.parametrize("name", COLUMNS)
    def test_arrow_nulls_and_slices(self, name):
        type_, values = COLUMNS[name]
        schema = pa.schema({"c": type_})
        data = pa.record_batch([pa.array([None, *values, None], type_)], schema=schema)

        def shifted(batch):
            longer = pa.concat_arrays([pa.nulls(3, type_), batch.column(0), pa.nulls(1, type_)])
            return pa.RecordBatch.from_arrays([longer.slice(3, len(batch))], names=["c"])

        pipeline = od.Pipeline(schema).map_batches(shifted, schema=schema, format="arrow")
        assert check_serial(pipeline, data) == [(None,), *[(v,) for v in values], (None,)]

    @pytest.mark.parametrize(
        "result",
        [
            None, {}, {"k": np.array([1])}, {"k": np.arange(4), "x": np.arange(4)[:3]},
            {"k": np.arange(4), "x": 5.0}, {"k": np.arange(4) + 0.5, "x": np.arange(4)},
            {"k": np.arange(4), "x": np.arange(4), "y": np.arange(4)},
            {"k": np.arange(4).reshape(4, 1), "x": np.arange(4)},
            {"k": np.array(["a"] * 4), "x": np.arange(4)},
        ],
    )  # fmt: skip
    def test_wrong_results(self, result):
        kernel = door(od.Pipeline(NUMBERS).map_batches(lambda columns: result, schema=NUMBERS))
        assert kernel.apply(FULL)[0] == []
        assert kernel.failure[0] == 0

    @pytest.mark.parametrize("dtype", ["i4", "u1", "f4"])
    def test_other_dtypes_are_converted(self, dtype):
        def convert(columns):
            return {"k": columns["k"], "x": columns["k"].astype(dtype)}

        assert check_serial(od.Pipeline(NUMBERS).map_batches(convert, schema=NUMBERS), FULL)[3] == (4, 4.0)

    def test_strided_and_lists(self):
        def strided(columns):
            return {"k": np.repeat(columns["k"], 2)[::2], "x": [float(x) for x in columns["x"]]}

        assert check_serial(od.Pipeline(NUMBERS).map_batches(strided, schema=NUMBERS), FULL)[2] == (3, 4.0)

    def test_arrays_are_the_users(self):
        """What a function keeps or changes is never touched again, and changes nothing else."""
        kept = []

        def keep(columns):
            kept.append((columns["k"], columns["x"][1:]))
            columns["k"] += 100
            return {"k": columns["k"], "x": columns["x"]}

        kernel = door(od.Pipeline(NUMBERS).map_batches(keep, schema=NUMBERS))
        for _ in range(5):
            assert kernel.apply(FULL)[0] == [(101, 0.5), (102, -1.0), (103, 4.0), (104, 9.0)]
        assert len({array.ctypes.data for array, _ in kept}) == 5
        for k, x in kept:
            assert k.tolist() == [101, 102, 103, 104]
            assert x.tolist() == [-1.0, 4.0, 9.0]

    @pytest.mark.parametrize("shown", ["new", "the input", "a view of it"])
    def test_arrays_are_reused_when_nobody_keeps_them(self, shown):
        addresses = []

        def note(columns):
            addresses.append(columns["k"].ctypes.data)
            k = columns["k"]
            return {"k": k + 1 if shown == "new" else k if shown == "the input" else k[:], "x": columns["x"]}

        kernel = door(od.Pipeline(NUMBERS).map_batches(note, schema=NUMBERS))
        for _ in range(5):
            assert kernel.apply(FULL)[0][0] == (2 if shown == "new" else 1, 0.5)
        assert len(set(addresses)) == 1

    def test_arrays_that_were_changed_are_not_reused(self):
        """Each call gets writable arrays of one dimension."""

        def change(columns):
            k, x = columns["k"], columns["x"]
            assert k.shape == (4,)
            assert x.flags.writeable
            answer = {"k": k.copy(), "x": x}
            k.shape = (2, 2)
            x.flags.writeable = False
            return answer

        kernel = door(od.Pipeline(NUMBERS).map_batches(change, schema=NUMBERS))
        for _ in range(3):
            assert kernel.apply(FULL)[0] == [(1, 0.5), (2, -1.0), (3, 4.0), (4, 9.0)]

    def test_workers(self):
        pipeline = od.Pipeline(NUMBERS)
        bound = 1 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
        assert door(pipeline.map_batches(roots, schema=ROOTS)).max_workers == bound
        assert door(pipeline.map_batches(roots, schema=ROOTS, releases_gil=True)).max_workers == 0
        assert door(pipeline.map(lambda row: row, schema=NUMBERS)).max_workers == bound


# ------------------------------------------------------------------------------------------------ process


def total(row, state, emit):
    state.n += 1
    state.total += row.x
    emit(row.k, state.n, state.total)
    if row.x < 0:
        raise ValueError("negative")


STATE = {"n": int, "total": int}
OUTPUT = {"k": int, "n": int, "total": int}
CLICKS = batch(k=[1, 2, 1, None, 1, 2, 3], x=[5, 6, -7, 8, 9, 1, -2], s=["", "a", "b", "", "", "c", ""])


def remember(row, state, emit):
    state.setdefault("seen", []).append(row.x)
    if row.x < 0:
        raise ValueError("negative")
    emit(row.k, len(state["seen"]), sum(state["seen"]))


def encode(state):
    return repr(state).encode()


def decode(data):
    return eval(data)


class TestProcess:
    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    @pytest.mark.parametrize("keyed", [True, False])
    @pytest.mark.parametrize("kind", ["declared", "codec", "undeclared"])
    def test_against_the_reference(self, kind, keyed, on_error):
        options = {
            "declared": {"fn": total, "state": STATE},
            "codec": {"fn": remember, "state": od.codec(encode, decode, dict)},
            "undeclared": {"fn": remember, "init": dict},
        }[kind]
        pipeline = od.Pipeline(SOURCE)
        pipeline = pipeline.key_by("k") if keyed else pipeline
        fn = options.pop("fn")
        check_serial(pipeline.process(fn, schema=OUTPUT, on_error=on_error, **options), CLICKS)

    def test_flush_in_key_order_without_failed_keys(self):
        def flush(key, state, emit):
            emit(key, state.n, state.total)

        pipeline = (
            od.Pipeline(SOURCE)
            .key_by("k")
            .process(total, schema=OUTPUT, state=STATE, on_flush=flush, on_error="skip")
        )
        rows = check_serial(pipeline, CLICKS)
        assert rows[-3:] == [(None, 1, 8), (1, 2, 14), (2, 2, 7)]

    def test_compound_key_and_time(self):
        seen = []

        def tick(key, state, time, emit):
            seen.append((key, time))
            state.n += time
            emit(key[0], state.n, 0)

        def count(row, state, emit):
            state.n += 1

        pipeline = (
            od.Pipeline(SOURCE)
            .key_by("k", "s")
            .process(
                count, schema=OUTPUT, state=STATE, on_time=tick, on_flush=lambda k, s, e: e(k[0], s.n, 1)
            )
        )
        kernel = door(pipeline)
        kernel.process(CLICKS)
        rows, status, keyed = kernel.punctuate(time=60)
        keys = [(None, ""), (1, ""), (1, "b"), (2, "a"), (2, "c"), (3, "")]
        assert seen == [(key, 60) for key in keys]
        assert rows == [(None, 61, 0), (1, 62, 0), (1, 61, 0), (2, 61, 0), (2, 61, 0), (3, 61, 0)]
        assert (status, all(keyed)) == (0, True)
        assert kernel.punctuate()[0] == [
            (key[0], n, 1) for key, n in zip(keys, [61, 62, 61, 61, 61, 61], strict=True)
        ]

    def test_keys_as_python_values(self):
        schema = pa.schema(
            {"d": pa.date32(), "f": pa.float32(), "b": pa.bool_(), "raw": pa.binary(), "u": pa.uint64()}
        )
        keys = [(datetime.date(2020, 1, 1), 0.5, True, b"\x00", 2**64 - 1), (None, None, None, None, None)]
        data = pa.RecordBatch.from_pylist(
            [dict(zip(schema.names, key, strict=True)) for key in keys], schema=schema
        )
        seen = []
        pipeline = (
            od.Pipeline(schema)
            .key_by(*schema.names)
            .process(
                lambda row, state, emit: None,
                schema={"n": int},
                on_flush=lambda key, state, emit: seen.append(key),
            )
        )
        kernel = door(pipeline)
        kernel.process(data)
        kernel.punctuate()
        assert seen == [keys[1], keys[0]]

    def test_flush_without_key(self):
        pipeline = od.Pipeline(SOURCE).process(
            lambda row, state, emit: state.append(row.x), schema={"n": int}, init=list,
            on_flush=lambda key, state, emit: emit(len(state)) if key == () else None,
        )  # fmt: skip
        assert check_serial(pipeline, CLICKS) == [(7,)]
        kernel = door(pipeline)
        assert kernel.punctuate()[0] == []  # no tuple, no state

    @pytest.mark.parametrize("on_error", ["fail", "skip"])
    def test_flush_failure(self, on_error):
        def flush(key, state, emit):
            emit(key, 1, 1)
            state.n = 99
            if key == 2:
                raise KeyError("two")

        pipeline = (
            od.Pipeline(SOURCE)
            .key_by("k")
            .process(
                lambda row, state, emit: None, schema=OUTPUT, state=STATE, on_flush=flush, on_error=on_error
            )
        )
        kernel = door(pipeline)
        kernel.process(CLICKS)
        rows, status, _ = kernel.punctuate()
        if on_error == "fail":
            assert (rows, status) == ([(None, 1, 1), (1, 1, 1)], -1)
            assert kernel.failure[2] == "KeyError: 'two'"
        else:
            assert (rows, status, kernel.skipped) == ([(None, 1, 1), (1, 1, 1), (3, 1, 1)], 0, 1)

    def test_wrong_emits_and_results(self):
        for wrong in [
            lambda row, state, emit: 5,
            lambda row, state, emit: emit(1, 2),
            lambda row, state, emit: emit(1, 2, 3.5),
            lambda row, state, emit: emit("a", 2, 3),
            lambda row, state, emit: setattr(state, "y", 1),
            lambda row, state, emit: setattr(state, "n", None),
            lambda row, state, emit: setattr(state, "n", 1.5),
            lambda row, state, emit: setattr(state, "n", 2**63),
            lambda row, state, emit: state.y,
        ]:
            check_serial(od.Pipeline(SOURCE).key_by("k").process(wrong, schema=OUTPUT, state=STATE), CLICKS)

    def test_emit_dies_with_its_call(self):
        kept = []
        pipeline = od.Pipeline(SOURCE).process(
            lambda row, state, emit: kept.append(emit), schema=OUTPUT, state=STATE
        )
        door(pipeline).process(CLICKS)
        with pytest.raises(RuntimeError, match="had returned"):
            kept[0](1, 2, 3)

    def test_declared_state_values(self):
        """Every kind of field: zeros, conversions, range checks."""
        fields = {
            name: type_
            for name, (type_, _) in COLUMNS.items()
            if name not in ("list", "bools", "dates", "floats", "decimal")
        }
        states = []

        def fill(row, state, emit):
            if row.k == 1 and not states:
                states.append([getattr(state, name) for name in fields])
                for name in fields:
                    setattr(state, name, COLUMNS[name][1][-1])
                states.append([getattr(state, name) for name in fields])
            emit(*[getattr(state, name) for name in fields])

        pipeline = od.Pipeline(SOURCE).process(fill, schema=fields, state=fields)
        kernel = door(pipeline)
        rows = kernel.process(CLICKS)[0]
        assert kernel.failure is None
        states.clear()
        assert rows == run_serial(pipeline, CLICKS).rows
        assert rows[0] == tuple(COLUMNS[name][1][-1] for name in fields)

    def test_state_object(self):
        seen = []
        pipeline = od.Pipeline(SOURCE).process(
            lambda row, state, emit: seen.append(state), schema=OUTPUT, state=STATE
        )
        door(pipeline).process(CLICKS)
        state = seen[0]
        assert repr(state) == "State(n=0, total=0)"
        assert dir(state) == ["n", "total"]
        with pytest.raises(AttributeError, match="no field 'x'; it has: n, total"):
            _ = state.x

    def test_state_size_is_reported(self):
        kernel = door(
            od.Pipeline(SOURCE).key_by("k").process(total, schema=OUTPUT, state=STATE, on_error="skip")
        )
        empty = kernel.bytes()
        kernel.process(CLICKS)
        assert kernel.bytes() > empty

    def test_buckets_free_their_states(self):
        class Counted:
            alive = 0

            def __init__(self):
                Counted.alive += 1

            def __del__(self):
                Counted.alive -= 1

        kernel = door(od.Pipeline(SOURCE).key_by("k").process(lambda *_: None, schema=OUTPUT, init=Counted))
        kernel.process(CLICKS)
        assert Counted.alive == 4
        del kernel
        gc.collect()
        assert Counted.alive == 0

    def test_random_against_the_reference(self):
        rng = random.Random(7)
        for on_error in ("fail", "skip"):
            for _ in range(20):
                n = rng.randrange(1, 60)
                low = -3 if on_error == "skip" else 0
                data = batch(
                    k=[rng.choice([None, 1, 2, 3, 10**12]) for _ in range(n)],
                    x=[rng.randrange(low, 20) for _ in range(n)],
                )
                flush = lambda key, state, emit: emit(key, state.n, state.total)  # noqa: E731
                pipeline = (
                    od.Pipeline(SOURCE)
                    .key_by("k")
                    .process(total, schema=OUTPUT, state=STATE, on_flush=flush, on_error=on_error)
                )
                check_serial(pipeline, data)
