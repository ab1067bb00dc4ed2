"""Spark Connect: a server of its own, and a client without a Java side.

Skipped without grpcio (`pip install pyspark[connect]` brings it). The thin client, `pyspark-client`, has
neither py4j nor Spark's classic frames: the first test shows that `apply` needs neither.
"""

import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import ordstream

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

ROOT = str(Path(ordstream.__file__).parents[1])

IMPORTS = """
import sys
import pyspark.sql

before = set(sys.modules)
import ordstream.spark
ordstream.spark.apply, ordstream.spark.explain, ordstream.spark.node_function, ordstream.spark.spark_schema
lacks = ("py4j", "pyspark.sql.classic", "ordstream.spark.interrupt")
print(*sorted(name for name in set(sys.modules) - before if name.startswith(lacks)))
"""


def ran(script):
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_apply_imports_nothing_that_the_thin_client_lacks():
    ended = ran(IMPORTS)
    assert (ended.stdout, ended.returncode) == ("\n", 0), ended.stderr


THIN = """
import sys

sys.modules["pyspark.core"] = None  # as pyspark-client is installed
import ordstream as od

od.spark.apply, od.spark.read_output, od.spark.state
for name in ("stream", "finish", "local_session"):
    try:
        getattr(od.spark, name)
    except ImportError as error:
        print(error)
"""


def test_what_the_thin_client_can_t_do_is_told_in_a_sentence():
    """It was: cannot import name 'SparkContext' from 'pyspark'."""
    ended = ran(THIN)
    assert ended.returncode == 0, ended.stderr
    for name, line in zip(("stream", "finish", "local_session"), ended.stdout.splitlines(), strict=True):
        assert line.startswith(
            f"od.spark.{name} needs a Spark session of this process, which pyspark-client"
        )


def test_a_client_of_a_server_starts_no_spark_of_its_own(monkeypatch, java):
    """PySpark said: CONNECT_URL_NOT_SET."""
    from ordstream.spark import local_session

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with pytest.raises(RuntimeError, match="is a client of Spark Connect"):
        local_session()


CLIENT = """
import sys
import time
from pyspark.sql import SparkSession, Window, functions as F
import ordstream as od
from ordstream.spark import Channel, apply, progress

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
df = spark.range(200).select((F.lit(200) - F.col("id")).alias("TS"), (F.col("id") % 7).alias("k"))
pipeline = od.Pipeline(df).key_by("k").scan(seen=od.count())
expected = [(200 - n, n % 7, n // 7 + 1) for n in range(200)]
for keys in ([F.desc("ts")], [F.lit(0) - df.TS], [F.col("k") * 0, F.desc_nulls_first("Ts")]):
    for nodes in (1, 2):
        assert apply(pipeline, df, order_by=keys, nodes=nodes).collect() == expected, (keys, nodes)
assert od.Pipeline(df.schema).schema == od.Pipeline(df).schema
packed = df.select(
    "TS", "k", F.expr("if(TS % 3 = 0, null, named_struct('a.b', TS, 'm', map('é', array(k, null)))) as s"),
    F.expr("array('x', null, cast(TS as string)) as w"),
    F.expr("map(struct(k), timestamp_seconds(TS)) as m"),
)
passed = od.Pipeline(packed).key_by("k").scan(seen=od.count()).filter(od.col("w").length() > 2)
for nodes in (1, 2):
    found = apply(passed, packed, order_by="TS", nodes=nodes)
    assert found.schema.simpleString() == packed.schema.add("seen", "long").simpleString()
    assert found.drop("seen").collect() == packed.orderBy("TS").collect(), nodes
here = od.Pipeline(packed).key_by("k").scan(seen=od.count()).run(packed).table  # timestamps among them
assert (here.num_rows, here["seen"][-1].as_py()) == (200, 29), here
progress.this_host = lambda: "another"  # than the server's
for nodes in (1, 2):
    channel, told = Channel(), []
    channel.on_report = lambda key, report: told.append(key)
    rows = apply(pipeline, df, order_by=F.desc("ts"), nodes=nodes, report=channel, progress=told.append)
    for turn in (1, 2):  # an action, and another one
        assert rows.collect() == expected, (nodes, turn)
        tuples = [report["tuples"] for report in channel.reports.values()]
        assert (len(tuples), sum(tuples)) == (nodes * turn, 200 * turn), (nodes, turn, channel.reports)
    end = time.monotonic() + 60
    while len(told) < 4 * nodes:  # a count and a report of each; from a thread of its own
        assert time.monotonic() < end, told
        time.sleep(0.01)
try:
    od.Pipeline(packed.withColumn("v", F.parse_json(F.lit("{}"))))
except od.SchemaError as error:
    print(error)
for key in (F.lit("k"), F.explode(F.array("k", "k")), F.row_number().over(Window.orderBy("k"))):
    try:
        apply(pipeline, df, order_by=key)
    except (od.SchemaError, od.PlanError) as error:
        print("refused", str(error)[:60])
    else:
        print("taken", key)
for key in (F.desc("nothing"), F.array("k"), F.collate(F.lit("a"), "UNICODE_CI")):
    try:
        apply(pipeline, df, order_by=key)
    except (od.SchemaError, od.PlanError) as error:
        print(error)
"""


@pytest.fixture(scope="module")
def server(java):
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module)
    home = Path(find_spec("pyspark").origin).parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(home / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit", "--master", "local[1]",
        "--driver-memory", "700m", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
    ]  # fmt: skip
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        command,
        env=os.environ | own | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            assert process.poll() is None, "the server ended"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def client_of(server, folder):
    # A file: PySpark takes a main module without one for its own doctests, and if a package of Connect's is
    # missing it ends with status 0 and no word on stdout.
    script = folder / "client.py"
    script.write_text(CLIENT)
    return subprocess.run(
        [sys.executable, str(script), server],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_apply_through_a_server(server, tmp_path):
    ended = client_of(server, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout, ended.stderr
    variant, *refused, missing, nested, collated = ended.stdout.splitlines()
    assert [line.startswith("refused order_by: ") for line in refused] == [True] * 3, refused
    assert variant.startswith("column 'v' is variant in Spark; a pipeline carries all types of Spark's but")
    assert missing.startswith("unknown column 'nothing' in the DataFrame; available: 'TS', 'k'")
    assert "is array<bigint>, by which a node can't compare rows" in nested
    assert "has the collation UNICODE_CI" in collated
