"""What a run can be fed with, and what it says about data that does not fit."""

from __future__ import annotations

import datetime
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

import ordstream as od
from ordstream.node import node, source
from ordstream.testing import run_serial

N = 500
TABLE = pa.table(
    {
        "i": pa.array([i if i % 10 else None for i in range(N)], pa.int64()),
        "x": pa.array([i / 4 for i in range(N)], pa.float64()),
        "s": pa.array([f"text {i % 7} é" if i % 3 else None for i in range(N)]),
        "t": pa.array(
            [datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=i) for i in range(N)],
            pa.timestamp("us"),
        ),
        "b": pa.array([i % 2 == 0 for i in range(N)]),
    }
)


def pipeline():
    return od.Pipeline(TABLE.schema).filter(od.col("x") < 100).key_by("s").scan(n=od.count("i"))


@pytest.fixture(scope="module")
def expected():
    return pipeline().run(TABLE, workers=0).table


def polars_frame():
    return pytest.importorskip("polars").from_arrow(TABLE)


def polars_chunks():
    """A frame of several chunks, whose strings are views."""
    polars = pytest.importorskip("polars")
    return polars.concat(
        [polars.from_arrow(TABLE.slice(0, 100)), polars.from_arrow(TABLE.slice(100))], rechunk=False
    )


def duckdb_relation():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("source", TABLE)
    return connection.sql("select * from source order by x")


def pandas_frame():
    pandas = pytest.importorskip("pandas")
    return TABLE.to_pandas(types_mapper=pandas.ArrowDtype)


def one_batch():
    (batch,) = TABLE.combine_chunks().to_batches()
    return batch


SOURCES = {
    "table": lambda: TABLE,
    "table of chunks": lambda: pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(3, 0), TABLE.slice(3)]),
    "batch": one_batch,
    "list of batches": lambda: TABLE.to_batches(33),
    "tuple of tables": lambda: (TABLE.slice(0, 99), TABLE.slice(99)),
    "generator": lambda: (batch for batch in TABLE.to_batches(10)),
    "reader": lambda: TABLE.to_reader(64),
    "columns in another order": lambda: TABLE.select(["b", "t", "s", "x", "i"]),
    "more columns": lambda: TABLE.append_column("more", pa.nulls(N)),
    "dictionary": lambda: TABLE.set_column(2, "s", TABLE["s"].dictionary_encode()),
    "large_string": lambda: TABLE.set_column(2, "s", TABLE["s"].cast(pa.large_string())),
    "string_view": lambda: TABLE.set_column(2, "s", TABLE["s"].cast(pa.string_view())),
    "polars": polars_frame,
    "polars, several chunks": polars_chunks,
    "duckdb": duckdb_relation,
    "pandas": pandas_frame,
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name, workers, expected):
    assert pipeline().run(SOURCES[name](), workers=workers).table.equals(expected)


def test_output_goes_on_as_arrow(expected):
    out = pipeline().run(TABLE, workers=0)
    assert pa.table(out).equals(expected)
    assert pytest.importorskip("polars").DataFrame(out).height == expected.num_rows


def test_sliced_batches_keep_their_offset(workers):
    """Validity bits and booleans of a slice do not begin at a byte."""
    whole = one_batch()
    for offset in (1, 3, 8, 13):
        out = (
            od.Pipeline(TABLE.schema)
            .filter(od.col("b") | od.lit(True))
            .run(whole.slice(offset, 50), workers=workers)
        )
        assert out.table.equals(TABLE.slice(offset, 50))


