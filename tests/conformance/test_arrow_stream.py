"""A stream as an Arrow stream: what Polars, DuckDB and pyarrow read is the run's output, as far as they
ask for it, and its errors.
"""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od

SCHEMA = pa.schema(
    [
        pa.field("x", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("l", pa.list_(pa.float64())),
        ("t", pa.timestamp("us")),
        ("b", pa.bool_()),
    ]
)


def rows(n: int) -> pa.Table:
    return pa.table(
        {
            "x": range(n),
            "s": [None if i % 5 == 0 else f"é{i}" for i in range(n)],
            "l": [None if i % 7 == 0 else [i / 2, float(-i), 0.5][: i % 4] for i in range(n)],
            "t": [None if i % 11 == 0 else i * 1_000_000 for i in range(n)],
            "b": [None if i % 3 == 0 else i % 2 == 0 for i in range(n)],
        },
        schema=SCHEMA,
    )


TABLE = rows(2_000)


def refuse_1500(row: Any) -> bool:
    if row.x == 1_500:
        raise KeyError("fifteen hundred")
    return row.x % 10 != 3


def pipeline(predicate: Any = None) -> od.Pipeline:
    return od.Pipeline(SCHEMA).filter(od.col("x") % 10 != 3 if predicate is None else predicate)


# ------------------------------------------------------------------------------------------------ consumers


def polars_frame(stream: Any) -> pa.Table:
    return pytest.importorskip("polars").DataFrame(stream).to_arrow()


def polars_from_arrow(stream: Any) -> pa.Table:
    return pytest.importorskip("polars").from_arrow(stream).struct.unnest().to_arrow()


def duckdb_variable(stream: Any) -> pa.Table:
    return pa.table(pytest.importorskip("duckdb").connect().sql("select * from stream"))


def duckdb_from_arrow(stream: Any) -> pa.Table:
    return pa.table(pytest.importorskip("duckdb").connect().from_arrow(stream))


def duckdb_reader(stream: Any) -> pa.Table:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", pa.RecordBatchReader.from_stream(stream))
    return pa.table(connection.sql("select * from rows"))


def pandas_frame(stream: Any) -> pa.Table:
    pandas = pytest.importorskip("pandas")
    return pa.Table.from_pandas(
        stream.to_pandas(types_mapper=pandas.ArrowDtype), schema=SCHEMA, preserve_index=False
    )


def pandas_from_arrow(stream: Any) -> pa.Table:
    pandas = pytest.importorskip("pandas", minversion="3")
    return pa.table(pandas.DataFrame.from_arrow(stream))


def another_run(stream: Any) -> pa.Table:
    return od.Pipeline(SCHEMA).filter(od.lit(True)).run(stream, workers=1).table


CONSUMERS = {
    "pyarrow table": pa.table,
    "pyarrow reader": lambda stream: pa.RecordBatchReader.from_stream(stream).read_all(),
    "polars": polars_frame,
    "polars from_arrow": polars_from_arrow,
    "duckdb variable": duckdb_variable,
    "duckdb from_arrow": duckdb_from_arrow,
    "duckdb reader": duckdb_reader,
    "pandas": pandas_frame,
    "pandas from_arrow": pandas_from_arrow,
    "another run": another_run,
}


@pytest.fixture(params=CONSUMERS)
def consume(request: pytest.FixtureRequest) -> Any:
    return CONSUMERS[request.param]


def fitted(table: pa.Table) -> pa.Table:
    """The columns as the pipeline names and types them: Polars and DuckDB have layouts of their own.
    Names and rows are theirs.
    """
    assert table.column_names == SCHEMA.names
    return pa.Table.from_pylist(table.to_pylist(), schema=SCHEMA)


@pytest.mark.parametrize("n", [0, 1, 2_000])
def test_a_consumer_gets_the_output_in_order(consume: Any, n: int, workers: int) -> None:
    table = TABLE.slice(0, n)
    expected = pipeline().run(table, workers=0).table
    stream = pipeline().stream(table.to_batches(64), workers=workers, chunk_rows=32)
    assert fitted(consume(stream)).to_pylist() == expected.to_pylist()
    assert stream.report.rows_out == expected.num_rows, "the report is complete: the stream is closed"


def test_a_result_is_read_as_often_as_one_likes(consume: Any) -> None:
    result = pipeline().run(TABLE, workers=1)
    for _ in range(2):
        assert fitted(consume(result)).to_pylist() == result.table.to_pylist()


def test_an_error_of_the_run_reaches_the_consumer(consume: Any, workers: int) -> None:
    stream = pipeline(refuse_1500).stream(TABLE.to_batches(64), workers=workers)
    with pytest.raises(Exception, match=r"operator 'filter_1' failed at serial 1501.*fifteen hundred"):
        consume(stream)
    assert stream.report.tuples, "closed"


def test_between_runs_an_error_stays_an_exception() -> None:
    stream = pipeline(refuse_1500).stream(TABLE, workers=1)
    with pytest.raises(od.OperatorError) as raised:
        another_run(stream)
    assert isinstance(raised.value.__cause__, KeyError)


def test_after_an_error_there_is_no_end() -> None:
    """A consumer that asks again must not take the failure for the end of the rows."""
    reader = pa.RecordBatchReader.from_stream(pipeline(refuse_1500).stream(TABLE, workers=0))
    for _ in range(3):
        with pytest.raises(pa.ArrowInvalid, match="serial 1501"):
            reader.read_all()


# ------------------------------------------------------------------------------------- lazily, once


def test_batches_are_pulled_as_the_consumer_asks(workers: int) -> None:
    given = []

    def source() -> Any:
        for k in range(100_000):
            given.append(k)
            yield TABLE.to_batches()[0]

    stream = pipeline().stream(source(), workers=workers, max_bytes=8 << 20)
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.schema == SCHEMA
    assert given == [], "a look at the schema runs nothing"
    assert reader.read_next_batch().num_rows
    del reader
    assert len(given) < 90_000
    assert stream.report.rows_out, "the consumer has let go: the stream is closed"
    assert list(stream) == []


def test_a_look_at_the_schema_leaves_the_stream_as_it_is() -> None:
    with pipeline().stream(TABLE, workers=2) as stream:
        for _ in range(3):
            assert pa.RecordBatchReader.from_stream(stream).schema == SCHEMA
            stream.__arrow_c_stream__()  # a capsule that nobody reads
        assert pa.Table.from_batches(stream).equals(pipeline().run(TABLE, workers=0).table)


def test_what_was_read_before_does_not_come_again() -> None:
    expected = pipeline().run(TABLE, workers=0).table
    stream = pipeline().stream(TABLE.to_batches(10), workers=0)
    first = next(stream)
    assert 0 < first.num_rows < expected.num_rows
    assert pa.table(stream).equals(expected.slice(first.num_rows))


@pytest.mark.parametrize("how", ["exhausted", "closed", "handed over"])
def test_a_stream_is_read_once(how: str) -> None:
    stream = pipeline().stream(TABLE.to_batches(10), workers=1)
    if how == "exhausted":
        list(stream)
    elif how == "closed":
        stream.close()
    else:
        reader = pa.RecordBatchReader.from_stream(stream)
        reader.read_next_batch()
    with pytest.raises(pa.ArrowInvalid, match="this stream has been read"):
        pa.table(stream)


def test_a_query_that_reads_it_twice_is_refused() -> None:
    duckdb = pytest.importorskip("duckdb")
    stream = pipeline().stream(TABLE.to_batches(10), workers=1)
    connection = duckdb.connect()
    connection.register("rows", stream)
    with pytest.raises(duckdb.Error, match="this stream has been read"):
        connection.sql("select count(*) from rows a, rows b where a.x = b.x").fetchall()


def test_a_consumer_on_another_thread(workers: int) -> None:
    stream = pipeline().stream(TABLE.to_batches(10), workers=workers)
    found = []
    thread = threading.Thread(target=lambda: found.append(pa.table(stream)))
    thread.start()
    thread.join()
    assert found[0].equals(pipeline().run(TABLE, workers=0).table)


def test_a_pull_on_another_thread_comes_back() -> None:
    """With nothing, where there is nothing yet: its consumer hears signals, or that it is no longer
    wanted, only between pulls.
    """
    go_on = threading.Event()

    def source() -> Any:
        yield TABLE.to_batches()[0]
        go_on.wait()

    stream = od.Pipeline(SCHEMA).filter(od.col("x") < 0).stream(source(), workers=1)
    found: list[int] = []

    def pull() -> None:
        found.append(reader.read_next_batch().num_rows)
        go_on.set()
        found.extend(batch.num_rows for batch in reader)

    reader = pa.RecordBatchReader.from_stream(stream)
    thread = threading.Thread(target=pull)
    thread.start()
    thread.join()
    assert found
    assert not any(found)


def test_let_go_on_another_thread_while_the_source_goes_on() -> None:
    def source() -> Any:
        while True:
            yield TABLE.to_batches()[0]

    readers = [pa.RecordBatchReader.from_stream(pipeline().stream(source(), workers=2))]
    readers[0].read_next_batch()
    thread = threading.Thread(target=readers.clear)
    thread.start()
    thread.join()
    assert not [t.name for t in threading.enumerate() if t.name.startswith("ordstream-worker")]


def test_cancel_reaches_the_consumer() -> None:
    def source() -> Any:
        while True:
            yield TABLE.to_batches()[0]

    stream = pipeline().stream(source(), workers=1)
    reader = pa.RecordBatchReader.from_stream(stream)
    reader.read_next_batch()
    stream.cancel()
    with pytest.raises(pa.ArrowInvalid, match="Cancelled"):
        reader.read_all()


# ------------------------------------------------------------------------- requested schema, pandas


class Asking:
    """Hands a stream over with a schema of its own."""

    def __init__(self, stream: Any, schema: pa.Schema) -> None:
        self.stream, self.schema = stream, schema

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.stream.__arrow_c_stream__(self.schema.__arrow_c_schema__())


def test_a_requested_schema_is_another_form_of_the_same_columns() -> None:
    wanted = (
        SCHEMA.set(1, pa.field("s", pa.large_string()))
        .set(0, pa.field("x", pa.int32()))
        .set(3, pa.field("t", pa.timestamp("ns")))
    )
    got = pa.table(Asking(pipeline().stream(TABLE, workers=1), wanted))
    assert got.schema == wanted
    assert got.equals(pipeline().run(TABLE, workers=0).table.cast(wanted))
    assert pa.table(Asking(pipeline().stream(TABLE, workers=0), SCHEMA)).schema == SCHEMA


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (SCHEMA.remove(0), ValueError, "asked for were"),
        (SCHEMA.set(0, pa.field("z", pa.int64())), ValueError, "asked for were"),
        (SCHEMA.set(2, pa.field("l", pa.int64())), pa.ArrowException, None),
        (SCHEMA.set(1, pa.field("s", pa.string(), nullable=False)), pa.ArrowInvalid, "without nulls"),
        (SCHEMA.set(0, pa.field("x", pa.int8())), pa.ArrowInvalid, "not in range"),
    ],
    ids=["a column less", "another name", "no cast", "nulls", "too small"],
)
def test_a_requested_schema_that_can_not_be(
    wanted: pa.Schema, error: type[Exception], text: str | None
) -> None:
    with pipeline().stream(TABLE, workers=0) as stream, pytest.raises(error, match=text):
        pa.table(Asking(stream, wanted))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_of_a_stream_is_refused_and_the_stream_goes_on(way: Any) -> None:
    """It was "no default __reduce__ due to non-trivial __cinit__"."""
    pipeline = od.Pipeline(SCHEMA).select("x")
    for given in ({}, {"outputs": {"a": pipeline}}):
        with pipeline.stream(rows(5), workers=0, **given) as stream:
            with pytest.raises(TypeError, match="can't be copied or pickled: hand on its pipeline"):
                way(stream)
            assert len(list(stream)) == 1


