"""Sources: which data is taken, how columns are matched, what is refused."""

from __future__ import annotations

import pathlib

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import ordstream as od
from ordstream._core.ground.arrow import core_schema
from ordstream.node import source
from ordstream.testing import run_serial

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int64()))])
TABLE = pa.table({"a": [1, 2, None], "s": ["x", None, "é"], "l": [[1], [], None]}, schema=SCHEMA)


def read(data, schema=SCHEMA):
    return list(source.batches(data, schema))


def rows(data, schema=SCHEMA):
    return [row for batch in read(data, schema) for row in batch.to_pylist()]


class OnlyArray:
    """Exports one batch through the Arrow C array interface only."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


class OnlyStream:
    """Exports batches through the Arrow C stream interface only."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(1),
        tuple(TABLE.to_batches(2)),
        [TABLE.slice(0, 1), TABLE.slice(1)],
        OnlyArray(TABLE.to_batches()[0]),
        OnlyStream(TABLE),
        [OnlyStream(TABLE.slice(0, 2)), OnlyArray(TABLE.slice(2).to_batches()[0])],
        TABLE.select(["l", "s", "a"]),
        TABLE.append_column("z", pa.nulls(3)),
        TABLE.replace_schema_metadata({"k": "v"}),
        TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()),
        TABLE.set_column(1, "s", TABLE["s"].cast(pa.large_string())),
        TABLE.set_column(1, "s", TABLE["s"].cast(pa.string_view())),
        TABLE.set_column(2, "l", TABLE["l"].cast(pa.large_list(pa.int64()))),
        pyarrow.dataset.dataset(TABLE),
        pyarrow.dataset.dataset([TABLE.slice(0, 2), TABLE.slice(2)]).scanner(),
    ],
    ids=range(17),
)
def test_what_is_taken(data):
    assert rows(data) == TABLE.to_pylist()
    assert all(
        batch.schema.names == SCHEMA.names and batch.schema.types == SCHEMA.types for batch in read(data)
    )


def test_empty_batches_are_left_out():
    assert (
        read([TABLE.slice(0, 0), TABLE.slice(0, 0).to_batches() or pa.RecordBatch.from_pylist([], SCHEMA)])
        == []
    )
    assert read([]) == []


def test_large_batches_are_cut(monkeypatch):
    monkeypatch.setattr(source, "BATCH_ROWS", 600)
    large = pa.concat_tables([TABLE] * 500).combine_chunks()
    assert [len(batch) for batch in read(large)] == [600, 600, 300]
    assert rows(large) == large.to_pylist()


TEXTS = [f"a text of more than 12 bytes, {place % 50:04}" for place in range(10_000)]
BYTES = pa.array([text.encode() for text in TEXTS])
SHARING = {  # slices have all buffers of the array, and count them
    "view": pa.array(TEXTS, pa.string_view()),
    "bytes": BYTES.cast(pa.binary_view()),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array(range(10_000)), pa.array(TEXTS)),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array(range(10_000)), pa.array(TEXTS, pa.string_view())
    ),
    "list": pa.array([[text] for text in TEXTS], pa.list_(pa.string_view())),
    "struct": pa.array([{"x": text} for text in TEXTS], pa.struct({"x": pa.string_view()})),
    "map": pa.array([[(text, 1)] for text in TEXTS], pa.map_(pa.string_view(), pa.int8())),
    "runs": pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, 10_001), pa.int32()), pa.array(TEXTS, pa.string_view())
    ),
}


@pytest.mark.parametrize("kind", SHARING)
def test_arrays_whose_slices_share_buffers_are_cut_by_what_their_rows_take(kind):
    """They were cut into batches of one row."""
    data = pa.table({"v": SHARING[kind]})
    schema = core_schema(od.Pipeline(data.schema).schema)
    found = list(source.batches(data, schema, most=100_000))
    assert 4 <= len(found) <= 10
    assert [value for batch in found for value in batch["v"].to_pylist()] == data["v"].to_pylist()


@pytest.mark.parametrize("kind", SHARING)
def test_through_the_stream_interface(kind):
    """As Polars gives texts, categories and lists of them."""
    data = pa.table({"v": SHARING[kind]}).slice(1, 100)
    pipeline = od.Pipeline(data.schema)
    assert pipeline.run(OnlyStream(data)).table["v"].to_pylist() == data["v"].to_pylist()
    assert pipeline.run(OnlyStream(data.slice(0, 0))).table.num_rows == 0


