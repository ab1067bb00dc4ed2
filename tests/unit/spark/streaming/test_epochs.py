"""Epochs one behind the other without Spark: its tasks run here, its shuffles are plain Python. Whatever the
batches, nodes and attempts, the committed files hold what `run_serial` gives.
"""

import errno
import random
import threading

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import CheckpointError, OperatorError, SourceError

pytest.importorskip("pyspark")
from epoch_frames import JOB, SCHEMA, Frame, Stream, answer, rows

from ordstream.ground.ordertags import TAG_NAMES
from ordstream.snapshots.files import Files
from ordstream.spark.streaming.epoch_files import EpochFiles
from ordstream.spark.streaming.epoch_functions import FINISH
from ordstream.spark.streaming.epoch_output import WAITING, Output
from ordstream.spark.streaming.micro_batch import InOrder

pytestmark = pytest.mark.usefixtures("tasks")

TAGGED = pa.schema([*SCHEMA, *(pa.field(name, pa.int64(), False) for name in TAG_NAMES)])


def computed():
    """Aggregations of expressions, with and without the input's columns behind them."""
    twice, shown = od.col("ts") * 2, od.col("item") + "!"
    seen = od.Pipeline(SCHEMA).key_by("user").scan(total=od.sum(twice), last=od.collect(shown, 2))
    return seen.key_by("item").window(od.session(4), time="ts").aggregate(
        most=od.max(od.col("total") - od.col("ts")), who=od.arg_max("user", by=od.col("total") * 1.5)
    )  # fmt: skip


def several():
    seen = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count(), latest=od.last("ts"))
    behind = (
        seen.key_by("item", "seen").lag({"before": "latest"}).key_by("item").sessionize("ts", 2, ["seen"])
    )
    return behind


def whole():
    return od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count()).top_k(3, by="seen", emit="updates")


def graph():
    """States of one key, and of two, on ways that come together, and another key behind."""
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("ts") % 2 == 0)
    seen = hit.key_by("user").scan(n=od.count()).key_by("item", "user").lag({"before": "ts"})
    united = od.union(seen.select("item", "n"), miss.key_by("user").lead("ts").select("item", n="ts"))
    return united.key_by("item").scan(most=od.max("n"))


def not_cut():
    """In one node, whatever is asked for."""
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("ts") % 2 == 0)
    return od.union(hit.key_by("user").scan(n=od.count()), miss.key_by("item").scan(n=od.count()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "pipeline", [several, computed, whole, graph, not_cut], ids=lambda made: made.__name__
)
@pytest.mark.thin(6)
def test_epochs_are_one_run(tmp_path, pipeline, seed):
    rng = random.Random(seed)
    table, stream = rows(150, seed), Stream(tmp_path / "c", pipeline())
    cuts = sorted(rng.choices(range(151), k=6))
    for low, high in zip([0, *cuts], [*cuts, 150], strict=True):
        nodes = rng.choice([1, 2, 3])
        part = table.slice(low, high - low)
        lost = stream.epoch(part, nodes=nodes, commit=False)  # an attempt that another one overtakes
        assert stream.epoch(part, nodes=nodes).output != lost.output or not lost.output
        stream.epoch(table.slice(0, 0), nodes=rng.choice([1, 2, 3]))
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=rng.choice([1, 3]))
    assert stream.output() == answer(stream.pipeline, table)
    left = {path.name for folder in ("state", "output") for path in (tmp_path / "c" / folder).iterdir()}
    kept = {
        name
        for one in stream.log.all()
        if one.number >= stream.log.last().number - 1
        for _, name in one.names()
    }
    assert kept <= left
    assert len([name for name in left if name.endswith(".arrows")]) == len(
        [name for name in kept if name.endswith(".arrows")]
    )


def test_rows_that_wait_are_let_go_at_the_end(tmp_path):
    table, stream = rows(90, 1), Stream(tmp_path / "c", several())
    for low in range(0, 90, 30):
        stream.epoch(table.slice(low, 30), slack=4, nodes=2)
    assert stream.log.last().waiting
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=2)
    assert stream.output() == answer(stream.pipeline, table)
    assert not stream.log.last().waiting


def test_a_result_that_is_missing_or_a_file_that_is_not_there_is_no_commit(tmp_path, monkeypatch):
    table, stream = rows(60, 2), Stream(tmp_path / "c", several())
    read = Frame.collect
    monkeypatch.setattr(Frame, "collect", lambda self: read(self)[1:])
    with pytest.raises(CheckpointError, match=r"gave the results .*, and not"):
        stream.epoch(table, nodes=2)
    monkeypatch.setattr(Frame, "collect", lambda self: [*read(self), read(self)[1]])
    with pytest.raises(CheckpointError, match=r"gave the results .*, and not"):
        stream.epoch(table, nodes=2)

    def removed(self):
        for path in (tmp_path / "c" / "state").iterdir():
            path.unlink()
        return read(self)

    monkeypatch.setattr(Frame, "collect", removed)
    with pytest.raises(CheckpointError, match="the driver does not see it"):
        stream.epoch(table, nodes=1)
    assert stream.log.last() is None
    wrong = InOrder(Frame(table.rename_columns(JOB.names).slice(0, 9).take([3, 0])))
    with pytest.raises(SourceError, match="comes before"):
        stream.runner().epoch(wrong, 0, None, "s")


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_file_is_open_or_left_behind_an_epoch_that_failed(tmp_path, nodes, monkeypatch):
    begun, table = [], EpochFiles.table
    monkeypatch.setattr(EpochFiles, "table", lambda *given: begun.append(given) or table(*given))

    def fails(row):
        if row.ts == 90:
            raise ValueError("no more")
        return row.ts, row.user, row.item

    mapped = od.Pipeline(SCHEMA).map(fails, schema=SCHEMA)
    stream = Stream(tmp_path / "c", mapped.key_by("user").scan(seen=od.count()))
    with pytest.raises(OperatorError, match="no more") as raised:
        stream.epoch(rows(300, 1), nodes=nodes)
    assert raised.traceback  # which holds all frames: nothing was collected
    left = [file.path for file in psutil.Process().open_files()]
    assert not [path for path in left if path.startswith(str(tmp_path))]
    assert nodes == 2 or begun
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file() and path.name != "QUERY.json"]


