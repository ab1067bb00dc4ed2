"""What the Spark tests of cut pipelines share; also run as a program in a session of its own kind
(`python spark_tools.py`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from spark_cancel import seconds_of_work_after_cancel
from spark_classes import SHORT_LIVED

import ordstream as od
from ordstream.reference.run_serial import run_serial

LONG = "ORDSTREAM_LONG" in os.environ
SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("n", pa.uint32())])
AT = pa.schema([*SOURCE, ("at", pa.timestamp("ns"))])


def stream(numbers):
    """Rows whose ts ascends in ties of seven."""
    numbers = list(numbers)
    user = [None if n % 11 == 0 else (n * n) % 97 for n in numbers]
    return pa.table(
        [[n // 7 for n in numbers], user, [f"é{n % 5}" for n in numbers], numbers], schema=SOURCE
    )


def write_files(folder, table, cuts, names):
    """The rows between cuts as files of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, low, high in zip(names, [0, *cuts], [*cuts, len(table)], strict=True):
        pq.write_table(table.slice(low, high - low), folder / f"{name}.parquet", row_group_size=1_500)


def timed(row):
    return (*row, row.ts)


def chain(*steps, last=True):
    """Keys that change three times, types that Spark has not, updates and a flush of several operators."""
    pipeline = od.Pipeline(SOURCE).filter(od.col("user").is_not_null())
    for step in steps:
        pipeline = step(pipeline)
    pipeline = (
        pipeline.map(timed, schema=AT)
        .key_by("user")
        .scan(seen=od.count(), latest=od.last("at"), least=od.min("n"))
        .key_by("item")
        .sessionize("ts", 2, ["least", "latest"])
        .flat_map(od.pairs("least"))
        .key_by("left", "right")
        .count("m")
    )
    return pipeline.key_by("m").count("of", emit="final") if last else pipeline