def test_pandas_is_told_what_to_use() -> None:
    pandas = pytest.importorskip("pandas")
    with (
        pipeline().stream(TABLE, workers=0) as stream,
        pytest.raises(TypeError, match=r"use stream\.to_pandas\(\)"),
    ):
        pandas.DataFrame(stream)
    frame = pipeline().run(TABLE, workers=0).to_pandas()
    assert list(frame.columns) == SCHEMA.names
    assert frame["x"].dtype == "int64"


# ------------------------------------------------------------------------------------------------ Ctrl-C

PROGRAM = """
import sys, time
import pyarrow as pa
import ordstream as od

schema = pa.schema([("x", pa.int64())])

def source():
    for k in range(10**9):
        if k == 20:
            print("running", flush=True)
        yield pa.record_batch([pa.array(range(1000))], schema=schema)

stream = od.Pipeline(schema).filter(od.col("x") < 0).stream(source(), workers=2)
try:
    try:
        {how}
    except Exception as error:
        if "interrupted" not in str(error).lower():
            raise
        time.sleep(60)  # the interrupt is for the program as well
except KeyboardInterrupt:
    import threading
    if "rows" in globals():
        rows.close()  # DuckDB was interrupted while no pull was under way: the reader is still ours
    print(sorted(t.name for t in threading.enumerate() if t.name.startswith("ordstream")), flush=True)
    sys.exit(130)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signals of this kind here")
@pytest.mark.parametrize(
    ("library", "how"),
    [
        ("pyarrow", "pa.table(stream)"),
        ("polars", "import polars; polars.DataFrame(stream)"),
        # One thread: on one of its own, where it may pull, it hears no signal, and the main one, which does,
        # waits for it (docs/decisions.md).
        (
            "duckdb",
            "import duckdb; duckdb.sql('set threads = 1'); duckdb.sql('select count(*) from "
            "stream').fetchall()",
        ),
        (
            "duckdb",
            "import duckdb; duckdb.sql('set threads = 1'); rows = pa.RecordBatchReader.from_stream(stream); "
            "duckdb.sql('select sum(x) from rows').fetchall()",
        ),
    ],
)
@pytest.mark.thin(2)
def test_an_interrupt_stops_the_consumer_and_the_run(library: str, how: str) -> None:
    """Nothing comes out of this run, so the whole time is spent inside one pull."""
    pytest.importorskip(library)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(how=how)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == "[]\n"
            assert process.wait(30) == 130
        finally:
            process.kill()
