"""ordstream.files without Spark: offsets, replays, and files that are late, changed or gone."""

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from ordstream.errors import PlanError, SourceError
from ordstream.ground import long_rows
from ordstream.spark.streaming.sources import files
from ordstream.spark.streaming.sources.files import Files

ALL = ReadAllAvailable()


def table(first, count):
    numbers = range(first, first + count)
    return pa.table(
        [numbers, [f"w{n}" for n in numbers]], schema=pa.schema([("n", pa.int64()), ("word", pa.string())])
    )


def put(folder, name, first, count):
    """As a writer does: whole, by a rename."""
    folder.mkdir(exist_ok=True)
    half = folder / f".{name}.half"
    if name.endswith(".parquet"):
        pq.write_table(table(first, count), half, row_group_size=3)
    else:
        with pa.ipc.new_file(str(half), table(0, 0).schema) as writer:
            writer.write_table(table(first, count), max_chunksize=4)
    half.rename(folder / name)


@pytest.fixture
def folder(tmp_path):
    put(tmp_path / "in", "a.parquet", 0, 10)
    put(tmp_path / "in", "b.parquet", 10, 0)
    put(tmp_path / "in", "c.arrow", 10, 7)
    return tmp_path / "in"


def reader(folder, schema=None, **options):
    source = Files(CaseInsensitiveDict({"path": str(folder), **options}))
    return source.streamReader(schema or source.schema())


def rows(reader, start, end):
    """As tasks read them: in another process."""
    parts = pickle.loads(pickle.dumps(list(reader.partitions(start, end))))
    batches = [batch for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def expected(first, last):
    return [(n, f"w{n}", n) for n in range(first, last)]


def test_many_files_of_a_batch_are_each_looked_at_once(tmp_path):
    """Each new file was compared with each of the batch in front: seconds for 10,000 behind 10,000."""

    class Told(list):
        reads = 0

        def __iter__(self):
            Told.reads += 1
            return super().__iter__()

    for number in range(40):
        put(tmp_path / "in", f"{number:02d}.parquet", number * 3, 3)
    found = reader(tmp_path / "in", maxRows="62")
    start = found.latestOffset(found.initialOffset(), ReadMaxRows(62))
    Told.reads = 0
    end = found.latestOffset(start | {"files": Told(start["files"])}, ALL)
    assert Told.reads <= 2
    assert rows(found, start, end) == expected(62, 120)


def test_offsets_count_rows_over_files(folder):
    one = reader(folder)
    start = one.initialOffset()
    first = one.latestOffset(start, ReadMaxRows(4))
    assert (first["o"], first["file"], first["row"]) == (4, "a.parquet", 4)
    second = one.latestOffset(first, ReadMaxRows(9))
    assert (second["o"], second["file"], second["row"]) == (13, "c.arrow", 3)
    put(folder, "d.parquet", 17, 5)
    last = one.latestOffset(second, ALL)
    assert last["o"] == 22
    assert one.latestOffset(last, ALL) == last
    for begin, end in ((start, first), (first, second), (second, last), (last, last)):
        assert rows(one, begin, end) == rows(reader(folder), begin, end) == expected(begin["o"], end["o"])
    assert reader(folder).latestOffset(second, ALL) == last  # after a restart


def test_many_rows_are_read_by_several_tasks(folder, monkeypatch):
    monkeypatch.setattr(files, "TASK_ROWS", 4)
    one = reader(folder)
    end = one.latestOffset(one.initialOffset(), ALL)
    parts = one.partitions(one.initialOffset(), end)
    assert [sum(p.last - p.first for p in task.parts) for task in parts] == [4, 4, 4, 4, 1]
    assert rows(one, one.initialOffset(), end) == expected(0, 17)


def test_long_rows_come_in_small_batches(tmp_path, monkeypatch):
    """65,536 rows at a time, whatever their length, were more than Java has room for."""
    monkeypatch.setattr(long_rows, "BYTES", 10_000)
    schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
    long = pa.table([range(30), [f"{n}" + "x" * 3_000 for n in range(30)]], schema=schema)
    pq.write_table(long, tmp_path / "a.parquet", use_dictionary=False)
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), schema) as writer:
        writer.write_table(long)
    one = reader(tmp_path)
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    (part,) = one.partitions(start, end)
    assert [batch.num_rows for batch in one.read(part)] == [3] * 20
    found = [(n, word) for n, word, _ in rows(one, start, end)]
    assert found == [tuple(row.values()) for row in long.to_pylist()] * 2


def test_available_now_ends(folder):
    one = reader(folder, maxRows="6")
    assert one.getDefaultReadLimit() == ReadMaxRows(6)
    assert reader(folder).getDefaultReadLimit() == ALL
    one.prepareForTriggerAvailableNow()
    put(folder, "d.parquet", 17, 5)
    at, seen = one.initialOffset(), []
    while (then := one.latestOffset(at, ReadMaxRows(6))) != at:
        at = then
        seen.append(at["o"])
    assert seen == [6, 12, 17]


