"""Epochs of a stream without Spark: its tasks run here, its shuffles are plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.spark import executor
from ordstream.spark.streaming import epoch_functions
from ordstream.spark.streaming.epoch_functions import SUSPEND
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_runner import EpochRunner, output_schema
from ordstream.spark.streaming.micro_batch import InOrder
from ordstream.spark.streaming.row_order import in_order
from ordstream.testing import run_serial

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

    sparkSession = None

    def collect(self):
        return [tuple(row.values()) for part in self.partitions for row in part.to_pylist()]


def install(monkeypatch):
    """Tasks ask `Frame` where they are."""

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
            "grouping": "hash",
        } | options
        return EpochRunner.made(
            given.pop("grouping"), ("ts",), log=self.log, pipeline=self.pipeline, ordering=("c0",), **given
        )

    def epoch(self, table, end=SUSPEND, commit=True, **options):
        frame = InOrder(Frame(in_order(table.rename_columns(JOB.names), ["c0"])))
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


def answer(pipeline, table, punctuate=None):
    found = run_serial(pipeline, table, punctuate=punctuate)
    assert found.error is None
    assert len(found.rows) > 5
    return [(*row, *tag) for row, tag in zip(found.rows, found.tags, strict=True)]
