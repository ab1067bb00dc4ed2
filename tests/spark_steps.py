"""The tasks of a job over nodes in Spark (`ordstream.spark.nodes.Job`), called one after the other here: no
Spark, the same functions, rows that lie and come as Spark may have them.
"""

from __future__ import annotations

import random
import zlib
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE
from ordstream.fragments.processes import prepare
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.clock import clock_columns, clock_of
from ordstream.plan.columns import used_source_columns
from ordstream.plan.sources import with_one_source
from ordstream.spark import executor
from ordstream.spark.clock_marks import finder, marks_of
from ordstream.spark.executor import SERIAL, RestoreFunction, carried_name
from ordstream.spark.layout import Layout
from ordstream.spark.mark_rows import PLACE, REST
from ordstream.spark.nodes import Job, carriers


def run_as_spark_does(
    pipeline: Pipeline, rows: pa.Table, nodes: int, seed: int = 0, **options: Any
) -> pa.Table:
    """The output in order, with its tags; the source's rows come in their order.

    Parameters
    ----------
    pipeline : Pipeline
        Of one source, or of several whose rows are wide ones already.
    rows : pyarrow.Table
    nodes : int
    seed : int
        How the source's rows lie.
    **options
        Of the run.
    """
    pipeline = Pipeline.of(with_one_source(pipeline.plan))
    fragments, chosen, _ = prepare(pipeline, {"tags": True, **options}, "here")
    chosen.pop("workers", None)
    fragments = fragmenting.combined(fragments)
    job = Job(fragments, {}, Layout(nodes, 1, None, ""), (), (), 0, chosen, None)
    used = used_source_columns(pipeline.plan)
    told = clock_of(pipeline.plan, options.get("punctuate"))
    times = () if told is None else clock_columns(told)
    kept = [k for k, is_used in enumerate(used) if is_used or k in times]
    names = [*(carried_name(k) for k in kept), SERIAL]
    serials = np.arange(len(rows), dtype=np.int64)
    there = pa.table([*(rows.column(k) for k in kept), serials], names=names)
    if chosen.get("given_marks"):
        assert told is not None
        found = pa.Table.from_batches(finder(pipeline.plan, told)(iter(there.to_batches())))
        job.marks = marks_of(pipeline.plan, told, found)
    lies = random.Random(seed)
    owner = [lies.randrange(nodes) for _ in range(len(rows))]  # where it lies
    job.direct = len(fragments) > 1 and not fragments[0].operators
    if job.direct:
        keys = rows.select(list(fragments[1].key or ())).to_pylist()
        owner = [zlib.crc32(repr(key).encode()) % fragments[1].nodes(nodes) for key in keys]
    parts = [there.filter(pa.array([at == k for at in owner], pa.bool_())) for k in range(nodes)]
    for number in range(2 if job.direct else 1, len(fragments) + 1):
        last = number == len(fragments)
        function, _ = job.task(number, None if last else job.onward(number), "place")
        made = []
        for k, part in enumerate(parts):
            with mock.patch.object(executor, "TaskContext", _Task(k)):
                made.append(pa.Table.from_batches([*function(iter(_cut(part, lies)))], function.output))
        left = pa.concat_tables(made)
        if not last:
            parts = [_in_order(left.filter(pa.array(np.equal(left.column(NODE), k)))) for k in range(nodes)]
    left = _in_order(left)
    fields = StructType(carriers(fragments[-1].output, last=True).fields[:-1])
    restore = RestoreFunction(to_arrow_schema(fields, timezone="UTC"), tuple(fragments[-1].output.names))
    left = left.append_column(SERIAL, pa.array(np.full(len(left), len(rows), np.int64)))
    found = [*restore(iter(left.to_batches()))]
    table = pa.Table.from_batches(found) if found else left.slice(0, 0).select(restore.schema.names)
    return table.rename_columns([*fragments[-1].output.names, "_serial", "_index"][: len(table.columns)])


class _Task:
    """What a task asks Spark for: which one it is."""

    def __init__(self, partition: int) -> None:
        self.partition = partition

    def get(self) -> _Task:
        return self

    def partitionId(self) -> int:
        return self.partition

    def cpus(self) -> int:
        return 1

    stageId = attemptNumber = cpus


def _cut(part: pa.Table, lies: random.Random) -> list[pa.RecordBatch]:
    return part.combine_chunks().to_batches(max_chunksize=lies.choice((1, 3, 1_000)))


def _in_order(rows: pa.Table) -> pa.Table:
    """As `_by_place` has Spark sort them."""
    places = rows.column(PLACE).to_pylist()
    rests = rows.column(REST).to_pylist() if REST in rows.column_names else [None] * len(rows)
    keys = [
        (place is None, place or 0, rest is not None, rest or b"")
        for place, rest in zip(places, rests, strict=True)
    ]
    return rows.take(pa.array(sorted(range(len(rows)), key=keys.__getitem__), pa.int64()))
