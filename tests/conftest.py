"""What every test shares: hypothesis profiles, real rows, Java, and the accounting of the debug build.

Environment:

``ORDSTREAM_HYPOTHESIS``    profile of the property tests: ``dev`` (default), ``ci``, ``thorough``
``ORDSTREAM_TPCXBB_DATA``   folder with the real TPCx-BB rows; default ``../shared/data/tpcxbb_sf1_slice``
``ORDSTREAM_LONG``          set: tests that take a minute each run too, some have more rows, and all cases of
                            those run of which otherwise some do (``@pytest.mark.thin``)
``ORDSTREAM_CASES``         ``all``: all cases, and nothing else of the long form
``ORDSTREAM_REQUIRE``       any of ``java``, ``data``, ``spin``, ``servers``, comma-separated: where one is
                            absent, fail, don't skip
``ORDSTREAM_EXPECT_BUILD``  folder from which the package under test must have been imported
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from spark_classes import SHORT_LIVED, java_options

ROOT = Path(__file__).resolve().parent.parent

# A node starts threads and takes chunks from a pool, so the time of one example says little: no deadline.
settings.register_profile(
    "dev", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", parent=settings.get_profile("dev"), max_examples=15, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("ci"), max_examples=2_000)
settings.load_profile(os.environ.get("ORDSTREAM_HYPOTHESIS", "dev"))


# Timed waits of parked workers in tests, and how long a wake-up may be on its way: a thread can lose its
# processor before it tells.
LONG_WAIT_MS = 5_000.0
GRACE_MS = 2_000.0


def pytest_configure(config: pytest.Config) -> None:
    """Spark's workers run this interpreter; a build apart must be the one under test; Ctrl-C is heard."""
    # a shell's background job and its children: tests send it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
    if expected := os.environ.get("ORDSTREAM_EXPECT_BUILD"):
        spec = importlib.util.find_spec("ordstream")
        found = Path(spec.origin).resolve() if spec and spec.origin else None
        if found is None or Path(expected).resolve() not in found.parents:
            raise pytest.UsageError(
                f"the wrong build is tested: ordstream from {found}, not from {expected}"
            )


def pytest_report_header(config: pytest.Config) -> str:
    spec = importlib.util.find_spec("ordstream")
    origin = Path(spec.origin).parent if spec and spec.origin else "not installed"
    return f"ordstream: {origin}; hypothesis profile: {os.environ.get('ORDSTREAM_HYPOTHESIS', 'dev')}"


@pytest.hookimpl(trylast=True)  # -k and -m have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test's folder gives its marker: nothing in ``tests/spark`` and ``tests/stress`` need repeat it. In a
    process of pytest-xdist, folders come in the order in which it is to begin them.
    """
    for item in items:
        if (folder := folder_of(item)) in ("spark", "stress"):
            item.add_marker(folder)
    if not os.environ.get("ORDSTREAM_LONG") and os.environ.get("ORDSTREAM_CASES") != "all":
        left_out = set(thinned(items))
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=[*left_out])
    if hasattr(config, "workerinput"):
        turn = dict(zip(ORDER, range(len(ORDER)), strict=True))
        items.sort(key=lambda item: (turn.get(folder_of(item), 0), spark_of(item.nodeid)))  # stable


def thinned(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Cases beyond the number in the mark ``thin`` of their test. Which ones is by chance, and the same in
    each run and process: neighbours in a product of parameters differ in one only.
    """
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("thin"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_test in cases.values():
        (most,) = of_test[0].get_closest_marker("thin").args
        yield from sorted(of_test, key=lambda item: zlib.crc32(item.nodeid.encode()))[most:]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected lives to the end. Python's garbage collector need not look at it again: with all
    tests each look took up to 2 s, and a test may ask for ten.
    """
    gc.collect()
    gc.freeze()


def folder_of(item: pytest.Item) -> str:
    """The folder in ``tests`` that a test lies in."""
    return item.path.relative_to(ROOT / "tests").parts[0]


# --- where pytest-xdist spreads the tests over processes (make test) ------------------------------


#: What takes longest first; at the end many short tests, so that all processes end at about one time. Tests
#: of memory orders want a machine that is not too busy.
ORDER = ("spark", "kills", "property", "conformance", "unit", "models", "stress")
#: Of these each test is spread by itself: it shares nothing dear with its neighbours.
ONE_BY_ONE = ("property", "models", "stress")
#: In tests/spark: each test starts a process with a Spark of its own, or none at all.
OWN_SPARK = (
    "test_command_line.py",
    "test_connect.py",
    "test_demo.py",
    "test_executors.py",
    "test_progress.py",
    "test_prototypes.py",
    "test_session.py",
)
#: Of the others, these have the second of two shared sessions: one would be by far the longest unit, for
#: which the other processes may wait at the end.
SECOND_SPARK = (
    "test_clock.py", "test_cut.py", "test_deduplicate.py", "test_graphs.py", "test_grouping.py",
    "test_shed.py", "test_stream",
)  # fmt: skip


def spark_of(nodeid: str) -> int:
    """Which session of Spark a test shares, 0 or 1; else 2. The two begin before all others."""
    folder, _, name = nodeid.partition("::")[0].removeprefix("tests/").partition("/")
    if folder != "spark" or name in OWN_SPARK:
        return 2
    return int(name.startswith(SECOND_SPARK))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share something which takes long to make run in one process: those of a file, and all that
    use one session of Spark.

    (The marks of ``--dist loadgroup`` do nothing with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Shared(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            folder = path.split("/")[1]
            if folder == "spark":
                session = spark_of(nodeid)
                return nodeid if session == 2 else f"tests/spark {session}"
            return nodeid if folder in ONE_BY_ONE else path

    config.option.loadscopereorder = False  # ORDER is the order
    return Shared(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Processes of ``pytest -n auto``: most tests start threads of their own, so more would only take
    turns.
    """
    from ordstream.ground.cpus import allowed_cpus

    return min(allowed_cpus(), 4)


def absent(what: str, reason: str) -> None:
    """Skip the test, or fail it where ``ORDSTREAM_REQUIRE`` names `what`."""
    if what in os.environ.get("ORDSTREAM_REQUIRE", "").split(","):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real TPCx-BB rows: CSV files with a header, NULL as the empty string."""
    asked = os.environ.get("ORDSTREAM_TPCXBB_DATA")
    folder = Path(asked) if asked else ROOT.parent / "shared" / "data" / "tpcxbb_sf1_slice"
    if not (folder / "web_clickstreams_refresh.csv").is_file():
        absent("data", f"no web_clickstreams_refresh.csv in {folder}; set ORDSTREAM_TPCXBB_DATA")
    return folder


@pytest.fixture(scope="session")
def java() -> str:
    """Path of a Java 17+ program that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).is_file():
        absent("java", "no Java runtime: make test installs one")
        raise AssertionError("unreachable")
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', answer)
    if version is None or int(version[1]) < 17:
        absent("java", f"Spark needs Java 17 or newer; {program} says: {answer.strip() or 'nothing'}")
    return program


