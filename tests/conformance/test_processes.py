"""`run(..., processes=N)`: spawned processes give the output, the order and the errors of one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pyarrow as pa
import pytest
from process_functions import SOURCE, build, dies, doubled, fails_late, refuses, rows, totals, totals_at_end

import ordstream as od
from ordstream.fragments import processes
from ordstream.reference.run_serial import run_serial
from ordstream.tpcxbb import DataFolder
from ordstream.tpcxbb.queries import QUERIES


@pytest.fixture(scope="module")
def two():
    with processes.Processes(2) as started:
        yield started


def spread(pipeline, data, nodes, **options):
    fragments, chosen, tags = processes.prepare(pipeline, options, "processes")
    return processes.run_fragments(fragments, data, 2, chosen, nodes, tags)


def test_output_and_tags_are_those_of_a_sequential_run(two):
    pipeline = build(lambda p: p.flat_map(doubled, schema=SOURCE))
    expected = run_serial(pipeline, rows())
    result = spread(pipeline, rows(), two, tags=True)
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert list(zip(result.table["_serial"].to_pylist(), result.table["_index"].to_pylist(), strict=True)) == expected.tags
    assert result.report.tuples == 20_000
    names = [stage.name for stage in pipeline.plan.operators]
    assert [o.name for o in result.report.operators] == names
    updates = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).key_by("item").scan(at=od.last("seen"))
    assert spread(updates, (b for b in rows().to_batches(max_chunksize=7)), two).table.equals(run_serial(updates, rows()).table)


def test_commit_point_and_skipped_rows_are_those_of_a_sequential_run(two):
    """Also of what the flush skips, in whichever process, and where the last tuple gives nothing of its
    own.
    """
    total = {"user": int, "total": int}
    pipeline = (
        od.Pipeline(SOURCE)
        .map(refuses, schema=SOURCE, on_error="skip", name="refusing")
        .key_by("user")
        .process(totals, schema=total, state={"n": int}, fan_out=2, on_flush=totals_at_end, on_error="skip", name="totals")
    )
    ending = od.Pipeline(SOURCE).key_by("user").process(
        totals, schema=total, state={"n": int}, fan_out=2, on_flush=totals_at_end, on_error="skip", name="totals"
    )
    kept = od.Pipeline(SOURCE).filter(od.col("n") % 3 != 1).key_by("user").scan(seen=od.count())
    cases = [(pipeline, 20_000), (pipeline, 20_001), (ending, 9_000), (ending, 9_001), (kept, 5_001), (kept, 5_002), (kept, 0)]
    for tested, count in cases:
        expected = run_serial(tested, rows(count))
        report = spread(tested, rows(count), two).report
        assert report.emitted_through == expected.emitted_through
        assert report.emitted_through.serial == count
        skips = {}
        for (name, serial), reason in zip(expected.skipped, expected.reasons, strict=True):
            skips.setdefault(name, []).append((serial, reason))
        assert {o.name: o.skipped for o in report.operators if o.skipped} == {name: len(of) for name, of in skips.items()}
        first = {o.name: (o.first_skipped.serial, o.first_skipped.reason) for o in report.operators if o.first_skipped}
        assert first == {name: of[0] for name, of in skips.items()}
        assert str(report).count("(on_error=") == len(skips)


def test_string_views_as_of_polars_pass_between_processes(two):
    table = rows(3_000).append_column("name", pa.array([f"name {n % 37} of several" for n in range(3_000)], pa.string_view()))
    pipeline = od.Pipeline(table.schema).filter(od.col("n") > 5).key_by("name").scan(seen=od.count()).key_by("user").scan(of=od.count())
    for tested in (pipeline, od.Pipeline(table.schema).key_by("user").scan(seen=od.count()).select("name", "seen")):
        found = spread(tested, table, two).table
        assert found.schema.field("name").type == pa.string_view()
        assert found.equals(run_serial(tested, table).table)


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_query_4_is_that_of_one_node_and_its_answer_is_combined_in_each_process_first(shared_data, two, emit):
    data, query = DataFolder(shared_data), QUERIES["q4"]
    pipeline = query.build(data.side_tables(), **query.profiles["batch"])
    clicks = data.clicks()
    table = clicks if isinstance(clicks, pa.Table) else pa.Table.from_batches(list(clicks))
    taken = []

    class Noted:
        def run(self, works, source):
            outcomes = two.run(works, source)
            taken.append([outcome.report.tuples for outcome in outcomes])
            return outcomes

    result = spread(pipeline, table, Noted(), tags=True, emit=emit)
    assert result.table.equals(pipeline.run(table, workers=0, tags=True, emit=emit).table)
    assert result.table.num_rows > 0
    if emit == "final":
        assert taken[-1] == [2]  # one row of each process
        assert len(taken[-2]) == 2
        assert result.report.operators[-1].tuples_in == sum(taken[-2]) > 2


def test_the_first_failure_in_order_is_raised(two):
    pipeline = build(lambda p: p.key_by("user").scan(a=od.count(), name="spread").select("user", "item", "n").map(
        fails_late, schema=SOURCE, name="late"))
    expected = run_serial(pipeline, rows()).error
    with pytest.raises(od.OperatorError) as found:
        spread(pipeline, rows(), two)
    assert (found.value.operator, found.value.serial, found.value.row) == ("late", expected.serial, expected.row)
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
    taken = []

    class Noted:
        def run(self, works, source):
            taken.append(len(works))
            assert source() is None, "the rows are with the nodes already"
            return two.run(works, source)

    result = spread(pipeline, rows(), Noted(), tags=True)
    assert taken == [2]
    assert result.table.drop(["_serial", "_index"]).equals(expected.table)
    assert result.table["_serial"].to_pylist() == [serial for serial, _ in expected.tags]
    assert [(o.name, o.tuples_in) for o in result.report.operators] == [("seen", 20_000)]

    def source():
        yield from rows(100).to_batches()
        raise OSError("gone")

    with pytest.raises(od.SourceError, match="the source failed after 100 tuples: OSError: gone"):
        spread(pipeline, source(), Noted())


def test_run_takes_processes_and_a_killed_one_is_named():
    pipeline = build(lambda p: p.map(dies, schema=SOURCE))
    small = rows(2_000)
    told = []
    found = pipeline.run(small, processes=2, emit="final", progress=lambda issued, through: told.append((issued, through)))
    assert found.table.equals(run_serial(pipeline, small).table)
    assert told[-1] == (2_000, 2_000)
    with pytest.raises(od.NodeLost, match=r"process . of 2 .* ended before its work did: signal SIGKILL"):
        pipeline.run(rows(), processes=2)
    assert not [t for t in threading.enumerate() if t.name.startswith("ordstream-worker")]


def test_wrong_numbers_and_functions_that_cannot_travel_are_named(monkeypatch):
    with pytest.raises(od.PlanError, match="processes must be a whole number from 1 to 1024, got 0"):
        build().run(rows(3), processes=0)
    monkeypatch.setattr(processes.by_value, "library", lambda: None)
    with pytest.raises(od.PlanError, match="define its functions at the top of a module, or install cloudpickle"):
        build(lambda p: p.map(lambda row: tuple(row), schema=SOURCE)).run(rows(3), processes=2)


def test_functions_without_a_name_travel_by_value(two):
    more = 7
    pipeline = build(lambda p: p.map(lambda row: (row.user, row.item, row.n + more), schema=SOURCE))
    assert spread(pipeline, rows(2_000), two).table.equals(run_serial(pipeline, rows(2_000)).table)


def test_functions_that_a_process_cannot_import_are_named(monkeypatch):
    nowhere = types.ModuleType("nowhere")
    exec("def kept(row):\n    return tuple(row)\n", nowhere.__dict__)
    monkeypatch.setitem(sys.modules, "nowhere", nowhere)
    with pytest.raises(od.PlanError, match=r"can.t find the pipeline.s functions .*nowhere.*; define them at the top of a module"):
        build(lambda p: p.map(nowhere.kept, schema=SOURCE)).run(rows(3), processes=2)


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
    environment = os.environ | {"ORDSTREAM_TEST_BEAT": str(beat), "PYTHONPATH": str(Path(od.__file__).parents[1])}
    script = tmp_path / "script.py"
    script.write_text(CTRL_C)
    command = [sys.executable, str(script), str(Path(__file__).parents[1])]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    before, after = map(float, ended.stdout.split())
    assert after - before < processes.JOIN_S + 10  # a run of this takes minutes
    last = beat.stat().st_mtime
    time.sleep(0.3)
    assert beat.stat().st_mtime == last  # no process goes on