def test_categories_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"c": ["x", "y", None, "x"]})
    kinds = (polars.Categorical, polars.Enum(["x", "y"]))
    frame = frame.with_columns(*(polars.col("c").cast(kind).alias(f"c{i}") for i, kind in enumerate(kinds)))
    pipeline = od.Pipeline(frame.to_arrow().schema).key_by("c0").cum_count()
    for data in (frame, frame.to_arrow(), [frame]):
        assert pipeline.run(data).table.to_pylist() == run_serial(pipeline, data).table.to_pylist()
    assert pipeline.run(frame).table["c1"].to_pylist() == ["x", "y", None, "x"]


def test_a_column_that_nobody_reads_may_be_a_union():
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    data = pa.table({"a": [1, 2], "u": union})
    assert od.Pipeline({"a": pa.int64()}).run(OnlyStream(data)).table["a"].to_pylist() == [1, 2]


def test_a_batch_that_fits_is_not_copied():
    (batch,) = TABLE.to_batches()
    assert source.conform(batch, SCHEMA) is batch


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (TABLE.drop_columns(["s"]), "the source has no column 's'; it has 'a', 'l'"),
        (TABLE.append_column("a", TABLE["a"]), "column 'a' appears more than once in the source"),
        (
            TABLE.set_column(0, "a", TABLE["a"].cast(pa.int32())),
            "column 'a': expected int64, got int32; cast it at the source",
        ),
        (TABLE.set_column(1, "s", TABLE["s"].cast(pa.binary())), "column 's': expected string, got binary"),
        (TABLE.set_column(2, "l", TABLE["l"].cast(pa.list_(pa.int32()))), "column 'l': expected list"),
        (5, r"cannot read int: give a pyarrow Table .*Polars, DuckDB, pandas"),
        ([3], "the source must yield Arrow record batches, it gave int"),
        ([TABLE, None], "item 2: the source must yield Arrow record batches, it gave NoneType"),
        ("clicks.parquet", r"cannot read str: a file is read by od.ParquetSource\(path\)"),
        (pathlib.Path("clicks.parquet"), r"cannot read .*Path: a file is read by"),
        (TABLE.to_pydict(), r"cannot read dict: .*pyarrow\.table\(data\)"),
        (TABLE.to_pylist(), r"it gave dict; .*from_pylist"),
        ((row for row in TABLE.to_pylist()), r"it gave dict; .*from_pylist"),
    ],
)
def test_what_is_refused(data, text):
    with pytest.raises(od.SourceError, match=text):
        read(data)