def test_a_generator_runs_in_bounded_memory_and_lazily(workers):
    pulled = []

    def source():
        for k, batch in enumerate(TABLE.to_batches(10)):
            pulled.append(k)
            yield batch

    stream = pipeline().stream(source(), workers=workers)
    assert pulled == [], "nothing is read before the first output is asked for"
    assert sum(len(batch) for batch in stream) == 400
    assert pulled == list(range(50))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (TABLE.drop_columns(["x"]), "no column 'x'"),
        (TABLE.set_column(1, "x", pa.array(["1"] * N)), "column 'x': expected double, got string"),
        (TABLE.set_column(0, "i", pa.array(range(N), pa.int32())), "column 'i': expected int64, got int32"),
        (TABLE.set_column(3, "t", TABLE["t"].cast(pa.timestamp("ms"))), "expected timestamp"),
        (TABLE.append_column("x", TABLE["x"]), "column 'x' appears more than once"),
        ([1, 2], "must yield Arrow record batches, it gave int"),
        (["text"], "it gave str"),
        (17, "cannot read int"),
        (None, "cannot read NoneType"),
        (np.arange(3), "must yield Arrow record batches"),
        (np.zeros(2, [("i", "i8"), ("x", "f8")]), "it gave void; a record array becomes a table by pyarrow"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_does_not_fit(data, text, workers):
    with pytest.raises(od.SourceError, match=text):
        pipeline().run(data, workers=workers)


def test_a_column_that_only_polars_knows(workers):
    """Nothing said which of the columns it was: Arrow's words are "format string: '_pli128'"."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1, 2], "wide": polars.Series([1, 2], dtype=polars.Int128)})
    pipeline = od.Pipeline({"a": int})
    text = "DataFrame, which Arrow refuses: .*: column 'wide'; cast it, or leave it out"
    for call in (
        lambda: pipeline.run(frame, workers=workers),
        lambda: run_serial(pipeline, frame),
        lambda: pipeline.run([frame], workers=workers),
    ):
        with pytest.raises(od.SourceError, match=f"cannot read {text}"):
            call()
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(frame)
    with pytest.raises(od.SchemaError, match="Arrow refuses a type of this schema"):
        od.Pipeline(frame.schema)
    with pytest.raises(od.PlanError, match=f"join_lookup_1: got {text}"):
        pipeline.join_lookup(frame, on="a")
    assert pipeline.run(frame.drop("wide"), workers=workers).table["a"].to_pylist() == [1, 2]


def test_a_dataset_has_the_columns_of_a_pipeline(tmp_path):
    """A run took one, `od.Pipeline` did not."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    data = dataset.dataset(tmp_path / "a.parquet")
    found = od.Pipeline(data)
    assert found.schema.equals(TABLE.schema, check_metadata=False)
    assert found.run(data).table.equals(TABLE)


def test_files_have_the_columns_of_a_pipeline(tmp_path):
    """A run took a ParquetSource, `od.Pipeline` did not."""
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for name, opened in (("a.arrow", pa.ipc.new_file), ("a.arrows", pa.ipc.new_stream)):
        with opened(str(tmp_path / name), TABLE.schema) as written:
            written.write_table(TABLE)
    for files in (
        od.ParquetSource(tmp_path / "*.parquet"),
        od.IpcSource(tmp_path / "a.arrow"),
        od.IpcSource([tmp_path / "a.arrows"]),
    ):
        assert od.Pipeline(files).run(files).table.equals(TABLE)
    chosen = od.ParquetSource(tmp_path / "a.parquet", columns=["s", "i"])
    assert od.Pipeline(chosen).schema.names == ["s", "i"]
    with pytest.raises(od.SourceError, match="has no column 'z'; it has 'i', 'x'"):
        od.Pipeline(od.ParquetSource(tmp_path / "a.parquet", columns=["z"]))
    with pytest.raises(od.SourceError, match=r"a\.arrow can't be read: .*Parquet"):
        od.Pipeline(od.ParquetSource(tmp_path / "a.arrow"))
    with pytest.raises(od.SourceError, match="a source of no files has no columns"):
        od.Pipeline(od.ParquetSource([]))
    with pytest.raises(od.SourceError, match=r"cannot read ParquetFile: its batches are \.iter_batches\(\)"):
        pipeline().run(pq.ParquetFile(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("a.parquet", r"got 'a\.parquet'; files of Parquet are od\.ParquetSource"),
        (np.zeros(2, [("i", "i8"), ("x", "f8")]), r"dtype=\[.*\]\); a record array becomes a table"),
    ],
)
def test_what_has_no_columns(given, text):
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(given)


def test_a_lazy_frame_must_be_collected():
    polars = pytest.importorskip("polars")
    lazy, pipeline = polars.LazyFrame({"i": [1]}), od.Pipeline({"i": int})
    for call, error in (
        (lambda: od.Pipeline(lazy), od.SchemaError),
        (lambda: pipeline.join_lookup(lazy, on="i"), od.PlanError),
        (lambda: pipeline.run(lazy), od.SourceError),
    ):
        with pytest.raises(error, match=r"LazyFrame.*: a lazy frame must be collected first"):
            call()
    sparks = SimpleNamespace(collect=list, sparkSession=None)
    for call, error in ((pipeline.run, od.SourceError), (pipeline.join_lookup, od.PlanError)):
        with pytest.raises(error) as raised:
            call(sparks, **({} if call == pipeline.run else {"on": "i"}))
        assert "collected" not in str(raised.value)


def test_a_batch_in_which_a_column_has_no_value(workers):
    """pandas has no type for texts or lists where a chunk, or an empty frame, has none of them."""
    schema = pa.schema(
        {"k": pa.int64(), "s": pa.string(), "v": pa.list_(pa.int64()), "t": pa.timestamp("us", "UTC"),
         "d": pa.struct({"a": pa.int64()}), "u": pa.uuid(), "b": pa.bool_()}
    )  # fmt: skip
    nothing = dict.fromkeys(schema.names)
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [
        {"k": 1, "s": "a", "v": [1], "t": at, "d": {"a": 1}, "u": None, "b": True},
        {**nothing, "k": 2, "v": []},
        {**nothing, "k": 3},
    ]
    whole = pa.Table.from_pylist(rows, schema)
    empty = pa.table({name: [row[name] for row in rows[1:]] for name in schema.names})
    chunks = [pa.Table.from_pylist(rows[:1], schema), empty]
    assert [str(chunks[1].schema.field(name).type) for name in "sv"] == ["null", "list<item: null>"]
    pipeline = od.Pipeline(schema).filter(od.col("k") > 0)
    assert pipeline.run(chunks, workers=workers).table.equals(whole)
    assert run_serial(pipeline, chunks).table.equals(whole)
    assert pipeline.run(chunks[1].slice(0, 0), workers=workers).table.num_rows == 0
    some = od.Pipeline(pa.schema([pa.field("s", pa.string(), nullable=False)]))
    with pytest.raises(od.SourceError, match="column 's' is declared without nulls"):
        some.run(pa.table({"s": pa.nulls(2)}), workers=workers)


def test_bad_batch_after_good_ones(workers):
    """What came before it is delivered."""
    pipe = od.Pipeline(TABLE.schema).filter(od.col("x") >= 0)
    rows = []
    data = [TABLE.slice(0, 20), TABLE.slice(20).drop_columns(["s"])]
    with pipe.stream(data, workers=workers) as out, pytest.raises(od.SourceError, match="no column 's'"):
        rows.extend(row for batch in out for row in batch.to_pylist())
    assert len(rows) == 20
    assert out.report.emitted_through.serial == 20


def test_lists_with_nulls_inside_pass(workers):
    data = pa.table({"fine": [1, 2], "items": [[1], [2, None]]})
    result = od.Pipeline(data.schema).filter(od.col("fine") > 0).run(data, workers=workers)
    assert result.table.equals(data)


def test_two_runs_in_one_process(workers):
    """One stream is open while others run to their end."""
    with pipeline().stream(TABLE.to_batches(10), workers=workers) as first:
        head = next(first)
        for _ in range(3):
            assert pipeline().run(TABLE, workers=workers).table.num_rows == 400
        assert len(head) + sum(len(batch) for batch in first) == 400


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_waiting_reader_is_told_when_the_workers_need_input(workers, monkeypatch):
    """The reading thread feeds too. Without output nothing else would wake it before its wait is over."""
    monkeypatch.setattr(node, "READ_WAIT_S", 1e6)
    rows = 20 * source.BATCH_ROWS
    table = pa.table({"k": np.arange(rows) % 7})
    for emit in ("final", "updates"):
        result = (
            od.Pipeline(table.schema)
            .key_by("k")
            .count()
            .top_k(1, by="count")
            .run(table, workers=workers, emit=emit)
        )
        assert result.table.select(["k", "count"]).to_pylist() == [{"k": 0, "count": -(-rows // 7)}]


@pytest.mark.parametrize("chunk_rows", [None, 1 << 18])
def test_full_output_batches(chunk_rows):
    """Batches behind a full one have room for a full one from the beginning; a chunk may have more rows
    than that.
    """
    n = 500_000
    i = np.arange(n)
    rows = pa.table(
        {"i": i, "x": i * 0.5, "j": i.astype(np.int32), "b": pa.array(i % 3 == 0, mask=i % 50_021 == 50_000)}
    )
    found = od.Pipeline(rows.schema).filter(od.col("i") % 5 > 0).run(rows, workers=2, chunk_rows=chunk_rows)
    assert len(found.batches) > 2
    assert found.table.combine_chunks().equals(rows.filter(pa.array(i % 5 > 0)).combine_chunks())
