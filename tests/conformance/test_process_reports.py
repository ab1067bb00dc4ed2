"""The report of a run over several processes: while it runs, behind an early close, and at the end."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter

import pyarrow as pa
import pytest
from process_functions import takes_a_while

import ordstream as od
from ordstream.fragments import proactive, process_stream
from ordstream.fragments.process_stream import ProcessStream
from ordstream.fragments.processes import Processes, prepare
from ordstream.fragments.same_process import SameProcess
from ordstream.fragments.source_blocks import SourceBlocks
from ordstream.fragments.topology import Topology
from ordstream.node.histogram import added
from ordstream.reference.run_serial import run_serial

SOURCE = pa.schema([("user", pa.int64()), ("item", pa.int64())])
ROWS = 3_000


def batch(start=0, rows=ROWS):
    numbers = range(start, start + rows)
    columns = [pa.array([n % 7 for n in numbers]), pa.array([n % 11 for n in numbers])]
    return pa.RecordBatch.from_arrays(columns, schema=SOURCE)


def pipeline():
    """Its rows take three ways: by no key, by user, by item."""
    return (
        od.Pipeline(SOURCE)
        .filter(od.col("user") >= 0)
        .key_by("user")
        .scan(seen=od.count())
        .key_by("item")
        .scan(of=od.count())
    )


def rows_per_edge(report):
    """Rows sent, by the receivers' fragment."""
    found = Counter()
    for channel in report.channels:
        found[channel.receiver.split(" process")[0]] += channel.rows
    return found


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A loaded machine: nodes may answer late."""
    monkeypatch.setattr(process_stream, "ASKED_S", 30.0)
    monkeypatch.setattr(process_stream, "CLOSING_S", 30.0)


@pytest.fixture(scope="module")
def two():
    with Processes(2) as started:
        yield started


def check_middle(report, rows_out=ROWS):
    """Of a run that has given all that the first batch makes, and waits for its source."""
    assert (report.tuples, report.rows_out) == (ROWS, rows_out)
    assert report.emitted_through == (od.OrderTag(ROWS, 0) if rows_out else od.OrderTag(0))
    assert [(o.tuples_in, o.tuples_out) for o in report.operators] == [(ROWS, ROWS)] * 3
    edges = ("fragment 1", "fragment 2", "fragment 3", "caller")
    assert rows_per_edge(report) == dict.fromkeys(edges, ROWS)
    assert {channel.low for channel in report.channels} == {ROWS + 1}
    assert all(channel.bytes >= channel.rows * 16 for channel in report.channels)
    assert report.tuples_per_second == pytest.approx(ROWS / report.seconds)
    assert re.search(r"\nfragment 2 process 1 > fragment 3 process 2 +[\d,]+ ", str(report))
    assert report.to_dict()["channels"][0]["sender"] == "caller"


def idle_source(go_on):
    yield batch()
    go_on.wait(60)


@pytest.mark.parametrize(
    ("when", "workers"), [("while it is read", 0), ("while it is read", 2), ("behind a close", 0)]
)
def test_a_report_of_the_middle_has_everything_so_far(two, when, workers):
    go_on = threading.Event()
    with ProcessStream(pipeline(), idle_source(go_on), two, {"workers": workers}) as out:
        assert (out.report.tuples, out.report.channels) == (0, ())
        given = 0
        while given < ROWS:
            given += next(out).num_rows
        if when == "while it is read":
            check_middle(out.report)
        out.close()
        check_middle(out.report)
        assert out.report.emitted_through == out.emitted_through
        go_on.set()
        out._driver.blocks.thread.join()


def test_another_thread_than_the_reader_asks_for_a_report(two):
    """What the reader was not given does not count as output."""
    go_on, read = threading.Event(), []
    with ProcessStream(pipeline(), idle_source(go_on), two, {"partial": False}) as out:
        reading = threading.Thread(target=lambda: read.extend(out))
        reading.start()
        while not (found := out.report).operators or found.operators[-1].tuples_out < ROWS:
            assert reading.is_alive()
        while out._driver.rows_out < ROWS:
            assert reading.is_alive()
        check_middle(out.report, rows_out=0)
        go_on.set()
        reading.join()
    assert (sum(map(len, read)), out.report.rows_out) == (ROWS, ROWS)


def test_posg_talks_to_its_nodes_over_the_channels(two, monkeypatch):
    """More rows than fit the channels, so the first messages come before the last rows are assigned."""
    monkeypatch.setattr(proactive.Proactive, "cap", 8 << 10)
    tested = od.Pipeline(SOURCE).map(takes_a_while, schema=SOURCE).key_by("user").scan(seen=od.count())
    options = {"grouping": od.POSG(window=5, mu=1e9), "grouping_key": "item", "partial": False}
    with ProcessStream(tested, [batch(0, 1_500)], two, options) as out:
        found = pa.Table.from_batches(list(out))
        assert found.equals(run_serial(tested, batch(0, 1_500)).table)
    grouping = out.report.grouping
    assert (grouping["name"], grouping["state"] != "ROUND ROBIN") == ("posg", True)
    assert grouping["matrices"] >= 2
    assert grouping["replies"] >= 1


def test_a_stream_that_was_closed_before_it_began_has_a_report():
    out = ProcessStream(pipeline(), [batch()], 2, {})
    out.close()
    assert (out.report.tuples, out.report.rows_out, out.report.operators) == (0, 0, ())


def test_who_waits_for_whom_is_known(two):
    """The source is slow: all that nodes and caller do is wait, those behind for the node in front that is
    furthest behind; and the caller's rows never wait for credit.
    """
    pause = threading.Event()

    def source():
        for k in range(4):
            yield batch(k * 10, 10)
            pause.wait(0.2)

    with ProcessStream(pipeline(), source(), two, {}) as out:
        assert sum(b.num_rows for b in out) == 40
    report = out.report
    for receiver in ("fragment 1 process 1", "fragment 1 process 2", "fragment 2 process 1", "caller"):
        of_receiver = [c for c in report.channels if c.receiver == receiver]
        assert 0.0 < sum(c.awaited_seconds for c in of_receiver) <= report.seconds
    assert all(c.blocked_seconds == 0 for c in report.channels if c.sender == "caller")
    assert {c.low for c in report.channels} == {None}


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_histograms_of_all_nodes_add_up_exactly(nodes):
    fragments, options, _ = prepare(pipeline(), {"marker_every": 3, "chunk_rows": 20}, "nodes")
    topology = Topology(fragments, nodes, options)
    here = SameProcess()
    list(
        here.run(topology, SourceBlocks([batch()], SOURCE, 100, own_thread=False), pipeline().schema, False)
    )
    parts = [node.outcome.report for node in here.nodes]
    report = here.driver.report(1.0)
    for name in ("processing", "end_to_end"):
        whole = [part.latency[name] for part in parts]
        assert report.latency[name].histogram == added(part.histogram for part in whole)
        assert report.latency[name].markers == sum(part.markers for part in whole)
        assert report.latency[name].markers == sum(report.latency[name].histogram.values()) > 100
        assert report.latency[name].sum_ns == sum(part.sum_ns for part in whole)
    assert rows_per_edge(report) == dict.fromkeys(("fragment 1", "fragment 2", "fragment 3", "caller"), ROWS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_not_ask_its_parents_nodes(two, monkeypatch):
    """It took the answers that its parent waited for, which then waited for ever."""
    rows = batch()
    with ProcessStream(pipeline(), rows, two, {}) as out:
        found = [next(out)]
        child = os.fork()
        if child == 0:
            monkeypatch.setattr(ProcessStream, "_hear", lambda *_: os._exit(3))
            os._exit(0 if out.report.tuples >= 0 else 4)
        assert os.waitpid(child, 0)[1] == 0
        found += out
    expected = run_serial(pipeline(), rows).table
    assert pa.Table.from_batches(found).to_pylist() == expected.to_pylist()


def test_a_source_that_reads_its_own_stream_at_its_first_call(two, monkeypatch):
    """It began before the stream knew of its thread, and waited for the reader, who waited for it."""
    rows, found, asked = batch(), [], threading.Event()

    def source():
        found.append(out._is_inside())
        asked.set()
        if found[0]:  # else this waits for ever
            with pytest.raises(RuntimeError, match="can't be read by its own source"):
                next(out)
        yield rows

    def start(blocks, begin=SourceBlocks.start):
        begin(blocks)
        assert asked.wait(60)

    monkeypatch.setattr(SourceBlocks, "start", start)
    with ProcessStream(pipeline(), source(), two, {}) as out:
        got = pa.Table.from_batches(list(out))
    assert found == [True]
    assert got.to_pylist() == run_serial(pipeline(), rows).table.to_pylist()
