"""`processes=N`: spawned processes give the output, the order and the errors of one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pyarrow as pa
import pytest
from process_functions import (
    SOURCE,
    allocator,
    build,
    dies,
    doubled,
    fails_late,
    refuses,
    rows,
    slow_for_some,
    slow_here,
    totals,
    totals_at_end,
)

import ordstream as od
from ordstream.fragments import process_stream, processes
from ordstream.fragments.process_stream import ProcessStream
from ordstream.node.result import Result
from ordstream.reference.run_serial import run_serial
from ordstream.tpcxbb import DataFolder
from ordstream.tpcxbb.queries import QUERIES

FOLDER = str(Path(od.__file__).parents[1])


@pytest.fixture(scope="module")
def two():
    with processes.Processes(2) as started:
        yield started


@pytest.fixture(scope="module")
def four():
    with processes.Processes(4) as started:
        yield started


def spread(pipeline, data, nodes, *, channel_bytes=None, **options):
    options = {"partial": False, **options}
    with ProcessStream(pipeline, data, nodes, options, channel_bytes=channel_bytes) as out:
        batches = list(out)
        return Result(batches, out.schema, out.report)


def test_a_process_takes_arrow_memory_that_stays_its_own(two):
    """Arrow's own allocator gives it back to the system between two batches."""
    schema = pa.schema([("user", pa.int64()), ("allocator", pa.string())])
    pipeline = od.Pipeline(SOURCE).map(allocator, schema=schema)
    assert set(spread(pipeline, rows(50), two).table["allocator"].to_pylist()) == {"system"}


@pytest.mark.parametrize("grouping", [None, "blocks"])
def test_slow_rows_of_a_small_table_are_shared(two, grouping):
    """They were one block, and so one process had all of them."""
    schema = pa.schema([("user", pa.int64()), ("process", pa.int64())])
    pipeline = od.Pipeline(SOURCE).map(slow_here, schema=schema)
    table = spread(pipeline, rows(400), two, grouping=grouping).table
    assert table["user"].equals(rows(400)["user"])
    counts = table["process"].value_counts().field("counts").to_pylist()
    assert len(counts) == 2
    assert min(counts) >= 100


def tags_of(result):
    return list(zip(result.table["_serial"].to_pylist(), result.table["_index"].to_pylist(), strict=True))


def test_output_and_tags_are_those_of_a_sequential_run(two):
    pipeline = build(lambda p: p.flat_map(doubled, schema=SOURCE))
    expected = run_serial(pipeline, rows())
    result = spread(pipeline, rows(), two, tags=True)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert tags_of(result) == expected.tags
    assert result.report.tuples == 20_000
    names = [stage.name for stage in pipeline.plan.operators]
    assert [o.name for o in result.report.operators] == names
    updates = (
        od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).key_by("item").scan(at=od.last("seen"))
    )
    assert spread(updates, (b for b in rows().to_batches(max_chunksize=7)), two).table.equals(
        run_serial(updates, rows()).table
    )


def test_nodes_shed_and_their_logs_are_one(two):
    """More rows than a node can do in time: the output is that of a run with the log, by itself too."""
    pipeline = (
        od.Pipeline(SOURCE)
        .filter(od.col("n") >= 10)
        .shed("2ms", "item", name="enough", window=20, side_output=True)
        .map(slow_for_some, schema=SOURCE)
        .key_by("item")
        .scan(seen=od.count())
    )
    result = process_stream.run(pipeline, iter(rows(3_000).to_batches()), two, {"tags": True})
    log = result.shed.log
    expected = run_serial(pipeline, rows(3_000), shed_log=log)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert tags_of(result) == expected.tags
    places = zip(log["serial"].to_pylist(), log["index"].to_pylist(), strict=True)
    assert [("enough", *place) for place in places] == expected.shed
    (report,) = result.report.shedding
    assert (report.tuples, report.admitted) == (2_990, 2_990 - len(log))
    assert 0 < report.shed == len(log) < 2_990
    assert result.shed.models["enough"].tuples == report.learnt > 0
    aside = result.shed.rows["enough"]
    assert aside["n"].to_pylist() == [serial - 1 for serial in log["serial"].to_pylist()]
    assert aside["_serial"].equals(log["serial"])
    again = pipeline.run(rows(3_000), shed_log=log)
    assert again.table.equals(expected.table)


