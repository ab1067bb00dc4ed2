"""Epochs one behind the other without Spark: its tasks run here, its shuffles are plain Python. Whatever the
batches, nodes and attempts, the committed files hold what `run_serial` gives.
"""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import CheckpointError, SourceError
from ordstream.testing import run_serial

pytest.importorskip("pyspark")
from ordstream.spark import executor
from ordstream.spark.streaming import epoch_functions
from ordstream.spark.streaming.epoch_functions import FINISH, SUSPEND
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_runner import EpochRunner, output_schema
from ordstream.spark.streaming.row_order import in_order

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string())])
JOB = pa.schema([("c0", pa.int64()), ("c1", pa.int64()), ("c2", pa.string())])


class Task:
    """What a task asks Spark for."""

    def __init__(self, partition):
        self.partition = partition

    def partitionId(self):
        return self.partition

    def cpus(self):
        return 1


class Frame:
    """Partitions of rows, with the few methods of a DataFrame that an epoch uses."""

    def __init__(self, *partitions):
        self.partitions = partitions

    def mapInArrow(self, function, _):
        made = []
        for number, part in enumerate(self.partitions):
            Frame.task = Task(number)
            found = list(function(iter(part.to_batches(max_chunksize=7))))
            made.append(pa.Table.from_batches(found))
        return Frame(*made)

    def repartitionById(self, count, name):
        whole = self.repartition(1).partitions[0]
        nodes = whole[name].to_numpy()
        return Frame(*(whole.filter(pa.array(nodes == node)) for node in range(count)))

    def repartition(self, _):
        return Frame(pa.concat_tables(reversed(self.partitions)))

    def sortWithinPartitions(self, name):
        return Frame(*(part.sort_by(name) for part in self.partitions))

    def collect(self):
        return [tuple(row.values()) for part in self.partitions for row in part.to_pylist()]


@pytest.fixture(autouse=True)
def tasks(monkeypatch):
    class Context:
        @staticmethod
        def get():
            return Frame.task

    monkeypatch.setattr(epoch_functions, "TaskContext", Context)
    monkeypatch.setattr(executor, "TaskContext", Context)


def rows(count, seed):
    rng = np.random.default_rng(seed)
    users = pa.array(rng.integers(0, 9, count), mask=rng.integers(0, 9, count) == 0)
    items = [f"é{n}" for n in rng.integers(0, 4, count)]
    return pa.table([np.arange(count) // 3, users, items], schema=SCHEMA)


def several():
    seen = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count(), latest=od.last("ts"))
    behind = (
        seen.key_by("item", "seen").lag({"before": "latest"}).key_by("item").sessionize("ts", 2, ["seen"])
    )
    return behind


def whole():
    return od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count()).top_k(3, by="seen", emit="updates")


class Stream:
    def __init__(self, folder, pipeline):
        self.pipeline = pipeline
        self.log = EpochLog.begun(folder, ("ts",), output_schema(pipeline))

    def runner(self, **options):
        given = {
            "nodes": 1,
            "slack": None,
            "late": "raise",
            "workers": 0,
            "options": {},
            "run": "r",
        } | options
        return EpochRunner.made("hash", log=self.log, pipeline=self.pipeline, ordering=("c0",), **given)

    def epoch(self, table, end=SUSPEND, commit=True, **options):
        frame = Frame(in_order(table.rename_columns(JOB.names), ["c0"]))
        last = self.log.last()
        made = self.runner(**options).epoch(frame, 0 if last is None else last.number + 1, last, "s", end)
        if commit:
            self.log.publish(made)
            self.log.collect(made.number)
        return made

    def output(self):
        files = [one["file"] for manifest in self.log.all() for one in manifest.output]
        parts = [pq.ParquetFile(self.log.folder / "output" / name).read() for name in files]
        return [tuple(row.values()) for part in parts for row in part.to_pylist()]


def answer(pipeline, table):
    found = run_serial(pipeline, table)
    assert found.error is None
    assert len(found.rows) > 5
    return [(*row, *tag) for row, tag in zip(found.rows, found.tags, strict=True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pipeline", [several, whole], ids=lambda made: made.__name__)
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
    with pytest.raises(SourceError, match="comes before"):
        stream.runner().epoch(Frame(table.rename_columns(JOB.names).slice(0, 9).take([3, 0])), 0, None, "s")
