"""What a stop of a query prints and leaves, wherever it meets the query: nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream as od

pytestmark = pytest.mark.spark

# Java's log goes where the process' errors go, whatever pytest has in their place later: so a process.
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from pyspark.sql import SparkSession
import ordstream as od
from ordstream.spark.streaming.query import Batches, StreamQuery
from ordstream.spark.streaming.hushed import hushed

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
PIPELINE = od.Pipeline(SCHEMA).key_by("user").count("n")
SECONDS = 60
base = Path(sys.argv[1])
(base / "in").mkdir()
call, met, wait = Batches.__call__, threading.Event(), [0.0]

def slow(batches, batch, number):
    met.set()
    time.sleep(wait[0])
    return call(batches, batch, number)

def add(number):
    path = base / "in" / f"{number}.parquet"
    pq.write_table(pa.table([[number], [7]], schema=SCHEMA), path)
    os.utime(path, (1_000_000_000 + number,) * 2)

def begin(checkpoint, **options):
    reader = spark.readStream.schema("ts long, user long").option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(base / "in"))
    return od.spark.stream(PIPELINE, frame, order_by="ts", checkpoint=base / checkpoint, **options)

def connections():
    targets = (repr(getattr(one, "_target", "")) for one in threading.enumerate())
    return sum("ClientServerConnection" in target for target in targets)

def open_in_java():
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    return len(os.listdir(f"/proc/{java}/fd"))

def own_levels():
    configuration = spark._jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration()
    return sorted(str(name) for name in configuration.getLoggers().keySet())

def filters():
    found = spark._jvm.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getFilter()
    return 0 if found is None else found.size() if hasattr(found, "size") else 1

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.sql.adaptive.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
levels = own_levels()
for number in range(3):
    add(number)
begin("whole", trigger="available now").awaitTermination(SECONDS)
before, before_in_java = connections(), open_in_java()
print("begun", file=sys.stderr, flush=True)

Batches.__call__ = slow
for number in range(12):  # Java's call comes while the query is being stopped
    wait[0] = 0.02 * number
    met.clear()
    query = begin(f"first{number}")
    assert met.wait(SECONDS)
    query.stop()
    assert query.exception() is None
wait[0] = 0.0
for number in range(20):  # anywhere
    query = begin(f"any{number}")
    time.sleep(0.015 * number)
    query.stop()
    assert query.exception() is None
stop = StreamQuery.stop

def late(query):
    if threading.current_thread().name == "ordstream stop":
        time.sleep(0.03 * number)  # Spark's next call comes before
    stop(query)

StreamQuery.stop = late
for number in range(8):  # by the sink of the query
    made = []

    def stops(*_):
        while not made:
            time.sleep(0.001)
        made[0].stop()

    made.append(begin(f"sink{number}", sink=od.spark.sinks.Function(stops)))
    assert made[0].awaitTermination(SECONDS)
    assert made[0].exception() is None
    assert len(made[0].epochs) == 1
queries = [begin(f"together{number}") for number in range(4)]  # several at once
stops = [threading.Thread(target=query.stop) for query in queries]
for one in stops:
    one.start()
for one in stops:
    one.join(SECONDS)
until = time.monotonic() + 10
while connections() > before + 1 and time.monotonic() < until:
    time.sleep(0.05)
spark.range(1).count()  # Spark's scheduler goes through what it is told in turn: it has no word left to say
print("over", file=sys.stderr, flush=True)
with hushed(query):
    pass
print(connections() - before, open_in_java() - before_in_java, own_levels() == levels, filters())
"""


def test_a_stop_prints_nothing_and_leaves_nothing(java, tmp_path):
    pytest.importorskip("pyspark")
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5_000:]
    said = ended.stderr.split("begun\n")[1].split("over\n")[0]
    assert said == "", said[:5_000]
    connections, in_java, as_before, filters = ended.stdout.split()
    assert int(connections) <= 1  # one may be the thread's of Java that tells of objects collected there
    assert int(in_java) < 20  # of 45 queries; Java opens some for itself
    assert as_before == "True"
    assert int(filters) <= 2  # of the last stop