def rows_of(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def once(flag, act):
    """A row function that does `act` when the first task comes to it, never again."""

    def step(row):
        if row.user == 50:
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return tuple(row)
            act()
        return tuple(row)

    return step


def fail():
    raise ValueError("once")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def in_own_executors(program, folder, *beside, seconds=280):
    """Run a program of the tests whose executors are processes of their own: the JSON object that it prints
    last. `beside`: files whose folders it and its executors import from; `seconds`: for which it is waited.
    """
    import pyspark

    home = folder / "spark"  # a standalone executor writes to $SPARK_HOME/work
    home.mkdir()
    for name in ("bin", "sbin", "jars", "python", "data", "licenses"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    paths = [str(Path(file).parent) for file in (Path(od.__file__).parent, program, *beside)]
    environment = os.environ | {"SPARK_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, program, str(folder)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def main(scratch):
    """In executors that are processes of their own: the same output for 2 and 3 nodes, through a killed
    worker; cancels over unix domain sockets. Prints one JSON object.
    """
    from ordstream.spark import Balancer, Channel, apply, explain, local_session

    found = {}
    settings = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "700m",
        "spark.executor.cores": "1",
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.python.unix.domain.socket.enabled": "true",
    }
    spark = local_session(1, memory="700m", settings=settings)
    table = stream(range(6_000))
    write_files(scratch / "files", table, [50, 5_000], ["a", "b", "c"])
    frame = spark.read.parquet(str(scratch / "files"))
    expected = run_serial(chain(), table)
    killing = chain(lambda p: p.map(once(str(scratch / "flag"), kill), schema=SOURCE))
    for nodes, pipeline in ((2, killing), (3, chain())):
        channel = Channel()
        result = apply(pipeline, frame, order_by="ts", nodes=nodes, tags=True, report=channel).toArrow()
        found[f"equal {nodes}"] = rows_of(result.drop(["_serial", "_index"])) == rows_of(expected.table)
        tags = list(zip(result["_serial"].to_pylist(), result["_index"].to_pylist(), strict=True))
        found[f"tags {nodes}"] = tags == expected.tags
        found[f"reports {nodes}"] = sorted(
            (r["fragment"], k.partition, r["tuples"]) for k, r in channel.latest.items()
        )
        found[f"attempts {nodes}"] = max(key.attempt for key in channel.reports)
    front, posg = "enriched", Balancer("posg", key="item")
    dkg = Balancer("dkg", learn="previous")
    grouped = chain(
        lambda p: p.map(tuple, schema=SOURCE, name=front),
        lambda p: p.map(once(str(scratch / "again"), kill), schema=SOURCE),
    )
    for turn in (1, 2):
        grouping = (
            {front: posg, "scan_5": dkg, "sessionize_6": "dkg"}
            if turn == 1
            else {front: posg, "scan_5": dkg}
        )
        (scratch / "again").unlink(missing_ok=True)
        result = apply(grouped, frame, order_by="ts", nodes=3, tags=True, grouping=grouping).toArrow()
        tags = list(zip(result["_serial"].to_pylist(), result["_index"].to_pylist(), strict=True))
        found[f"grouped {turn}"] = (
            rows_of(result.drop(["_serial", "_index"])) == rows_of(expected.table) and tags == expected.tags
        )
        found[f"killed {turn}"] = (scratch / "again").exists()
    found["learnt"] = [posg.times.tuples > 0, sorted(dkg.maps)]
    found["explain"] = explain(chain(), spark).splitlines()[0]
    found["executors"] = len(
        {row.pid for row in spark.range(2, numPartitions=2).mapInArrow(_pids, "pid long").collect()}
    )
    found["presorted"] = presorted(spark)
    for way in ("group", "group with interrupt") if LONG else ("group with interrupt",):
        found[f"cancel {way}"] = seconds_of_work_after_cancel(
            spark, scratch / f"beats {way}", f"uds {way}", way=way, nodes=2
        )
    found["elsewhere"] = elsewhere(spark, frame, expected)
    found["cancel elsewhere"] = seconds_of_work_after_cancel(
        spark, scratch / "beats elsewhere", "elsewhere", way="group", nodes=2
    )
    spark.stop()
    print(json.dumps(found))


def elsewhere(spark, frame, expected):
    """What a driver hears that the executors hold for one on another host, with and without an address for
    them: reports in order of fragment and partition, counts, and whether the output is right.
    """
    from ordstream.spark import Channel, apply, progress

    progress.this_host = lambda: "another"
    heard = []
    for nodes, listen in ((1, None), (2, None), (2, "127.0.0.2")):
        counts, channel = [], Channel()
        result = apply(
            chain(), frame, order_by="ts", nodes=nodes, report=channel, progress=counts.append, listen=listen
        ).toArrow()
        reports = sorted((r.get("fragment"), k.partition, r["tuples"]) for k, r in channel.latest.items())
        end = time.monotonic() + 60
        while channel.rows not in counts and time.monotonic() < end:  # told by a thread of its own
            time.sleep(0.01)
        heard.append([rows_of(result) == rows_of(expected.table), reports, channel.rows in counts])
    return heard


def presorted(spark):
    """How often rows in ties, over eight partitions that are in order, did not come out in their order,
    or were said to be out of it.
    """
    from ordstream.spark import apply

    frame = spark.range(0, 16_000, 1, 8).selectExpr("id div 7 as ts", "id % 97 as user", "id as n")
    pipeline = (
        od.Pipeline(pa.schema([(name, pa.int64()) for name in frame.columns]))
        .key_by("user")
        .scan(seen=od.count())
    )
    expected = [(n // 7, n % 97, n, n // 97 + 1) for n in range(16_000)]
    wrong = 0
    for nodes in (1, 1, 1, 2) if LONG else (1, 2):
        try:
            wrong += (
                rows_of(apply(pipeline, frame, order_by="ts", presorted=True, nodes=nodes).toArrow())
                != expected
            )
        except Exception as error:
            print(error, file=sys.stderr)
            wrong += 1
    return wrong


def _pids(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()] * batch.num_rows})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