def test_an_empty_folder(tmp_path):
    schema = StructType([StructField("n", LongType()), StructField("_offset", LongType(), False)])
    (tmp_path / "in").mkdir()
    one = reader(tmp_path / "in", schema)
    start = one.initialOffset()
    assert one.latestOffset(start, ALL) == start
    with pytest.raises(PlanError, match=r"no file yet .* give them with .schema"):
        reader(tmp_path / "in")
    put(tmp_path / "in", "a.parquet", 0, 2)
    assert rows(one, start, one.latestOffset(start, ALL)) == [(0, 0), (1, 1)]
    with pytest.raises(SourceError, match="can't be listed"):
        reader(tmp_path / "nowhere")


def test_a_file_that_comes_too_late(folder):
    one = reader(folder)
    at = one.latestOffset(one.initialOffset(), ALL)
    put(folder, "b2.parquet", 99, 1)
    with pytest.raises(
        SourceError, match=r"b2.parquet: the file came too late: rows up to 'c.arrow' were read"
    ):
        one.latestOffset(at, ALL)
    for options in ({}, {"readFilesMayGo": "true"}):  # a restart
        with pytest.raises(
            SourceError, match=r"there were 3 files .* there are 4 now.*the newest is 'b2.parquet'"
        ):
            reader(folder, **options).latestOffset(at, ALL)
    (folder / "b2.parquet").rename(folder / "c2.parquet")
    assert reader(folder).latestOffset(at, ALL)["o"] == 18


def test_files_that_were_read_and_go(folder):
    one = reader(folder)
    at = one.latestOffset(one.initialOffset(), ReadMaxRows(12))
    free = reader(folder, readFilesMayGo="true")
    assert free.latestOffset(at, ALL)["o"] == 17
    (folder / "a.parquet").unlink()
    with pytest.raises(SourceError, match=r"a.parquet: the file was read, and is gone"):
        one.latestOffset(at, ALL)
    with pytest.raises(SourceError, match="one that was read must stay"):
        reader(folder).latestOffset(at, ALL)
    for again in (free, reader(folder, readFilesMayGo="true")):
        assert rows(again, at, again.latestOffset(at, ALL)) == expected(12, 17)
    with pytest.raises(SourceError, match=r"a.parquet: the file is gone, and its rows are still needed"):
        rows(free, free.initialOffset(), at)
    (folder / "c.arrow").unlink()  # two of its rows were read
    with pytest.raises(SourceError, match=r"c.arrow: the file is gone, and its rows are still needed"):
        free.latestOffset(at, ALL)


def test_a_file_that_changed(folder):
    one = reader(folder)
    start = one.initialOffset()
    at = one.latestOffset(start, ReadMaxRows(12))
    put(folder, "c.arrow", 11, 7)
    with pytest.raises(SourceError, match=r"c.arrow: the file was changed since its rows were planned"):
        rows(one, start, at)
    with pytest.raises(SourceError, match=r"c.arrow: the file was changed after 2 of its rows were read"):
        reader(folder).latestOffset(at, ALL)
    put(folder, "c.arrow", 10, 8)  # rows at its end
    with pytest.raises(SourceError, match="it had 7 rows"):
        reader(folder).latestOffset(at, ALL)


def test_a_file_that_is_half_written(folder):
    one = reader(folder)
    whole = (folder / "a.parquet").read_bytes()
    (folder / "d.parquet").write_bytes(whole[:-10])
    (folder / "e.arrow").write_bytes(b"ARROW1")
    with pytest.raises(SourceError, match=r"d.parquet: no whole parquet file: .* appear by a rename"):
        one.latestOffset(one.initialOffset(), ALL)
    (folder / "d.parquet").unlink()
    with pytest.raises(SourceError, match=r"e.arrow: no whole arrow file"):
        one.latestOffset(one.initialOffset(), ALL)
    (folder / "e.arrow").rename(folder / "e.arrow.tmp")
    (folder / "_SUCCESS").touch()
    assert one.latestOffset(one.initialOffset(), ALL)["o"] == 17


