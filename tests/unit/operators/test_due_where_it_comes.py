"""A key that comes into a run as a row of state, behind a mark of the clock, is due as it was before."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from state_runs import Segment, same_states

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("n", pa.int64())])
PLAIN = od.Pipeline(SCHEMA)
KEYED = PLAIN.key_by("k")


def windows(kind, **options):
    return KEYED.window(kind, time="ts", **options).aggregate(m=od.count())


def rings(row, state, emit):
    if row.k == "moves":
        state.at = row.ts + 10


def rung(key, state, at, emit):
    emit(key, at)


def timed():
    given = {"schema": {"k": str, "at": int}, "state": {"at": int}, "timer": "at", "on_timer": rung}
    return KEYED.process(rings, clock=od.every("ts", 1), **given)


#: What is made, and how many rows the key gives where it has come to. Windows begin at 3, 13, ...
WAYS = {
    "tumbling": (lambda: windows(od.tumbling(10, offset=3)), 1),
    "hopping": (lambda: windows(od.hopping(10, every=5, offset=3)), 2),
    "session": (lambda: windows(od.session(10)), 1),
    "rolling": (lambda: windows(od.rolling(10)), 0),
    "without gaps": (lambda: windows(od.tumbling(10, offset=3), fill_gaps=20), 0),
    "deduplicate": (lambda: PLAIN.deduplicate("k", time="ts", within=10), 0),
    "deduplicate last": (lambda: PLAIN.deduplicate("k", time="ts", within=10, keep="last"), 1),
    "join": (lambda: PLAIN.join_interval(PLAIN, "k", (0, 10), "left", time="ts"), 0),
    "join asof": (lambda: PLAIN.join_asof(PLAIN, "k", 10, time="ts"), 0),
    "timer": (timed, 1),
}


def rows(*tuples):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, one, strict=True)) for one in tuples], SCHEMA)


#: Times of another key there, of which a mark at 260 closes nothing.
STAYS = (200, 238, 259)
STAYS_IN_GAPS = (238, 241)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_came_as_a_row_is_due_at_the_next_mark(way):
    make, given = WAYS[way]
    pipeline = make()
    options = {"workers": 0, "buckets": 1, "punctuate": od.every("ts", 10)}
    with Segment(pipeline, **options) as segment:
        segment.push(rows(("moves", 100, 1)))
        if way == "without gaps":  # its window closes, and what is left is where it began
            segment.push(rows(("other", 117, 1)))
        moved = {name: one.filter(pc.field("k") == "moves") for name, one in segment.state().items()}
    with Segment(pipeline, **options) as segment:
        times = STAYS_IN_GAPS if way == "without gaps" else STAYS
        segment.push(rows(*(("stays", time, 1) for time in times)))
        segment.install(moved)
        assert any("moves" in state["k"].to_pylist() for state in segment.state().values())
        before = sum(batch.num_rows for batch in segment.batches)
        segment.push(rows(("stays", 260, 1)))
        found = pa.Table.from_batches(segment.batches, pipeline.schema).slice(before)
        assert found["k"].to_pylist().count("moves") == given
        for state in segment.state().values():  # a timer that has fired leaves its key
            assert ("moves" in state["k"].to_pylist()) == (way == "timer")


@pytest.mark.parametrize("gone", ["a", "b", "d"])
@pytest.mark.parametrize("way", WAYS)
def test_keys_that_stay_are_due_where_others_left_as_rows(way, gone):
    pipeline, clock = WAYS[way][0](), od.every("ts", 10)
    keys = ["a", "b", "moves", "c", "d"]
    front = rows(*((key, 100 + place, 1) for place, key in enumerate(keys)), ("z", 109, 1), ("z", 111, 1))
    behind = rows(("c", 112, 2), ("e", 113, 1), ("z", 121, 1), ("z", 135, 1), ("e", 136, 1), ("z", 171, 1))
    with Segment(pipeline, workers=0, buckets=1, punctuate=clock) as segment:
        segment.push(front)  # the mark at 110 has looked at all of them
        for name, state in segment.state().items():
            segment.remove(name, state.filter(pc.field("k") == gone))
        segment.push(behind)
        left = segment.state()
        segment.finish()
        found = pa.Table.from_batches(segment.batches, pipeline.schema)
    others = pa.concat_tables([front, behind]).filter(pc.field("k") != gone)
    with Segment(pipeline, workers=0, buckets=1, punctuate=clock) as segment:
        segment.push(others)
        assert same_states(left, segment.state())
    expected = run_serial(pipeline, others, punctuate=clock).table
    assert found.filter(pc.field("k") != gone).equals(expected)
