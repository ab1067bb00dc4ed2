"""The process that is killed: a stream from Parquet files, to its end.

``python stream_process.py '{"folder": ..., "nodes": ..., "early": ..., "moving": ..., "clocked": ...,
"driver_rows": ...}'``; see `kill_streams.StreamJob`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import stream_faults
from kill_streams import EVERY, MIXED, SLACK, clocked_pipeline, moving_pipeline, pipeline

import ordstream as od
from ordstream.spark import local_session
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.query import Batches


class Returned:
    """`Batches`, with a moment behind it: Spark has not committed yet."""

    def __init__(self) -> None:
        self.plain = Batches.__call__

    def install(self) -> None:
        plain = self.plain

        def call(batches: Batches, batch: Any, number: int) -> None:
            plain(batches, batch, number)
            stream_faults.reached(int(number), "before", "batch returned")

        Batches.__call__ = call  # type: ignore[method-assign]


def held_back() -> None:
    """The negative control: an epoch's output gets its name after the manifest has its own."""
    publish = EpochLog.publish

    def early(log: EpochLog, manifest: Any) -> None:
        files = [log.folder / "output" / one["file"] for one in manifest.output]
        for path in files:
            path.rename(path.with_suffix(".held"))
        publish(log, manifest)
        for path in files:
            path.with_suffix(".held").rename(path)

    EpochLog.publish = early  # type: ignore[method-assign]


def stop_what_is_left() -> None:
    """In a Java process that outlives its drivers: the Spark of the driver before."""
    from pyspark.java_gateway import launch_gateway

    left = launch_gateway().jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    if left.isDefined():
        left.get().sparkContext().stop()


def main() -> None:
    """Run until the source ends, or a fault comes."""
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    Returned().install()
    if given["early"]:
        held_back()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        stop_what_is_left()
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.python.daemon.module": "stream_daemon",
    }
    spark = local_session(2, node_cores=1, retries=8, memory="600m", settings=settings)
    frame = spark.readStream.schema("ts long, user long, cents long").option("maxFilesPerTrigger", 1)
    of_clock = {"punctuate": EVERY, "late": "side_output"} if given["clocked"] else {}
    query = od.spark.stream(
        clocked_pipeline() if given["clocked"] else moving_pipeline() if given["moving"] else pipeline(),
        frame.parquet(str(folder / "source")),
        order_by="ts",
        slack=SLACK,
        checkpoint=folder / "checkpoint",
        trigger="available now",
        nodes=given["nodes"],
        balance=MIXED if given["moving"] else None,
        driver_rows=given["driver_rows"],
        **of_clock,
    )
    query.awaitTermination()
    od.spark.finish(folder / "checkpoint")
    spark.stop()


if __name__ == "__main__":
    main()
