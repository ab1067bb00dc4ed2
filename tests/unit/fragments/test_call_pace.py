"""Functions that are called with many rows, in nodes: a call that costs something whatever it has gets many
of the rows that wait, also where POSG measures; rows that take long each go few at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments import measured_keys, moving, polled_node, proactive
from ordstream.fragments.call_pace import SELDOM, CallPace
from ordstream.fragments.live_node import LiveNode
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.node import polled_stream
from ordstream.operators import map_batches
from ordstream.testing import run_serial

SOURCE = pa.schema([("item", pa.int64()), ("n", pa.int64())])
POSG = {"grouping": od.POSG(window=50, resync=200), "grouping_key": "item"}


class Clock:
    """A clock that functions put forward; the calls that did, by their rows."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def perf_counter(self):
        return self.now

    monotonic = thread_time = perf_counter

    def function(self, call_s, row_s, form="numpy"):
        """A function of batches whose calls cost so much, and rows by their item."""

        def asked(batch):
            items = batch["item"].tolist() if form == "numpy" else batch.column("item").to_pylist()
            self.calls.append(len(items))
            self.now += call_s + sum(map(row_s, items))
            return batch

        return asked


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (polled_node, polled_stream, proactive, map_batches):
        monkeypatch.setattr(module, "time", made)
    return made


def table(count):
    return pa.table({"item": [n % 5 for n in range(count)], "n": range(count)}, schema=SOURCE)


def pipeline_of(asked, form="numpy"):
    return od.Pipeline(SOURCE).map_batches(asked, schema=SOURCE, format=form)


@pytest.mark.parametrize("form", ["numpy", "arrow"])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("call_s", [0.02, 0.5])
@pytest.mark.parametrize("options", [{}, POSG], ids=["", "posg"])
@pytest.mark.thin(6)
def test_a_call_that_costs_whatever_it_has_gets_many_rows(clock, form, live, call_s, options):
    rows, pipeline = table(4_000), pipeline_of(clock.function(call_s, lambda item: 1e-5, form), form)
    data = iter(rows.to_batches(max_chunksize=100)) if live else rows
    found = run_here(pipeline, data, 2, options).table
    calls = len(clock.calls)
    assert found.equals(run_serial(pipeline, rows).table)
    assert calls < (400 if options else 200)  # POSG gives out 32 rows at a time


def test_keys_are_measured_by_few_calls_of_one_row(clock, monkeypatch):
    monkeypatch.setattr(measured_keys, "time", clock)
    monkeypatch.setattr(moving, "time", clock)
    rows, asked = table(6_000), clock.function(0.05, lambda item: 1e-5)
    counted = od.Pipeline(SOURCE).key_by("item").scan(seen=od.count())
    pipeline = counted.map_batches(asked, schema=counted.schema)
    found = run_here(pipeline, rows, 2, {}, balance=od.Mixed()).table
    calls = list(clock.calls)
    assert found.equals(run_serial(pipeline, rows).table)
    assert len(calls) < 300  # 5,236 where the call was not counted with what a row alone costs


@pytest.mark.parametrize("first", [0, 40])
def test_it_gets_them_also_behind_rows_that_came_one_by_one(clock, first):
    """All calls were of one row, which says nothing of what a call costs."""
    rows, pipeline = table(2_000), pipeline_of(clock.function(0.3, lambda item: 0.0))
    whole = rows.combine_chunks().to_batches()[0]
    parts = [whole.slice(n, 1) for n in range(first)] + [whole.slice(first)]
    found = run_here(pipeline, iter(parts), 1, {}, block_rows=1_000).table
    calls = len(clock.calls)
    assert found.equals(run_serial(pipeline, rows).table)
    assert calls < 150


def test_rows_that_take_long_each_stay_few(clock, monkeypatch):
    steps, whole = [], LiveNode.step

    def step(node):
        before = sum(clock.calls)
        try:
            return whole(node)
        finally:
            steps.append(sum(clock.calls) - before)

    monkeypatch.setattr(LiveNode, "step", step)
    rows, pipeline = table(300), pipeline_of(clock.function(0.0, lambda item: 3.0))
    assert run_here(pipeline, rows, 2, {}).table.num_rows == 300
    turns = [count for count in steps if count]
    assert max(turns[-100:]) <= 2
    assert turns[-100:].count(2) <= 20


def test_posg_learns_what_rows_cost_beside_the_call(clock):
    """Few of them run alone, and what the call costs then counts as among others."""
    rows = table(20_000)
    pipeline = pipeline_of(clock.function(0.2, lambda item: 0.04 if item == 1 else 0.01))
    here = SameProcess()
    found = run_here(pipeline, rows, 2, POSG | {"grouping": od.POSG(window=1_000_000)}, here=here).table
    calls = len(clock.calls)
    assert found.equals(rows)
    assert calls < 6_000
    for node in here.nodes:
        times = node._operators._instance.times
        assert times.tuples >= 50
        dear, cheap = times.estimate_many(pa.array([1, 2])).tolist()
        assert dear - cheap == pytest.approx(0.03, rel=0.25)
        assert 0.01 <= cheap <= 0.04  # 0.21 by itself


def test_a_line_through_calls():
    pace = CallPace()
    for rows in (1, 1, 1):
        pace.took(rows, 0.5)
    assert pace.call_s == 0.0  # equal calls don't tell
    for rows in (2, 4, 8, 16, 16):
        pace.took(rows, 0.4 + 0.1 * rows)
    assert pace.call_s == pytest.approx(0.4)
    assert pace.row_s == pytest.approx(0.1)
    assert pace.rows == 16
    pace = CallPace()
    for rows in (1, 2, 4, 8):
        pace.took(rows, 1.0)
    assert pace.rows == 16  # twice the largest of late, however little a row takes
    assert pace.others == SELDOM - 1
