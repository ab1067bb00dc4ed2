"""Second copies of tasks that overtake the first (`spark.speculation`), as a program
(`python spark_copies.py FOLDER`): prints one JSON object.

Spark starts a copy on another host only. So this is a standalone cluster of two workers that listen on two
loopback addresses, hosts of their own to Spark. A function holds the first attempt of one task up.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from spark_classes import SHORT_LIVED
from spark_losses import PLACES, SETTINGS, pipeline, rows, tried

import ordstream as od
from ordstream.reference.run_serial import run_serial

ROWS = 3_000
NODES = 4
HOSTS = ("127.0.0.2", "127.0.0.3")
PATIENCE = 60.0  # seconds until a process of the cluster is there


@contextlib.contextmanager
def cluster(scratch):
    """The address of a standalone cluster of two workers of a core each."""
    environment = os.environ | {"SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
    with contextlib.ExitStack() as running:
        master = begun(running, scratch, environment, "Master", "--host", "127.0.0.1", "--port", "0")
        address = said(master, r"Starting Spark master at (spark://\S+)")
        for host in HOSTS:
            given = ("--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(scratch / host))
            worker = begun(running, scratch, environment, "Worker", *given, address)
            said(worker, "Successfully registered with master")
        yield address


def begun(running, scratch, environment, kind, *given):
    """Start a process of the cluster; the file that it writes its log to."""
    log = scratch / f"{kind}{given[1]}.log"
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / "spark-class")]
    command += [f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--webui-port", "0", *given]
    process = subprocess.Popen(command, env=environment, stdout=log.open("w"), stderr=subprocess.STDOUT)
    running.callback(process.wait)
    running.callback(process.terminate)
    return log


def said(log, pattern):
    """Wait until a log has a line; what it says."""
    until = time.monotonic() + PATIENCE
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
    return found.group(found.re.groups)


def settings(scratch, address):
    """Of the session."""
    return {
        "spark.master": address,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
        "spark.cores.max": "2",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.local.dir": str(scratch / "local"),
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    } | SETTINGS["speculation"]


def streamed(spark, scratch, place):
    """The same from a stream of two epochs, one task of which is held up."""
    checkpoint, job = str(scratch / f"checkpoint-{place}"), pipeline(scratch, "slow", place, ROWS // 2)
    frame = spark.readStream.schema("n long, user long, item long").option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(scratch / "files"))
    options = {"order_by": "n", "checkpoint": checkpoint, "nodes": NODES, "driver_rows": 0}
    query = od.spark.stream(job, frame, trigger="available now", **options)
    query.awaitTermination(200)
    od.spark.finish(checkpoint)
    return od.spark.read_output(checkpoint).toArrow()


def main(scratch):
    """See the module."""
    from ordstream.spark import Channel, apply, local_session

    table, equal = rows(ROWS), {}
    (scratch / "files").mkdir()
    for number, low in enumerate((0, ROWS // 2)):
        path = scratch / "files" / f"{number}.parquet"
        pq.write_table(table.slice(low, ROWS // 2), path, row_group_size=ROWS // 5)
        os.utime(path, (1_000_000_000 + number,) * 2)
    expected = run_serial(pipeline(scratch, "none", 0, 0), table)
    with cluster(scratch) as address:
        spark = local_session(1, memory="600m", settings=settings(scratch, address))
        frame = spark.read.parquet(str(scratch / "files"))
        counted = {}
        for place in PLACES[:2]:
            job, channel = pipeline(scratch, "slow", place, ROWS // 2), Channel()
            result = apply(job, frame, order_by="n", nodes=NODES, tags=True, report=channel)
            found = result.toArrow()
            tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
            same = found.drop(["_serial", "_index"]).cast(expected.table.schema).equals(expected.table)
            equal[f"fragment {place}"] = same and list(tags) == expected.tags
            counted[place] = [one["tuples"] for one in channel.latest.values() if one["fragment"] == place]
        job = pipeline(scratch, "slow", PLACES[-1], ROWS // 2)
        apply(job, frame, order_by="n", nodes=NODES).write.parquet(str(scratch / "out"))
        written = sorted((scratch / "out").glob("*.parquet"))
        found = pa.concat_tables(map(pq.read_table, written)).cast(expected.table.schema)
        equal["files"] = found.equals(expected.table)
        before = tried(spark)
        equal["stream"] = streamed(spark, scratch, 2).cast(expected.table.schema).equals(expected.table)
        told = {"batch": before["overtook"], "stream": tried(spark)["overtook"] - before["overtook"]}
        spark.stop()
    print(json.dumps({"equal": equal, "overtook": told, "tuples": counted}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
