"""The promise, 5: an error names operator, serial and row; all outputs before that serial, none after."""

from __future__ import annotations

import threading
import time
import weakref

import pyarrow as pa
import pytest
from patience import measured, patiently
from property.compare import agree, run_core

import ordstream as od
from ordstream.reference.run_serial import run_serial

N = 40
DATA = pa.table({"i": pa.array(range(1, N + 1), pa.int64()), "key": [i % 3 for i in range(N)]})


class Broken(Exception):
    """What the functions of these tests raise."""


def breaks_at(serial):
    def fn(row):
        if row.i == serial:
            raise Broken(f"at {serial}")
        return (row.i, row.key)

    return fn


def delivered(stream):
    """Rows until the end, and what ended it."""
    rows = []
    try:
        for batch in stream:
            rows += batch.to_pylist()
    except od.OrdstreamError as error:
        return rows, error
    return rows, None


@pytest.mark.parametrize("chunk_rows", [1, 7, None])
@pytest.mark.thin(60)
def test_stops_at_each_serial_of_a_built_in(how, chunk_rows):
    for serial in (1, 2, 7, 8, N):
        divisor = pa.array([0 if i + 1 == serial else 1 for i in range(N)], pa.int64())
        data = DATA.append_column("d", divisor)
        pipeline = (
            od.Pipeline(data.schema).with_columns(q=od.col("i") // od.col("d"), name="divide").key_by("key")
        )
        pipeline = pipeline.scan(total=od.sum("q"))
        found = run_core(pipeline, data, chunk_rows=chunk_rows, **how)
        assert [tag for tag, _ in found.tags] == list(range(1, serial))
        assert (found.error.operator, found.error.serial) == ("divide", serial)
        assert found.error.row == {"i": serial, "key": (serial - 1) % 3, "d": 0}


def test_cause_of_a_built_in_is_the_builtin_exception(how):
    big = pa.table({"x": pa.array([1, 2**63 - 1, 1, 1], pa.int64())})
    zero = pa.table({"x": pa.array([1, 0], pa.int64())})
    for data, build, cause in (
        (big, lambda p: p.with_columns(y=od.col("x") + 1), OverflowError),
        (big, lambda p: p.scan(y=od.sum("x")), OverflowError),
        (zero, lambda p: p.with_columns(y=1 // od.col("x")), ZeroDivisionError),
        (big, lambda p: p.with_columns(y=od.col("x").cast(pa.int8())), OverflowError),
        (
            pa.table({"x": [1.0, float("nan")]}),
            lambda p: p.select(y=od.col("x").cast(pa.int64())),
            OverflowError,
        ),
        (pa.table({"x": [1, None]}), lambda p: p.key_by("x").sessionize("x", 1), ValueError),
        (pa.table({"x": [1, None], "k": [1, 1]}), lambda p: p.top_k(1, by="x"), ValueError),
    ):
        pipeline = build(od.Pipeline(data.schema))
        expected = run_serial(pipeline, data)
        found = run_core(pipeline, data, **how)
        assert isinstance(expected.error.__cause__, cause)
        assert isinstance(found.error.__cause__, cause), found.error
        agree(pipeline, expected, found)


@pytest.mark.parametrize("chunk_rows", [1, 7, None])
@pytest.mark.thin(60)
def test_stops_at_each_serial_of_a_function(how, chunk_rows):
    for serial in (1, 7, 8, N):
        pipeline = (
            od.Pipeline(DATA.schema)
            .map(breaks_at(serial), schema=DATA.schema, name="mine")
            .key_by("key")
            .count()
        )
        found = run_core(pipeline, DATA, chunk_rows=chunk_rows, **how)
        assert [tag for tag, _ in found.tags] == list(range(1, serial))
        assert (found.error.operator, found.error.serial) == ("mine", serial)
        assert found.error.row == {"i": serial, "key": (serial - 1) % 3}
        assert isinstance(found.error.__cause__, Broken)
        assert "Broken: at" in str(found.error)


def test_the_first_error_in_order_wins(how):
    """A later serial fails in an earlier operator, and a function before them is slow."""
    for first, second in ((5, 6), (6, 5), (20, 5)):
        pipeline = (
            od.Pipeline(DATA.schema)
            .map(breaks_at(first), schema=DATA.schema, name="one")
            .key_by("key")
            .scan(n=od.count())
            .select("i", "key")
            .map(breaks_at(second), schema=DATA.schema, name="two")
        )
        found = run_core(pipeline, DATA, chunk_rows=1, **how)
        assert found.error.operator == ("one" if first < second else "two")
        agree(pipeline, run_serial(pipeline, DATA), found)


def test_rows_of_the_failing_serial_before_the_failure_are_delivered(how):
    """Three outputs of serial 4, the second of which fails in the next operator."""

    def fn(row):
        if row.j == 41:
            raise Broken
        return (row.j,)

    pipeline = (
        od.Pipeline(DATA.schema)
        .flat_map(lambda row: [(row.i * 10 + j,) for j in range(3)], schema={"j": int})
        .map(fn, schema={"j": int})
    )
    found = run_core(pipeline, DATA, chunk_rows=2, **how)
    assert [value for ((_, value),) in found.rows] == [10, 11, 12, 20, 21, 22, 30, 31, 32, 40]
    agree(pipeline, run_serial(pipeline, DATA), found)


@pytest.mark.parametrize("buckets", [1, 3])
def test_failing_flush(how, buckets):
    """Keys before the failing one are delivered; no single tuple is to blame."""

    def on_flush(key, state, emit):
        if key == 1:
            raise Broken
        emit(state.n)

    def fn(row, state, emit):
        state.n += 1

    pipeline = (
        od.Pipeline(DATA.schema)
        .key_by("key")
        .process(fn, schema={"n": int}, state={"n": int}, on_flush=on_flush)
    )
    found = run_core(pipeline, DATA, buckets=buckets, **how)
    agree(pipeline, run_serial(pipeline, DATA), found)
    assert found.error.row is None
    assert found.error.serial == N
    assert len(found.rows) == 1


def test_skip_drops_the_tuple_and_leaves_the_state(how):
    def fn(row, state, emit):
        state.n += 1
        emit(state.n)
        if row.i % 4 == 0:
            raise Broken
        emit(row.i)

    pipeline = (
        od.Pipeline(DATA.schema)
        .filter(12 // (od.col("i") % 5) > 0, on_error="skip", name="fifth")
        .key_by("key")
        .process(fn, schema={"n": int}, state={"n": int}, on_error="skip", name="fourth")
    )
    found = run_core(pipeline, DATA, chunk_rows=3, **how)
    agree(pipeline, run_serial(pipeline, DATA), found)
    assert {o.name: o.skipped for o in found.report.operators} == {"fifth": 8, "fourth": 8}
    first = {o.name: (o.first_skipped.serial, o.first_skipped.reason) for o in found.report.operators}
    assert first == {
        "fifth": (5, "ZeroDivisionError: integer division or modulo by zero"),
        "fourth": (4, "Broken: "),
    }
    assert found.report.skipped == 16


def test_the_first_that_was_skipped_is_shown_whoever_met_it_first(how):
    """In each operator the smallest serial, with the text that its own exception had."""

    def refuses(row):
        if row.i % 3 == 0:
            raise Broken(f"i is {row.i}")
        return tuple(row)

    def fn(row, state, emit):
        state.n += 1
        if row.i % 4 == 2 and row.i > 4:
            raise Broken(f"{row.i} of {row.key}")
        emit(*row)

    def on_flush(key, state, emit):
        raise Broken(f"at the end of {key}")

    pipeline = (
        od.Pipeline(DATA.schema)
        .map(refuses, schema=DATA.schema, on_error="skip", name="refusing")
        .key_by("key")
        .process(fn, schema=DATA.schema, state={"n": int}, on_error="skip", name="folding")
        .key_by("key")
        .process(
            lambda row, state, emit: None,
            schema={"n": int},
            state={"n": int},
            on_flush=on_flush,
            on_error="skip",
            name="ending",
        )
    )
    expected = run_serial(pipeline, DATA)
    result = pipeline.run(DATA, chunk_rows=2, **how)
    found = {o.name: o for o in result.report.operators if o.skipped}
    for name, operator in found.items():
        noted = [
            (at, why) for (of, at), why in zip(expected.skipped, expected.reasons, strict=True) if of == name
        ]
        assert operator.skipped == len(noted)
        assert (operator.first_skipped.serial, operator.first_skipped.reason) in [
            note for note in noted if note[0] == noted[0][0]
        ]
    assert list(found) == ["refusing", "folding", "ending"]
    lines = [line for line in str(result.report).splitlines() if line.startswith("skipped")]
    assert (
        lines[0]
        == f"skipped 13 tuples in 'refusing' (on_error=\"skip\"), of {N} tuples; first at serial 3: "
        f"Broken: i is 3"
    )
    assert [line.rpartition(";")[2] for line in lines[1:]] == [
        " first at serial 10: Broken: 10 of 0",
        f" first at serial {N}: {found['ending'].first_skipped.reason}",
    ]
    assert f"{expected.table.num_rows} rows from {N} tuples, {result.report.skipped} skipped" in repr(result)


def test_the_first_that_was_skipped_is_the_first_in_the_order_not_the_first_noted(workers):
    """NumPy can't be given the null of the fifth row, which is seen before the function fails at the
    third.
    """
    data = pa.table({"x": pa.array([1, 2, 0, 4, None, 6], pa.int64())})

    def fn(columns):
        if (columns["x"] == 0).any():
            raise Broken("a zero")
        return {"x": columns["x"]}

    pipeline = od.Pipeline(data.schema).map_batches(fn, schema=data.schema, on_error="skip")
    (operator,) = pipeline.run(data, workers=workers, chunk_rows=6).report.operators
    assert (operator.skipped, operator.first_skipped.serial, operator.first_skipped.reason) == (
        2,
        3,
        "Broken: a zero",
    )


def test_the_text_of_a_skipped_row_is_cut_and_holds_no_exception(workers):
    """An exception that nobody can show, a long one, and one with surrogates; none is kept."""
    kept = []

    class Odd(Exception):
        def __init__(self, text):
            super().__init__(text)
            kept.append(weakref.ref(self))

    class Unshown(Odd):
        def __str__(self):
            raise RuntimeError

    for kind, text, shown in (
        (Odd, "é" * 400, "Odd: " + "é" * 125 + "..."),
        (Odd, "\ud800", "Odd: ?"),
        (Unshown, "", "Unshown"),
    ):

        def fn(row, kind=kind, text=text):
            raise kind(text)

        pipeline = od.Pipeline(DATA.schema).map(fn, schema=DATA.schema, on_error="skip")
        (operator,) = pipeline.run(DATA, workers=workers).report.operators
        assert (operator.skipped, operator.first_skipped.serial, operator.first_skipped.reason) == (
            N,
            1,
            shown,
        )
    assert len(kept) == 3 * N
    assert all(reference() is None for reference in kept)


def test_emitted_through_an_error_is_the_commit_point(how):
    """All outputs of the serials up to it were delivered, and none of a later one is missing below it."""
    pipeline = od.Pipeline(DATA.schema).map(breaks_at(23), schema=DATA.schema)
    with pipeline.stream(DATA, chunk_rows=4, **how) as out:
        rows, error = delivered(out)
    assert [row["i"] for row in rows] == list(range(1, 23))
    assert error.serial == 23
    assert out.report.emitted_through == od.OrderTag(22, 0)


def test_the_row_of_an_error_is_there_when_a_column_is_not_read(workers):
    data = pa.table({"x": pa.array([1, 2**63 - 1], pa.int64()), "unread": ["a", "b"]})
    pipeline = od.Pipeline(data.schema).select(y=od.col("x") + 1)
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(data, workers=workers)
    assert (caught.value.row or {}).get("x") == 2**63 - 1


def test_the_row_of_an_error_shows_no_wrong_values(workers):
    data = pa.table({"g": [1], "x": pa.array([2**64 - 1], pa.uint64()), "unread": [[1]]})
    pipeline = od.Pipeline(data.schema).top_k(5, by="x", key="g").scan(r=od.mean("x")).drop("unread")
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(data, workers=workers)
    assert caught.value.row.get("unread", [1]) == [1]


def test_a_row_that_python_cannot_show_is_still_an_operator_error(workers):
    """Arrow has dates that `datetime` has not."""
    data = pa.table({"d": pa.array([10**7], pa.int32()).cast(pa.date32()), "x": [0]})
    pipeline = od.Pipeline(data.schema).with_columns(y=1 // od.col("x"))
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(data, workers=workers)
    assert caught.value.row["x"] == 0


LONG = "x" * 1_000_000  # a mistake may hold all of a column


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "mistaken",
    {
        "a value": lambda p: p.map(lambda row: (LONG,), schema={"i": int}),
        "no row": lambda p: p.map(lambda row: LONG, schema={"i": int}),
        "too many": lambda p: p.map(lambda row: (1, LONG), schema={"i": int}),
        "no rows": lambda p: p.flat_map(lambda row: LONG, schema={"i": int}),
        "no bool": lambda p: p.filter(lambda row: LONG),
        "emitted": lambda p: p.process(lambda row, state, emit: emit(LONG, 1), schema={"i": int}),
        "returned": lambda p: p.process(lambda row, state, emit: LONG, schema={"i": int}),
        "of a function": lambda p: p.map(lambda row: (int(LONG, 2),), schema={"i": int}),
    }.values(),
)
def test_the_text_of_an_error_has_a_length(mistaken, workers):
    """What a function gave by mistake is shown by its beginning, in a run and in run_serial."""
    pipeline = mistaken(od.Pipeline(DATA.schema))
    with pytest.raises(od.OperatorError, match="xxxx") as failed:
        pipeline.run(DATA, workers=workers)
    assert len(str(failed.value)) < 1_000
    assert failed.value.reason == run_serial(pipeline, DATA).error.reason


# ------------------------------------------------------------------------------------------------ ends


def test_failing_source(how):
    def source():
        yield DATA.slice(0, 15).to_batches()[0]
        raise Broken("no more")

    pipeline = od.Pipeline(DATA.schema).key_by("key").scan(n=od.count())
    rows, error = delivered(pipeline.stream(source(), **how))
    assert [row["i"] for row in rows] == list(range(1, 16))
    assert isinstance(error, od.SourceError)
    assert isinstance(error.__cause__, Broken)
    assert "after 15 tuples" in str(error)


def test_failing_source_does_not_flush(how):
    """An error is no end of the stream: what a flush would emit is not delivered."""

    def source():
        yield from DATA.to_batches()
        raise Broken

    pipeline = od.Pipeline(DATA.schema).key_by("key").count(emit="final")
    rows, error = delivered(pipeline.stream(source(), **how))
    assert rows == []
    assert isinstance(error, od.SourceError)


def test_consumer_that_raises_ends_the_run(how):
    pipeline = od.Pipeline(DATA.schema).filter(od.col("i") > 0)
    stream = pipeline.stream(DATA.to_batches(2), chunk_rows=1, **how)

    def consume():
        with stream as out:
            next(out)
            raise Broken

    with pytest.raises(Broken):
        consume()
    # and the fixture nothing_left sees that no thread is left
    assert stream.report.emitted_through.serial <= N


def test_abandoned_stream_ends(how):
    stream = od.Pipeline(DATA.schema).filter(od.col("i") > 0).stream(DATA.to_batches(1), **how)
    next(stream)
    del stream  # the fixture nothing_left looks for its threads


def test_cancel_ends_within_a_second(how):
    pulled = threading.Event()

    def source():
        while True:
            yield DATA.to_batches()[0]
            pulled.set()

    def check():
        stream = od.Pipeline(DATA.schema).key_by("key").count().stream(source(), **how)
        timer = threading.Timer(0.02, stream.cancel)
        start = time.monotonic()
        timer.start()
        _, error = delivered(stream)
        timer.join()
        assert isinstance(error, od.Cancelled)
        measured(pulled.is_set() and time.monotonic() - start < 1.0)

    patiently(check)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("kind", ["map", "filter", "flat_map", "process", "process by key"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_cancel_does_not_wait_for_the_rows_of_a_chunk_that_a_function_has(kind, workers, on_error):
    calls, third = [], threading.Event()
    stream = None

    def step(row, *state_and_emit):
        calls.append(row.i)
        if len(calls) == 3:
            stream.cancel()
            third.set()
        if state_and_emit:
            return state_and_emit[1](row.i, row.key)
        return {"filter": True, "flat_map": [tuple(row)]}.get(kind, tuple(row))

    pipeline = od.Pipeline(DATA.schema)
    if kind == "filter":
        pipeline = pipeline.filter(step, on_error=on_error)
    elif kind == "map":
        pipeline = pipeline.map(step, schema=DATA.schema, on_error=on_error)
    elif kind == "flat_map":
        pipeline = pipeline.flat_map(step, schema=DATA.schema, on_error=on_error)
    else:
        keyed = pipeline.key_by("key") if kind == "process by key" else pipeline
        pipeline = keyed.process(
            step, schema=DATA.schema, state=pa.schema([("n", pa.int64())]), on_error=on_error
        )
    stream = pipeline.stream(DATA, workers=workers, chunk_rows=N)
    rows, error = delivered(stream)
    assert third.is_set()
    assert isinstance(error, od.Cancelled)
    assert len(calls) == 3
    assert rows == DATA.slice(0, len(rows)).to_pylist()
    assert len(rows) <= 3
    assert stream.report.emitted_through.serial <= 3
    assert all(o.skipped == 0 for o in stream.report.operators)
