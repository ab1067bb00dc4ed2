"""What a run's own source, functions, callbacks and signal handlers may do to it: stop it, close it,
raise what they like. It ends.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.reference.run_serial import run_serial

N = 200
DATA = pa.table({"i": range(1, N + 1)})
PIPELINE = od.Pipeline(DATA.schema)


def taken(stream):
    """Rows until the end, and what ended it."""
    rows = []
    try:
        for batch in stream:
            rows += batch["i"].to_pylist()
    except BaseException as error:  # SystemExit as well
        return rows, error
    return rows, None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RuntimeError])
def test_whatever_the_source_raises_reaches_the_reader(kind, workers):
    """An exception that is no Exception ends a thread silently: the reader must not wait for it."""

    def source():
        yield from DATA.to_batches()
        raise kind("no more")

    with PIPELINE.stream(source(), workers=workers) as stream:
        rows, error = taken(stream)
    assert isinstance(error if not issubclass(kind, Exception) else error.__cause__, kind)
    assert rows == list(range(1, len(rows) + 1))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit, MemoryError])
def test_whatever_a_function_raises_reaches_the_reader(kind, workers):
    def fn(row):
        if row.i == 7:
            raise kind
        return tuple(row)

    with PIPELINE.map(fn, schema=DATA.schema).stream(DATA, workers=workers, chunk_rows=3) as stream:
        rows, error = taken(stream)
    assert isinstance(error.__cause__ if kind is StopIteration else error, kind)
    assert rows == list(range(1, len(rows) + 1))
    assert len(rows) < 7
    if kind is MemoryError:  # the user's own, which can't carry our fields
        assert error.__notes__ == ["in operator 'map_1', serial 7, row {'i': 7}"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("who", ["source", "function", "progress"])
@pytest.mark.parametrize("what", ["close", "cancel", "next"])
def test_a_run_ends_from_inside(what, who, workers, monkeypatch):
    """Its memory must outlive the call that ended it."""
    made = []

    def act():
        {"close": made[0].close, "cancel": made[0].cancel, "next": lambda: next(made[0])}[what]()

    def source():
        for number, batch in enumerate(DATA.to_batches(10)):
            if number == 5:
                act()
            yield batch

    def fn(row):
        if row.i == 50:
            act()
        return tuple(row)

    told = []

    def progress(*_):
        told.append(1)
        if len(told) == 1:
            act()

    pipeline = PIPELINE.map(fn if who == "function" else tuple, schema=DATA.schema)
    options = {"progress": progress} if who == "progress" else {}
    made.append(
        pipeline.stream(source() if who == "source" else DATA, workers=workers, chunk_rows=4, **options)
    )
    rows, error = taken(made[0])
    assert rows == list(range(1, len(rows) + 1))
    if what == "next":
        cause = error if who == "progress" else error.__cause__
        assert isinstance(cause, RuntimeError)
        assert "can't be read by its own" in str(cause)
    else:
        assert error is None or isinstance(error, od.Cancelled)
    for _ in range(100):  # close() called on a worker's thread is carried out by another one
        if made[0]._closed:
            break
        time.sleep(0.02)
    assert made[0].report.emitted_through.serial <= N
    for thread in threading.enumerate():
        if thread.name == "ordstream-closer":
            thread.join()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["close", "cancel"])
def test_a_signal_handler_ends_a_run(what, workers):
    """It interrupts the very thread that reads."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("no timer signals here")
    seen = threading.Event()

    def fn(row):
        seen.wait(10)  # the handler has been called
        return tuple(row)

    stream = PIPELINE.map(fn, schema=DATA.schema).stream(DATA, workers=workers, chunk_rows=1)

    def handler(*_):
        getattr(stream, what)()
        seen.set()

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        rows, error = taken(stream)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert error is None or isinstance(error, od.Cancelled)
    assert len(rows) < N
    stream.close()
    assert stream.report.emitted_through.serial < N


@pytest.mark.timeout(60)
def test_a_stream_that_its_own_worker_collects():
    """Garbage is collected on whatever thread allocates: here on the worker's, in the user's function."""
    go = threading.Event()

    class Holder:
        pass

    def fn(row):
        if row.i > 1:
            go.wait(10)
            gc.collect()
        return tuple(row)

    def abandoned():
        holder = Holder()
        holder.itself = holder
        holder.stream = PIPELINE.map(fn, schema=DATA.schema).stream(DATA, workers=1, chunk_rows=1)
        next(holder.stream)
        return weakref.ref(holder.stream)

    gc.disable()
    try:
        stream = abandoned()
        go.set()
        deadline = time.monotonic() + 30
        while (
            stream() is not None or any(t.name.startswith("ordstream") for t in threading.enumerate())
        ) and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        gc.enable()
    assert stream() is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_function_without_an_end_is_cancelled(on_error, workers):
    """A generator that never stops makes outputs of one tuple for ever; the run can still be stopped
    between them.
    """
    stream = None
    made = []

    def fn(row):
        while True:
            made.append(row.i)
            if len(made) == 1000:
                stream.cancel()
            yield tuple(row)

    stream = PIPELINE.flat_map(fn, schema=DATA.schema, on_error=on_error).stream(DATA, workers=workers)
    rows, error = taken(stream)
    assert rows == []
    assert isinstance(error, od.Cancelled)
    assert all(o.skipped == 0 for o in stream.report.operators)


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (pa.array([b"\xff\xfe"]).cast(pa.binary()).view(pa.string()), b"\xff\xfe"),
        (pa.array([5], pa.timestamp("us", "Nowhere/At_all")), "5"),
        (pa.array([10**7], pa.int32()).cast(pa.date32()), "10000000"),
    ],
    ids=["not UTF-8", "unknown time zone", "after year 9999"],
)
def test_a_failing_row_that_python_cannot_show(column, shown, workers):
    data = pa.table({"value": column, "x": pa.array([0])})
    pipeline = od.Pipeline(data.schema).with_columns(y=1 // od.col("x"))
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(data, workers=workers)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.row == {"value": shown, "x": 0}
    if isinstance(shown, str):  # text that is not UTF-8 is refused by the reference as a value
        expected = run_serial(pipeline, data).error
        assert isinstance(expected, od.OperatorError)
        assert expected.row == caught.value.row


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)
def test_one_of_several_sources_that_is_read_beside_the_others(options):
    """With `idle` each has a thread of its own: it took rows of its reader, or both waited for ever."""
    made, errors = [], []

    def source():
        for batch in DATA.to_batches(10):
            if len(errors) < 3:
                try:
                    next(made[0])
                except RuntimeError as error:
                    errors.append(str(error))
            yield batch

    ways = [od.Pipeline(DATA.schema, source=name) for name in "ab"]
    pipeline = od.union(*ways)
    made.append(pipeline.stream({"a": source(), "b": DATA}, merge_by="i", idle="1h", **options))
    rows, error = taken(made[0])
    assert error is None
    assert rows == run_serial(pipeline, {"a": DATA, "b": DATA}, merge_by="i").table["i"].to_pylist()
    assert len(errors) == 3
    assert all("can't be read by its own source" in text for text in errors)