@pytest.fixture(scope="session")
def spin() -> tuple[str, str]:
    """Paths of the model checker SPIN and of the C compiler that its output needs."""
    program, compiler = (
        shutil.which("spin"),
        shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"),
    )
    if program is None or compiler is None:
        spin, compiler_too = "model checker SPIN: make test installs one", "C compiler for its models"
        absent("spin", f"no {spin if program is None else compiler_too}")
        raise AssertionError("unreachable")
    return program, compiler


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """How to reach a PostgreSQL server of the tests' own."""
    from servers import postgres_missing, postgres_server

    if reason := postgres_missing():
        absent("servers", f"{reason}: make test installs it")
    with (
        tempfile.TemporaryDirectory(prefix="ordstream-postgres-") as folder,
        postgres_server(Path(folder)) as dsn,
    ):
        yield dsn


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The url of a Redis server of the tests' own."""
    from servers import redis_server

    if shutil.which("redis-server") is None:
        absent("servers", "no redis-server: make test installs it")
    with (
        tempfile.TemporaryDirectory(prefix="ordstream-redis-") as folder,
        redis_server(Path(folder)) as url,
    ):
        yield url


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many models were really checked, which .ci/run asks for: counted from the runs that
    tests/models recorded.
    """
    reports = [
        report
        for category in ("passed", "skipped", "failed")
        for report in terminalreporter.stats.get(category, [])
    ]
    ours = [report for report in reports if report.nodeid.startswith("tests/models/")]
    if ours:
        checked = sum(
            name == "model" for report in ours if report.passed for name, _ in report.user_properties
        )
        terminalreporter.write_line(f"models checked by SPIN: {checked}")


# --- nothing may be left over ------------------------------------------------------------------------------


Counts = Callable[[], dict[str, int]]


@pytest.fixture(scope="session")
def live_counts() -> Counts | None:
    """The debug build's door: a function from nothing to {what: how many are alive}; None in other
    builds.
    """
    try:
        core: Any = importlib.import_module("ordstream._core.flow.run")
    except ImportError:
        return None
    counts: Counts | None = getattr(core, "debug_counts", None)
    return counts if counts is not None and counts() else None


@pytest.fixture(scope="session")
def missed_waits() -> Callable[[], int] | None:
    """How many timed waits have hidden a missing wake-up in this process; None without the core.

    Parked workers of this process wait for seconds, not for tenths of one: a wake-up that is missing stops
    them, and is counted.
    """
    try:
        door: Any = importlib.import_module("ordstream._core.lab.testing_run")
    except ImportError:
        return None
    door.set_waits(LONG_WAIT_MS, LONG_WAIT_MS, LONG_WAIT_MS, GRACE_MS)
    missed: Callable[[], int] = door.missed_waits
    return missed


@pytest.fixture(autouse=True)
def marks_come_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks that only let operators forget come as often as these want them, so that few rows meet some:
    `test_marks_apart.py` is about those of a run.
    """
    monkeypatch.setattr("ordstream.plan.clock.FORGET_ROWS", 1)


@pytest.fixture(autouse=True)
def nobody_slept_on(missed_waits: Callable[[], int] | None) -> Iterator[None]:
    """No worker, and no reader, slept beside something to do until its timed wait was over."""
    before = missed_waits() if missed_waits else 0
    yield
    after = missed_waits() if missed_waits else 0
    assert after == before, f"{after - before} timed waits hid a missing wake-up"


@pytest.fixture(autouse=True)
def nothing_left(live_counts: Counts | None) -> Iterator[None]:
    """After each test no thread of the core is alive; in a debug build, every chunk and reference came back.

    Worker threads are recognised by their name, which begins with ``ordstream``.
    """
    before = live_counts() if live_counts else {}
    threads = set(threading.enumerate())
    yield
    left = [t.name for t in threading.enumerate() if t not in threads and t.name.startswith("ordstream")]
    assert not left, f"threads left running: {left}"
    if live_counts:
        after = live_counts()
        if after != before:
            gc.collect()  # a result that the test still holds in a cycle
            after = live_counts()
        grown = {what: n - before.get(what, 0) for what, n in after.items() if n > before.get(what, 0)}
        assert not grown, f"left over after the test: {grown}"