def test_a_side_table_travels_with_the_pipeline(two):
    names = pa.table({"item": ["é0", "é3", "é0", None], "name": ["x", "y", "z", "no"], "n": [1, 2, 3, 4]})
    behind = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).join_lookup(names, "item", "left")
    pipeline = behind.key_by("name").scan(at=od.last("seen"))
    expected = run_serial(pipeline, rows())
    result = spread(pipeline, rows(), two, tags=True)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert tags_of(result) == expected.tags


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_table_tells_which_rows_go_on(two, how):
    known = pa.table({"item": ["é0", "é3", "é0", None]})
    behind = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).join_lookup(known, "item", how)
    pipeline = behind.key_by("item").scan(at=od.last("seen"))
    expected = run_serial(pipeline, rows())
    assert 0 < len(expected.tags) < len(rows())
    result = spread(pipeline, rows(), two, tags=True)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert tags_of(result) == expected.tags


def test_commit_point_and_skipped_rows_are_those_of_a_sequential_run(two):
    """Also of what the flush skips, in whichever process, and where the last tuple gives nothing of its
    own.
    """
    total = {"user": int, "total": int}
    pipeline = (
        od.Pipeline(SOURCE)
        .map(refuses, schema=SOURCE, on_error="skip", name="refusing")
        .key_by("user")
        .process(
            totals,
            schema=total,
            state={"n": int},
            fan_out=2,
            on_flush=totals_at_end,
            on_error="skip",
            name="totals",
        )
    )
    ending = (
        od.Pipeline(SOURCE)
        .key_by("user")
        .process(
            totals,
            schema=total,
            state={"n": int},
            fan_out=2,
            on_flush=totals_at_end,
            on_error="skip",
            name="totals",
        )
    )
    kept = od.Pipeline(SOURCE).filter(od.col("n") % 3 != 1).key_by("user").scan(seen=od.count())
    cases = [
        (pipeline, 20_000),
        (pipeline, 20_001),
        (ending, 9_000),
        (ending, 9_001),
        (kept, 5_001),
        (kept, 5_002),
        (kept, 0),
    ]
    for tested, count in cases:
        expected = run_serial(tested, rows(count))
        report = spread(tested, rows(count), two).report
        assert report.emitted_through == expected.emitted_through
        assert report.emitted_through.serial == count
        skips = {}
        for (name, serial), reason in zip(expected.skipped, expected.reasons, strict=True):
            skips.setdefault(name, []).append((serial, reason))
        assert {o.name: o.skipped for o in report.operators if o.skipped} == {
            name: len(of) for name, of in skips.items()
        }
        first = {
            o.name: (o.first_skipped.serial, o.first_skipped.reason)
            for o in report.operators
            if o.first_skipped
        }
        assert first == {name: of[0] for name, of in skips.items()}
        assert str(report).count("(on_error=") == len(skips)


def test_string_views_as_of_polars_pass_between_processes(two):
    table = rows(3_000).append_column(
        "name", pa.array([f"name {n % 37} of several" for n in range(3_000)], pa.string_view())
    )
    pipeline = (
        od.Pipeline(table.schema)
        .filter(od.col("n") > 5)
        .key_by("name")
        .scan(seen=od.count())
        .key_by("user")
        .scan(of=od.count())
    )
    for tested in (
        pipeline,
        od.Pipeline(table.schema).key_by("user").scan(seen=od.count()).select("name", "seen"),
    ):
        found = spread(tested, table, two).table
        assert found.schema.field("name").type == pa.string_view()
        assert found.equals(run_serial(tested, table).table)


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_query_4_is_that_of_one_node_and_its_answer_is_combined_in_each_process_first(
    shared_data, two, emit
):
    data, query = DataFolder(shared_data), QUERIES["q4"]
    pipeline = query.build(data.side_tables(), **query.profiles["batch"])
    clicks = data.clicks()
    table = clicks if isinstance(clicks, pa.Table) else pa.Table.from_batches(list(clicks))
    result = spread(pipeline, table, two, tags=True, emit=emit)
    expected = pipeline.run(table, workers=0, tags=True, emit=emit)
    assert result.table.equals(expected.table)
    assert result.table.num_rows > 0
    operators = [operator for operator in expected.report.operators if not operator.is_split]
    assert result.report.operators[-1].tuples_in == operators[-1].tuples_in


