"""Four executors that are processes of their own, as a program (`python spark_cluster.py FOLDER`): prints
one JSON object.

They share a machine, and nothing else that a cluster's would not: what one executor writes is fetched from
it over the network, and is gone with it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
from spark_classes import SHORT_LIVED
from spark_tools import SOURCE, once, rows_of, stream, write_files

import ordstream as od
from ordstream.reference.run_serial import run_serial

ROWS = 6_000
EXECUTORS = 4


def settings(scratch):
    """Of the session."""
    return {
        "spark.master": f"local-cluster[{EXECUTORS},1,1024]",
        "spark.executor.memory": "600m",
        "spark.executor.cores": "1",
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.local.dir": str(scratch / "local"),
        # a block of another executor of this machine is not read from its disk
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }


def kill_executor():
    """End the Java process that this Python worker belongs to, and all that it has written with it."""
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)


def jobs(scratch):
    """Rows that the end of the stream gives, from more nodes than executors; and a job whose executor dies
    once, in the last fragment, when others have written what they send.
    """
    users = od.Pipeline(SOURCE).filter(od.col("user").is_not_null()).key_by("user")
    killing = users.scan(seen=od.count()).key_by("item").scan(both=od.sum("seen"))
    schema = pa.schema([*SOURCE, ("seen", pa.int64()), ("both", pa.int64())])
    return {
        "first and last": (8, users.lag({"before": "n"}).head(40).key_by("item").tail(7)),
        "killed": (4, killing.map(once(str(scratch / "killed"), kill_executor), schema=schema)),
    }


def main(scratch):
    """See the module."""
    from ordstream.spark import apply, explain, local_session

    found = {"equal": {}, "partitions": {}}
    spark = local_session(1, memory="700m", settings=settings(scratch))
    table = stream(range(ROWS))
    write_files(scratch / "files", table, [50, 5_000], ["a", "b", "c"])
    frame = spark.read.parquet(str(scratch / "files"))
    for name, (nodes, pipeline) in jobs(scratch).items():
        result = apply(pipeline, frame, order_by="ts", nodes=nodes)
        expected = run_serial(jobs(scratch)[name][1] if name != "killed" else killed_reference(), table)
        found["equal"][name] = rows_of(result.toArrow()) == rows_of(expected.table)
    found["died"] = (scratch / "killed").exists()
    # one executor has died: what is chosen does not change
    found["explain"] = explain(od.Pipeline(SOURCE).key_by("user").count(), spark).splitlines()[:2]
    spark.stop()
    print(json.dumps(found))


def killed_reference():
    """The job without the death."""
    users = od.Pipeline(SOURCE).filter(od.col("user").is_not_null()).key_by("user")
    return users.scan(seen=od.count()).key_by("item").scan(both=od.sum("seen"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
