"""What a Spark worker says of its ordstream before it runs what was shipped, and what the command line
makes of a failed job.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream as od

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from ordstream.commands.engines import _reason
from ordstream.spark import node_function

PACKAGE = Path(od.__file__).parent
UNPACK = (
    "import pickle, sys; made = [pickle.load(sys.stdin.buffer) for _ in (1, 2)][0]; "
    "print(type(made).__name__, made.order_by)"
)


def in_a_worker(folder, pipeline=None):
    """The end of a process that unpacks a node's function twice, with `folder` as the first on its path,
    as a worker's current one is.
    """
    import pyarrow as pa

    if pipeline is None:
        pipeline = od.Pipeline(pa.schema([("ts", pa.int64())])).select("ts")
    function, _ = node_function(pipeline, order_by=("ts",))
    data = cloudpickle.dumps(function)
    program = (
        f"import sys; sys.path[:] = [{str(folder)!r}, *(p for p in sys.path if p not in ('', "
        f"{str(PACKAGE.parent)!r}))]; {UNPACK}"
    )
    command = [sys.executable, "-P", "-c", program]
    return subprocess.run(
        command, input=data * 2, capture_output=True, timeout=100, check=False, env={"PATH": ""}, cwd=folder
    )


def copied(folder):
    """The package in another folder, without its core."""
    shutil.copytree(
        PACKAGE, folder / "ordstream", ignore=shutil.ignore_patterns("__pycache__", "include", "*.so")
    )
    return folder


def test_the_same_ordstream_elsewhere_is_the_same(tmp_path):
    copied(tmp_path)
    for module in PACKAGE.glob("_core/**/*.so"):
        (tmp_path / "ordstream" / module.relative_to(PACKAGE)).symlink_to(module)
    for folder in (PACKAGE.parent, tmp_path):
        ended = in_a_worker(folder)
        assert ended.stdout.decode() == "NodeFunction ('ts',)\n", ended.stderr.decode()


@pytest.mark.parametrize("kind", ["broken", "not built", "version", "module"])
def test_another_ordstream_is_told_with_both_places(tmp_path, kind):
    if kind == "broken":
        (tmp_path / "ordstream.py").write_text("import not_there\n")
    else:
        copied(tmp_path)
    said = {
        "broken": "can't import ordstream (No module named 'not_there'); "
        "the driver has {version} in {package}",
        "not built": "imports an ordstream whose core is not built: {version} in {there}",
        "version": "imports another ordstream than the driver: 9.9 in {there}, "
        "the driver's is {version} in {package}",
        "module": "imports another ordstream than the driver: {version} in {there}, "
        "the driver's is {version} in {package}",
    }[kind]
    if kind == "version":
        file = tmp_path / "ordstream" / "__init__.py"
        file.write_text(file.read_text().replace(f'"{od.__version__}"', '"9.9"'))
    elif kind == "module":
        with (tmp_path / "ordstream" / "fragments" / "fragment_node.py").open("a") as module:
            module.write("# other\n")
    ended = in_a_worker(tmp_path)
    last = ended.stderr.decode().splitlines()[-1]
    said = said.format(version=od.__version__, package=PACKAGE, there=tmp_path / "ordstream")
    assert ended.returncode == 1
    assert said in last
    assert last.startswith("ImportError: this Spark worker ")
    assert "start Spark in another folder" in last
    assert _reason(f"An exception was thrown from the Python worker:\n{ended.stderr.decode()}") == last


def test_what_a_worker_does_not_find_is_told_with_what_to_do(tmp_path, monkeypatch):
    import pyarrow as pa

    (tmp_path / "drivers_own.py").write_text("def keep(row):\n    return row.ts > 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    from drivers_own import keep

    (tmp_path / "workers").mkdir()
    ended = in_a_worker(tmp_path / "workers", od.Pipeline(pa.schema([("ts", pa.int64())])).filter(keep))
    last = ended.stderr.decode().splitlines()[-1]
    assert "functions refer to (ModuleNotFoundError: No module named 'drivers_own'): define it" in last
    assert "addPyFile" in last


class Opens:
    """A model that is read where it is unpickled."""

    def __getstate__(self):
        return {}

    def __setstate__(self, state):
        Path("/nowhere/model.bin").read_bytes()

    def __call__(self, row):
        return row.ts > 3


def test_what_a_worker_cannot_make_is_told_with_what_to_do():
    import pyarrow as pa

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        ended = in_a_worker(PACKAGE.parent, od.Pipeline(pa.schema([("ts", pa.int64())])).filter(Opens()))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    last = ended.stderr.decode().splitlines()[-1]
    assert "can't make an object that the pipeline's functions refer to: FileNotFoundError: [" in last
    assert "'/nowhere/model.bin'" in last
    assert "SparkContext.addFile" in last


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no `type` statements")
def test_of_a_type_statement_it_is_said_that_it_does_not_go_to_workers(monkeypatch):
    """cloudpickle 3.1 refers to it by its name."""
    import pyarrow as pa

    script = {"__name__": "__main__"}
    exec("type Number = int\ndef keep(row): return isinstance(row.ts, Number.__value__)", script)
    monkeypatch.setattr(sys.modules["__main__"], "Number", script["Number"], raising=False)
    ended = in_a_worker(PACKAGE.parent, od.Pipeline(pa.schema([("ts", pa.int64())])).filter(script["keep"]))
    last = ended.stderr.decode().splitlines()[-1]
    assert "Can't get attribute 'Number'" in last
    assert "a `type` statement of a script is not sent along" in last


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\n    ^^^\n'
CHAINED = (
    f"{TRACEBACK}KeyError: 'k'\n\nThe above exception was the direct cause of the following "
    f"exception:\n\n{TRACEBACK}"
)
CRASHED = (
    "An error occurred while calling o127.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Task 0 in stage 0.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): "
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). See x\n"
    "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse"
    "(PythonRunner.scala:1136)\n"
    "Caused by: java.io.EOFException\n"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{TRACEBACK}ModuleNotFoundError: No module named 'm'", "ModuleNotFoundError: No module named 'm'"),
        (
            f"Worker:\n{CHAINED}ordstream.errors.OperatorError: operator 'm' failed:\n  row: 5\n",
            "operator 'm' failed: row: 5",
        ),
        (f"{CHAINED}ValueError: two\nlines\n\nJVM stacktrace:\n at x", "ValueError: two lines"),
        (f"{TRACEBACK}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (CRASHED, "Python worker exited unexpectedly (crashed). See x"),
        ("[NO_SUCH] a column\nmore", "[NO_SUCH] a column"),
        ("", "for no known reason"),
    ],
)
def test_a_failed_job_is_told_by_its_cause(text, reason):
    assert _reason(text) == reason