def test_the_first_failure_in_order_is_raised(two):
    pipeline = build(
        lambda p: (
            p.key_by("user")
            .scan(a=od.count(), name="spread")
            .select("user", "item", "n")
            .map(fails_late, schema=SOURCE, name="late")
        )
    )
    expected = run_serial(pipeline, rows()).error
    with pytest.raises(od.OperatorError) as found:
        spread(pipeline, rows(), two)
    assert (found.value.operator, found.value.serial, found.value.row) == (
        "late",
        expected.serial,
        expected.row,
    )
    assert repr(found.value.__cause__) == "ValueError('no 15000')"


def test_an_error_of_the_source_comes_after_what_it_gave(two):
    def source():
        yield from rows(100).to_batches()
        raise OSError("gone")

    with pytest.raises(od.SourceError, match="the source failed after 100 tuples: OSError: gone"):
        spread(build(), source(), two)


def test_rows_that_meet_a_key_first_are_sent_by_the_caller(two):
    pipeline = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count(), latest=od.last("n"), name="seen")
    expected = run_serial(pipeline, rows())
    result = spread(pipeline, rows(), two, tags=True)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert result.table["_serial"].to_pylist() == [serial for serial, _ in expected.tags]
    assert [(o.name, o.tuples_in) for o in result.report.operators] == [("seen", 20_000)]


def test_what_an_idle_stream_has_is_shown(two):
    """Rows of one key: one node never gets any, and nothing comes behind them."""
    pipeline = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).key_by("item").scan(of=od.count())
    seen, asked = threading.Event(), []

    def source():
        for k in range(3):
            yield pa.RecordBatch.from_pylist([{"user": 1, "item": "a", "n": k}], schema=SOURCE)
            asked.append(seen.wait(60))
            seen.clear()

    found = []
    with ProcessStream(pipeline, source(), two, {"tags": True}) as out:
        for batch in out:
            found += batch.to_pylist()
            assert out.emitted_through == od.OrderTag(len(found), 0)
            seen.set()
    assert [(row["_serial"], row["of"]) for row in found] == [(1, 1), (2, 2), (3, 3)]
    assert asked == [True] * 3
    assert out.report.emitted_through == od.OrderTag(3, 0)


@pytest.mark.parametrize("shape", ["a hot key", "one slow node", "a node without rows"])
def test_channels_of_next_to_nothing(four, shape):
    table = rows(300)
    numbers = range(300)
    users = {
        "a hot key": [7 if n % 50 else n for n in numbers],
        "a node without rows": [n % 2 for n in numbers],
    }
    if shape in users:
        table = table.set_column(0, SOURCE.field("user"), pa.array(users[shape]))
    slow = [lambda p: p.map(slow_for_some, schema=SOURCE)] if shape == "one slow node" else []
    pipeline = build(*slow, lambda p: p.flat_map(doubled, schema=SOURCE))
    found = spread(pipeline, table, four, channel_bytes=300, chunk_rows=7, tags=True)
    expected = run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    assert tags_of(found) == expected.tags


def test_processes_that_stay_serve_one_stream_after_another(two):
    """Left in the middle, failed or cancelled, a stream leaves nothing behind for the next."""
    pipeline = build(lambda p: p.flat_map(doubled, schema=SOURCE)).key_by("item").scan(of=od.count())
    expected = run_serial(pipeline, rows(5_000))
    with ProcessStream(pipeline, rows(), two, {}, block_rows=100) as out:
        next(out)
    assert spread(pipeline, rows(5_000), two).table.equals(expected.table)
    with ProcessStream(pipeline, rows(), two, {}, block_rows=100) as out:
        next(out)
        out.cancel()
        with pytest.raises(od.Cancelled):
            list(out)
    assert spread(pipeline, rows(5_000), two).table.equals(expected.table)