def test_another_zone_says_which_cast_keeps_the_instants():
    """As of a Spark session in another zone, whose toArrow() has it."""
    instants = pa.table({"t": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    pipeline = od.Pipeline(instants)
    there = instants.cast(pa.schema([("t", pa.timestamp("us", "Asia/Tokyo"))]))
    for runs in (pipeline.run, lambda data: run_serial(pipeline, data)):
        with pytest.raises(od.SourceError, match=r"at the source, table\.cast\(pipeline\.source_schema"):
            runs(there)
        assert runs(there.cast(pipeline.source_schema)).table.equals(instants)
        clocks = instants.cast(pa.schema([("t", pa.timestamp("us"))]))  # whose instants are not known
        with pytest.raises(od.SourceError, match=r"cast it at the source$"):
            runs(clocks)


def test_an_item_that_is_no_batch_is_counted_in_both_runs():
    pipeline = od.Pipeline(SCHEMA)
    for runs in (pipeline.run, lambda data: run_serial(pipeline, data)):
        with pytest.raises(od.SourceError, match=r"item 3: .* NoneType"):
            runs(iter([TABLE, TABLE, None]))


def test_a_source_that_yields_itself():
    class Endless(list):
        def __iter__(self):
            yield self

    with pytest.raises(od.SourceError, match="yields itself"):
        read(Endless())


def test_a_reader_in_a_list_is_read_as_it_gives():
    """Its batches were gathered as those of a table are: none left before the reader's end."""
    asked = []

    def batches():
        for number in range(3):
            asked.append(number)
            yield TABLE.to_batches()[0]

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    found = source.batches([reader], TABLE.schema)
    next(found)
    assert asked == [0]


def test_which_sources_get_a_thread():
    for data in (
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(),
        tuple(TABLE.to_batches()),
        pl.DataFrame(TABLE),
        [pl.DataFrame(TABLE)],
    ):
        assert not source.is_live(data)
    for data in ([TABLE.to_reader()], (TABLE, OnlyStream(TABLE))):
        assert source.is_live(data)
    assert source.is_live(TABLE.to_reader())
    assert source.is_live(OnlyStream(TABLE))
    assert source.is_live(iter(TABLE.to_batches()))
    assert source.is_live(batch for batch in TABLE.to_batches())


@pytest.mark.parametrize("column", ["a", "s"])
def test_nulls_where_none_are_declared(column):
    """A null that a compiled function does not expect would be read as some value."""
    schema = pa.schema([field.with_nullable(field.name != column) for field in SCHEMA])
    row = {"a": 3, "s": 2}[column]
    with pytest.raises(
        od.SourceError, match=rf"column '{column}' is declared without nulls .*row {row} has one"
    ):
        od.Pipeline(schema).run(TABLE.to_batches(1), workers=0)
    assert od.Pipeline(schema).run(TABLE.slice(0, row - 1), workers=0).table.num_rows == row - 1


def test_a_later_batch_that_does_not_fit_is_told_with_its_place():
    data = [TABLE, TABLE.slice(1), TABLE.drop_columns(["s"])]
    with pytest.raises(od.SourceError, match=r"^after 5 tuples: the source has no column 's'"):
        read(data)


def test_no_rows_of_a_wrong_schema_are_refused_too():
    for data in (pa.table({}), OnlyStream(pa.table({"b": pa.array([], pa.int64())}))):
        with pytest.raises(od.SourceError, match="has no column 'a'"):
            read(data)


def test_small_slices_of_a_large_table_are_not_measured_column_by_column(monkeypatch):
    rows = 1 << 18
    numbers = pa.array(range(rows))
    columns = {name: numbers for name in "abcdefgh"} | {"s": pa.array(["text"]).take(pa.array([0] * rows))}
    table = pa.table(columns)
    batches = [table.slice(i * 10, 10).to_batches()[0] for i in range(50)]
    assert batches[0].get_total_buffer_size() > 1 << 20
    looked, own = [], source._own_bytes
    monkeypatch.setattr(source, "_column_bytes", lambda column: looked.append("any") or own(column))
    monkeypatch.setattr(source, "_own_bytes", lambda column: looked.append("own") or own(column))
    assert len(list(source.batches(iter(batches), table.schema, most=1 << 20))) == 50
    assert looked == ["own"] * 50  # the text's


def test_slices_of_a_large_batch_are_measured_together(monkeypatch):
    rows = 16 * 65_536
    table = pa.table({"x": range(rows), "s": pa.array(["text"]).take(pa.array([0] * rows))})
    looked, own = [], source._own_bytes
    monkeypatch.setattr(source, "_own_bytes", lambda column: looked.append(len(column)) or own(column))
    found = list(source.batches(table, table.schema, most=8 << 20))
    assert [batch.num_rows for batch in found] == [65_536] * 16
    assert looked == [4 * 65_536] * 4


@pytest.mark.parametrize("place", [0, 65_535, 65_536, 200_000, 262_143, 262_144, 299_999])
def test_a_long_text_among_slices_that_are_measured_together_is_cut_off(place):
    texts = ["a"] * 300_000
    texts[place] = "b" * (1 << 20)
    table = pa.table({"s": texts, "n": pa.array([[1]] * 300_000, pa.list_(pa.int8()))})
    most = 1 << 20
    found = list(source.batches(table, table.schema, most=most))
    assert all(batch.num_rows == 1 or source.batch_bytes(batch) <= most for batch in found)
    assert max(batch.num_rows for batch in found) <= 65_536
    assert pa.Table.from_batches(found).equals(table)


def test_rows_of_one_width_are_cut_by_bytes():
    schema = pa.schema({"a": pa.int64(), "b": pa.bool_(), "d": pa.decimal128(20), "t": pa.timestamp("us")})
    table = pa.table([pa.array([None] * 60_000, type_) for type_ in schema.types], schema=schema)
    found = list(source.batches(table, schema, most=1 << 20))
    assert [batch.num_rows for batch in found] == [30_000, 30_000]
    assert pa.Table.from_batches(found).equals(table)


def endless(ended: list[str], name: str):
    """A source that says when it ends, such as one that reads from a connection."""
    try:
        for k in range(10**9):
            yield pa.record_batch({"k": [k] * 7})
    finally:
        ended.append(name)


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)
@pytest.mark.parametrize("how", ["closed", "failed"])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["one source", "two"])
def test_a_generator_ends_with_its_stream(options, how, names):
    """Not when the stream is forgotten: what it has open in `with` is closed, its `finally` done."""
    ended: list[str] = []
    sources = [od.Pipeline({"k": int}, source=name) for name in names]
    both = od.union(*sources) if len(names) > 1 else sources[0]
    pipeline = both.assert_that(od.col("k") < 3).key_by("k").count()
    more = {"merge_by": "k"} if len(names) > 1 else {}
    with pipeline.stream({name: endless(ended, name) for name in names}, **options, **more) as out:
        if how == "closed":
            next(out)
        else:
            with pytest.raises(od.OperatorError, match="k < 3"):
                list(out)
    assert sorted(ended) == names
    assert out.report.rows_out <= 21 * len(names)