def test_columns_by_name_and_type(folder):
    def declared(*fields):
        return StructType(
            [*(StructField(*field) for field in fields), StructField("_offset", LongType(), False)]
        )

    def first(schema):
        one = reader(folder, schema)
        return rows(one, one.initialOffset(), one.latestOffset(one.initialOffset(), ReadMaxRows(1)))

    assert first(declared(("word", StringType()), ("n", IntegerType()))) == [("w0", 0, 0)]
    assert first(StructType([StructField("n", LongType())])) == [(0,)]
    for schema, why in (
        (declared(("m", LongType())), "no column 'm'"),
        (declared(("n", StringType())), "column 'n' is int64, the stream's is string"),
        (declared(("word", LongType())), "column 'word' is string, the stream's is int64"),
    ):
        with pytest.raises(SourceError, match=why):
            first(schema)
    pq.write_table(pa.table({"n": [2**40], "at": pa.array([0], pa.timestamp("us"))}), folder / "a.parquet")
    with pytest.raises(SourceError, match="does not fit int32"):
        first(declared(("n", IntegerType())))
    with pytest.raises(SourceError, match=r"TIMESTAMP_NTZ is a time without zone"):
        first(declared(("at", TimestampType())))
    pq.write_table(pa.table({"n": pa.array([None], pa.int64())}), folder / "a.parquet")
    with pytest.raises(SourceError, match="has a null"):
        first(declared(("n", LongType(), False)))
    pq.write_table(pa.table({"_offset": [1]}), folder / "a.parquet")
    with pytest.raises(PlanError, match="name of the row's position"):
        reader(folder)


@pytest.mark.parametrize(
    ("column", "declared", "why"),
    [
        (pa.array([0.5, 0.1]), pa.float32(), "without loss: declare it as double"),
        (pa.array([1e300]), pa.float32(), "without loss"),
        (pa.array([[0.5, None, 0.1]]), pa.list_(pa.float32()), "without loss"),
        (pa.array([{"a": Decimal("12345678901234567.5")}]), pa.struct({"a": pa.float64()}), "without loss"),
        (pa.array([1.7]), pa.decimal128(5, 0), "without loss"),
        (pa.array([dt.datetime(2024, 1, 1, 5)]), pa.date32(), "without loss"),
        (pa.array([2]), pa.bool_(), "is int64, the stream's is bool"),
        (pa.array([["01"]]), pa.list_(pa.int64()), "is list<element: string>, the stream's is list<"),
        (
            pa.array([{"a": dt.datetime(2024, 1, 1)}]),
            pa.struct({"a": pa.timestamp("us", "UTC")}),
            "TIMESTAMP_NTZ",
        ),
        (pa.array([0.1, 0.1]).dictionary_encode(), pa.float32(), "without loss: declare it as double"),
    ],
)
def test_a_value_that_its_column_can_not_have_ends_the_query(tmp_path, column, declared, why):
    pq.write_table(pa.table({"c": column}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=why):
        values(tmp_path, declared)


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        (pa.array([None, None]), pa.string()),  # as pandas writes texts that are all null
        (pa.array([None, None]), pa.struct({"a": pa.int32()})),
        (pa.array([[None], None, []]), pa.list_(pa.string())),
        (pa.array([{"a": None}]), pa.struct({"a": pa.string()})),
        (pa.array([0.5, None, float("inf")]), pa.float32()),
        (pa.array([Decimal("0.10")]), pa.float64()),
        (pa.array([0.25]), pa.decimal128(9, 3)),
        (pa.array([dt.datetime(2024, 1, 1)]), pa.date32()),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_value_that_its_column_can_have_is_taken(tmp_path, column, declared):
    pq.write_table(pa.table({"c": column}), tmp_path / "a.parquet")
    found = values(tmp_path, declared)
    assert found == (column if pa.types.is_nested(declared) else column.cast(declared)).to_pylist()


def values(folder, declared):
    """Of the one column `c`."""
    one = reader(folder, StructType([StructField("c", from_arrow_type(declared))]))
    return [row[0] for row in rows(one, one.initialOffset(), one.latestOffset(one.initialOffset(), ALL))]


def test_types_that_spark_has_not(folder):
    given = {
        "u": pa.array([2**64 - 1], pa.uint64()),
        "v": pa.array([255], pa.uint8()),
        "d": pa.array(["x"]).dictionary_encode(),
    }
    given |= {
        "t": pa.array([1], pa.timestamp("us")),
        "z": pa.array([1], pa.timestamp("ms", "America/New_York")),
    }
    pq.write_table(pa.table(given), folder / "a.parquet")
    one = reader(folder)
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(1))
    (part,) = one.partitions(one.initialOffset(), end)
    (batch,) = one.read(part)
    assert list(map(str, batch.to_pylist()[0].values())) == [
        "18446744073709551615", "255", "x", "1970-01-01 00:00:00.000001",
        "1970-01-01 00:00:00.001000+00:00", "0",
    ]  # fmt: skip


def test_options(folder):
    for options, why in (
        ({"maxRows": "x"}, "must be a number from 1, not 'x'"),
        ({"readFilesMayGo": "yes"}, "must be 'true' or 'false', not 'yes'"),
        ({"maxFilesPerTrigger": "1"}, "no option 'maxfilespertrigger'; there are: path, maxRows, read"),
        ({"path": ""}, "'path', .... is missing"),
    ):
        with pytest.raises(PlanError, match=why):
            reader(**{"folder": folder, **options} if "path" not in options else {"folder": ""})