def test_run_takes_processes_and_a_killed_one_is_named():
    pipeline = build(lambda p: p.map(dies, schema=SOURCE))
    small = rows(2_000)
    told = []
    found = pipeline.run(
        small, processes=2, emit="final", progress=lambda issued, through: told.append((issued, through))
    )
    assert found.table.equals(run_serial(pipeline, small).table)
    assert told[-1] == (2_000, 2_000)
    with pytest.raises(od.NodeLost, match=r"process . of 2 .* ended before its work did: signal SIGKILL"):
        list(pipeline.stream(rows(), processes=2))
    assert not [t for t in threading.enumerate() if t.name.startswith("ordstream-worker")]


def test_wrong_numbers_and_functions_that_cannot_travel_are_named(monkeypatch):
    with pytest.raises(
        od.PlanError, match='processes must be a whole number from 1 to 1024 or "auto", got 0'
    ):
        build().run(rows(3), processes=0)
    monkeypatch.setattr(processes.by_value, "library", lambda: None)
    with pytest.raises(
        od.PlanError, match="define its functions at the top of a module, or install cloudpickle"
    ):
        build(lambda p: p.map(lambda row: tuple(row), schema=SOURCE)).run(rows(3), processes=2)


def test_an_operator_whose_function_belongs_to_this_process_is_named():
    """With a library that pickles by value, too: it raised its own TypeError, which named nothing."""
    lock = threading.Lock()

    def locked(row):
        with lock:
            return (row.user, row.item, row.n)

    pipeline = build(lambda p: p.map(tuple, schema=SOURCE).map(locked, schema=SOURCE, name="locked"))
    with pytest.raises(
        od.PlanError,
        match=r"operator 'locked' can't be sent to another process: TypeError: cannot pickle '_thread.lock' "
        r"object; its function refers to something that belongs to this process",
    ):
        pipeline.stream(rows(3), processes=2)


def test_a_stream_in_one_node_has_moves_too():
    """`balance=` with processes=1, "auto" on one processor, or a graph that is not cut."""
    counted = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    for options in ({}, {"outputs": {"counted": counted}}):
        for processes_given in (1, 2):
            with counted.stream(rows(3), processes=processes_given, balance=od.Mixed(), **options) as stream:
                assert sum(1 for _ in stream)
                assert list(stream.moves) == []
                assert not stream.cancel_move()


def test_a_worker_of_a_pool_says_that_it_may_start_no_process(monkeypatch):
    """It was multiprocessing's AssertionError, which named nothing that the user wrote."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(od.PlanError, match=r"processes=2 can't run in a worker of multiprocessing\.Pool"):
        build().run(rows(3), processes=2)


def test_a_deleted_working_folder_is_named(tmp_path, monkeypatch):
    """It was [Errno 2] No such file or directory, and nothing else."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(od.PlanError, match=r"processes=3 can't run where the working folder was deleted"):
        build().run(rows(3), processes=3)


@pytest.mark.parametrize("more", [2, 14])
def test_too_few_file_descriptors_name_processes(more):
    """It was [Errno 24] Too many open files, and nothing else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    counted = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    now = len(list(pathlib.Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (now + more, hard))
    try:
        with pytest.raises(OSError, match=r"processes=4 takes about .* file descriptors .*ulimit -n"):
            counted.run(rows(3), processes=4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert counted.run(rows(3), processes=4).table.equals(run_serial(counted, rows(3)).table)


def test_a_policy_per_operator_is_refused():
    counted = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    with pytest.raises(od.PlanError, match="balance must be one policy for all operators"):
        counted.stream(rows(3), processes=2, balance={"scan_1": od.Mixed()})


def test_functions_without_a_name_travel_by_value(two):
    more = 7
    pipeline = build(lambda p: p.map(lambda row: (row.user, row.item, row.n + more), schema=SOURCE))
    assert spread(pipeline, rows(2_000), two).table.equals(run_serial(pipeline, rows(2_000)).table)


def test_functions_that_a_process_cannot_import_are_named(monkeypatch):
    nowhere = types.ModuleType("nowhere")
    exec("def kept(row):\n    return tuple(row)\n", nowhere.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere", nowhere)
    with pytest.raises(
        od.PlanError,
        match=r"can.t find the pipeline.s functions .*nowhere.*; define them at the top of a module",
    ):
        build(lambda p: p.map(nowhere.kept, schema=SOURCE)).run(rows(3), processes=2)


KILLED = """
import multiprocessing, os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
from process_functions import *

