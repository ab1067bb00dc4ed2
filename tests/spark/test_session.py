"""The local session starts without a line that looks like trouble."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream
from ordstream.errors import PlanError
from ordstream.tpcxbb.generator import generate_clicks

PROGRAM = """
import os, sys
from ordstream.spark import local_session

session = local_session(2)

def where(batches):
    import pyarrow as pa

    yield from batches
    yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

one = session.createDataFrame([("driver",)], "python string")
rows = one.mapInArrow(where, "python string").collect()
assert {row.python for row in rows} == {"driver", sys.executable}, rows
settings = session.sparkContext.getConf()
assert settings.get("spark.task.cpus") == "2"
assert settings.get("spark.driver.host") == "127.0.0.1"

def failing(batches):
    raise ValueError("once is enough")
    yield

for write in ("parquet", "noop"):
    try:
        one.mapInArrow(failing, "n long").write.format(write).mode("overwrite").save(sys.argv[1])
    except Exception as error:
        assert "once is enough" in str(error)
    else:
        raise AssertionError(write)
os.write(2, b"still here\\n")
try:
    local_session()
except RuntimeError as error:
    print(error)
session.stop()
"""


@pytest.mark.spark
@pytest.mark.skipif("ORDSTREAM_LONG" not in os.environ, reason="the long form; as much is in test_demo.py")
def test_start_first_job_and_a_write_that_fails_print_nothing(java, tmp_path):
    pytest.importorskip("pyspark")
    environment = os.environ | {
        "PYTHONPATH": str(Path(ordstream.__file__).parents[1])
    }  # the build under test
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "rows")]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "still here\n"
    assert ended.stdout == "this process already has a Spark context: stop it first, or use its session\n"


INTERRUPTED = """
import os, signal, threading, time
from pathlib import Path
from ordstream.spark import local_session

def interrupt():
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    while not children.read_text():
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    local_session(2)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="finds the Java process in /proc")
def test_ctrl_c_while_java_starts_leaves_no_java_process(java):
    pytest.importorskip("pyspark")
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    # a Java process that stays would hold the pipes: run() would not return
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("interrupted\n", "", 0)


def test_java_is_asked_for_by_name(monkeypatch, tmp_path):
    session = pytest.importorskip("ordstream.spark.session")
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(RuntimeError, match="Java runtime, 17 or newer"):
        session.local_session()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cores": "a"}, "cores must be an int of at least 1, got 'a'"),
        ({"cores": 0}, "cores must be an int of at least 1, got 0"),
        ({"cores": 2, "node_cores": 3}, "node_cores must be at most 2, got 3"),
        ({"node_cores": 1.5}, "node_cores must be an int of at least 1, got 1.5"),
        ({"retries": -1}, "retries must be a whole number from 0 to 1000, got -1"),
    ],
)
def test_numbers_that_spark_would_refuse_with_a_trace(given, text):
    session = pytest.importorskip("ordstream.spark.session")
    with pytest.raises(PlanError, match=text):
        session.local_session(**given)


def test_a_machine_without_the_name_localhost_is_told_what_to_do(monkeypatch):
    session = pytest.importorskip("ordstream.spark.session")

    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("JAVA_HOME", "/any")
    monkeypatch.setattr(session.socket, "getaddrinfo", unknown)
    with pytest.raises(
        RuntimeError, match=r"'localhost', which this machine can't resolve .* to /etc/hosts"
    ):
        session.local_session()


LATE = """
import os
from ordstream.spark import session

try:
    with session._without_startup_noise():
        launcher = os.dup(2)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    os.write(launcher, b"WARNING: Using incubator modules: x\\nanother line\\n")
    os.close(launcher)
import threading
[thread.join() for thread in threading.enumerate() if thread.name == "spark-stderr"]
"""


@pytest.mark.spark
def test_what_the_launcher_says_after_an_interrupt_is_filtered_too() -> None:
    """Ctrl-C while Java starts: its launcher may write its line when the block that starts it is over
    already.
    """
    pytest.importorskip("pyspark")
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    ended = subprocess.run(
        [sys.executable, "-c", LATE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (ended.stderr, ended.returncode) == ("another line\n", 0)


# The command line, which gets SIGINT when PySpark makes its n-th call of such a method. It says when.
AT_CALL = """
import os, runpy, signal, sys
import pyspark
from pyspark.sql.classic.dataframe import DataFrame

signal.signal(signal.SIGINT, signal.default_int_handler)
where = sys.argv.pop(1)

def interrupted(method):
    def call(self, *given, **named):
        print("now", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        return method(self, *given, **named)
    return call

if where == "stop":
    pyspark.SparkContext.stop = interrupted(pyspark.SparkContext.stop)
else:
    DataFrame.collect = interrupted(DataFrame.collect)
runpy.run_module("ordstream", run_name="__main__", alter_sys=True)
"""


@pytest.mark.spark
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to itself")
@pytest.mark.parametrize("where", ["collect", *(["stop"] if "ORDSTREAM_LONG" in os.environ else [])])
def test_ctrl_c_in_a_command_is_one_line(java, tmp_path, where):
    """While the job runs, and late, when the answer is there and Spark is being stopped; no Java process
    holds the pipes afterwards.
    """
    pytest.importorskip("pyspark")
    generate_clicks(tmp_path, rows=600)
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    command = [
        sys.executable,
        "-c",
        AT_CALL,
        where,
        "run",
        "q2",
        "--engine",
        "spark",
        "--data",
        str(tmp_path),
    ]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    before, after = ended.stderr.split("now\n")
    assert "Spark 4" in before
    assert [line for line in after.splitlines() if not line.startswith("processing ")] == [
        "ordstream: interrupted"
    ]