def tagged(table):
    """With tags, as an output has them."""
    tags = [pa.array(range(len(table)), pa.int64()), pa.array([0] * len(table), pa.int64())]
    return pa.table([*table.columns, *tags], schema=TAGGED)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("room", [0, 3, 50, 500, 900])
def test_a_full_disk_is_what_is_told(tmp_path, room, beside):
    class Full(Files):
        def write(self, file, data):
            if file.tell() + memoryview(data).nbytes > room:
                raise OSError(errno.ENOSPC, "no space")
            super().write(file, data)

    def write():
        with EpochFiles(str(tmp_path), 1, "0", Full()) as files:
            table = files.table("output", SCHEMA)
            for _ in range(3):
                table.write(rows(300, 1).to_batches()[0])
            table.finish()

    def write_beside():
        files = EpochFiles(str(tmp_path), 1, "0", Full())
        with files, Output(files, TAGGED) as output:
            for _ in range(3):
                output.write(tagged(rows(300, 1)).to_batches()[0])
            output.end()
            output.said()

    (tmp_path / "output").mkdir()
    with pytest.raises(CheckpointError, match=r"files of epoch 1 can't be written: no space\. .*make room"):
        (write_beside if beside else write)()
    assert not list((tmp_path / "output").iterdir())
    assert not [one for one in threading.enumerate() if one.name.startswith("ordstream-output")]
    left = [file.path for file in psutil.Process().open_files()]
    assert not [path for path in left if path.startswith(str(tmp_path))]


def test_a_run_waits_for_an_output_that_is_slow(tmp_path):
    """What waits to be written is in memory."""
    go_on, waits = threading.Event(), threading.Event()

    class Slow(Files):
        def write(self, file, data):
            if threading.current_thread() is not thread:  # not the file's first bytes
                waits.set()
                assert go_on.wait(60)
            super().write(file, data)

    (tmp_path / "output").mkdir()
    files, batch = EpochFiles(str(tmp_path), 1, "0", Slow()), tagged(rows(300, 1)).to_batches()[0]
    written, said = [], []

    def run():
        with files, Output(files, TAGGED) as output:
            for number in range(9):
                output.write(batch)
                written.append(number)
            output.end()
            said.extend(output.said())

    thread = threading.Thread(target=run)
    thread.start()
    assert waits.wait(60)
    thread.join(0.3)  # it would be through by then
    assert len(written) <= WAITING
    go_on.set()
    thread.join(60)
    assert said[0]["rows"] == 9 * batch.num_rows
    assert pq.read_table(tmp_path / "output" / said[0]["file"]).num_rows == said[0]["rows"]


def test_tags_are_written_as_differences_and_other_columns_as_before(tmp_path):
    """A dictionary of tags has all of them: 100,000 rows with two more columns took 986 kB, now 391."""
    nested = pa.struct([("words", pa.list_(pa.string())), ("by", pa.map_(pa.string(), pa.int64()))])
    schema = pa.schema([("a.b", nested), ("n", pa.int64()), *[*TAGGED][-2:]])
    value = {"words": ["x", None], "by": [("k", 1)]}
    table = pa.table([[value] * 500, [7] * 500, range(500), [0] * 500], schema=schema)
    (tmp_path / "output").mkdir()
    with EpochFiles(str(tmp_path), 1, "0") as files:
        made = files.table("output", schema)
        made.write(table.to_batches()[0])
        path = tmp_path / "output" / made.finish()["file"]
    group = pq.ParquetFile(path).metadata.row_group(0)
    encodings = {one.path_in_schema: one.encodings for one in map(group.column, range(group.num_columns))}
    tags = {name: encodings.pop(name) for name in TAG_NAMES}
    assert all("DELTA_BINARY_PACKED" in one and "RLE_DICTIONARY" not in one for one in tags.values())
    assert len(encodings) == 4
    assert all("RLE_DICTIONARY" in one for one in encodings.values())
    assert pq.read_table(path).cast(schema).equals(table)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_source_s_column_may_have_the_name_of_a_tag(tmp_path, kind):
    """Rows that wait, or are late, have the source's columns."""
    schema = pa.schema([("n", pa.int64()), *((name, kind) for name in TAG_NAMES)])
    table = pa.table([[1, 2], [3, None], [4, None]], names=schema.names).cast(schema)
    (tmp_path / "late").mkdir()
    with EpochFiles(str(tmp_path), 1, "0") as files:
        made = files.table("late", schema)
        made.write(table.to_batches()[0])
        path = tmp_path / "late" / made.finish()["file"]
    assert pq.read_table(path).equals(table)