if __name__ == "__main__":
    def kill():
        if sys.stdin.readline():
            os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=kill, daemon=True).start()
    with build(lambda p: p.map(holds_gil, schema=SOURCE)).stream(rows(), processes=2) as out:
        list(out)
"""


def test_a_caller_that_is_killed_leaves_no_process(tmp_path):
    """Also where a function of a node process never gives the GIL back; the kernel takes their sockets."""
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    environment = os.environ | {"ORDSTREAM_TEST_PIDS": str(fifo), "PYTHONPATH": FOLDER}
    command = [sys.executable, str(script), str(Path(__file__).parents[1])]
    with (
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, text=True) as caller,
        fifo.open() as pids,  # its end comes when the last process that has it open is gone
    ):
        assert int(pids.readline()) > 0
        caller.stdin.write("now\n")
        caller.stdin.flush()
        assert caller.wait(60) == -9
        pids.read()


def test_a_stream_that_is_dropped_ends_its_processes_and_its_source():
    """Also while its source has more, and a thread of its own."""
    left = threading.Event()

    def endless():
        try:
            while True:
                yield rows().to_batches()[0]
        finally:
            left.set()

    pipeline = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    stream = pipeline.stream(endless(), processes=2)
    next(stream)
    started = list(stream._pool._processes)
    assert all(process.is_alive() for process in started)
    gc.disable()  # it goes when it is dropped, not some time later
    try:
        del stream
    finally:
        gc.enable()
    assert not any(process.is_alive() for process in started)
    gc.collect()
    assert left.wait(60)


CTRL_C = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from process_functions import *

if __name__ == "__main__":
    def interrupt():
        while not Path(os.environ["ORDSTREAM_TEST_BEAT"]).exists():
            time.sleep(0.01)
        print(time.monotonic(), flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        build(lambda p: p.map(sleeps, schema=SOURCE)).run(rows(), processes=2)
    except KeyboardInterrupt:
        print(time.monotonic())
"""


def test_ctrl_c_ends_all_processes_at_once(tmp_path):
    beat = tmp_path / "beat"
    environment = os.environ | {"ORDSTREAM_TEST_BEAT": str(beat), "PYTHONPATH": FOLDER}
    script = tmp_path / "script.py"
    script.write_text(CTRL_C)
    command = [sys.executable, str(script), str(Path(__file__).parents[1])]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    before, after = map(float, ended.stdout.split())
    assert after - before < processes.JOIN_S + 10  # a run of this takes minutes
    last = beat.stat().st_mtime
    time.sleep(0.3)
    assert beat.stat().st_mtime == last  # no process goes on


OWN_CLASSES = """
import ordstream as od
import pyarrow as pa

class Refused(Exception):
    code = 0

class Odd:
    def __reduce__(self):
        return int, ("odd",)

ODD = Odd()

def refuses(row):
    if row.a == 3:
        error = Refused("no")
        error.code = 7
        raise error
    return (row.a,)

if __name__ == "__main__":
    source = pa.table({"a": [1, 2, 3, 4]})
    try:
        od.Pipeline(source.schema).map(refuses, schema=source.schema).run(source, processes=2)
    except od.OperatorError as error:
        print(isinstance(error.__cause__, Refused), error.__cause__, error.__cause__.code)
    try:
        od.Pipeline(source.schema).filter(lambda row: ODD is None).run(source, processes=2)
    except od.PlanError as error:
        print(error)
"""


def test_exceptions_of_the_script_s_own_classes(tmp_path):
    """The cause was a RuntimeError that told its text; what can't be unpickled was its own error, bare."""
    script = tmp_path / "script.py"
    script.write_text(OWN_CLASSES)
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, str(script)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    raised, unmade = ended.stdout.splitlines()
    assert raised == "True no 7"
    assert unmade.startswith("processes: what the pipeline's functions refer to can't be made again in a")
    assert "ValueError: invalid literal for int()" in unmade
