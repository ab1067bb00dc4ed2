"""Marks of a clock that a node of several takes together with the rows among them: the same rows and marks
in the same order as one by one.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from random_moves import RandomMoves

import ordstream as od
from ordstream.balance.mixed.controller import Controller
from ordstream.fragments import driver, measured_keys, polled_node
from ordstream.fragments.channels import Outbox
from ordstream.fragments.fragment_node import FragmentNode
from ordstream.fragments.live_node import LiveNode
from ordstream.fragments.mark_kinds import SNAPSHOT, TIME, numbered
from ordstream.fragments.measured_keys import MeasuredNode
from ordstream.fragments.merging import TagMerge, Tags, behind
from ordstream.fragments.polled_node import PolledNode
from ordstream.fragments.same_process import run_here
from ordstream.fragments.time_marks import PlacedRows, TimeMark, mark_tag, placed_among
from ordstream.fragments.wire import MARK, SocketLink, marks_of
from ordstream.ground.ordertags import TAG, in_front, source_tags, tags_of
from ordstream.node.steps import Steps
from ordstream.reference.run_serial import run_serial

SCHEMA = pa.schema([("n", pa.int64()), pa.field(TAG, pa.binary(), nullable=False)])
POSITION = 3


def rows_of(tags):
    arrays = [pa.array(range(len(tags)), pa.int64()), pa.array(tags, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def drawn_tags(rng, serials, wide):
    """Of rows: of source tuples, or of what they and marks made an operator in front emit."""
    found = set()
    for serial in serials:
        plain = source_tags(np.array([serial]))[0].as_py()
        if not wide:
            found.add(plain)
            continue
        found.update(plain + index.to_bytes(4, "big") for index in range(rng.randrange(3)))
        if rng.random() < 0.3:  # a step of the mark that the next tuple shows, in another fragment
            found.add(in_front(serial + 1) + (1).to_bytes(2, "big") + b"key" + bytes(4))
    return sorted(found)


def flat(items):
    """Rows' tags and marks one after the other."""
    found = []
    for item in items:
        if isinstance(item, TimeMark):
            found.append((item.place, item.time))
        elif isinstance(item, PlacedRows):
            tags, start = tags_of(item.rows).to_pylist(), 0
            for k, stop in enumerate(item.before.tolist()):
                found += [*tags[start:stop], (item.place(k), int(item.times[k]))]
                start = stop
            found += tags[start:]
        else:
            found += tags_of(item).to_pylist()
    return found


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_marks_stand_where_their_tags_say(seed, wide):
    rng = random.Random(seed)
    tags = drawn_tags(rng, sorted(rng.sample(range(1, 200), rng.choice([0, 1, 60]))), wide)
    marks = [mark_tag(one, 10 * one, POSITION) for one in sorted(rng.sample(range(1, 210), 40))]
    cuts = sorted(rng.sample(range(len(tags) + 1), min(len(tags), 3))) if tags else []
    parts = [rows_of(tags[a:b]) for a, b in zip([0, *cuts], [*cuts, len(tags)], strict=True) if b > a]
    placed = placed_among(parts, marks, SCHEMA)
    expected = [*tags]
    for mark in reversed(marks):
        expected.insert(bisect_left(tags, mark), (TimeMark.at(mark).place, TimeMark.at(mark).time))
    assert flat(placed) == expected
    for one in placed:
        if isinstance(one, PlacedRows) and one.num_rows > 1:
            at = rng.randrange(1, one.num_rows)
            halves = [one.slice(0, at), one.slice(at)]
            assert flat(halves) == flat([one])
            assert [half.num_rows for half in halves] == [at, one.num_rows - at]
        if isinstance(one, PlacedRows):
            parts = one.parted()
            assert flat(parts) == flat([one])
            assert all(part.num_rows or len(part.before) for part in parts)
            alone = [part for part in parts if isinstance(part, pa.RecordBatch)]
            assert (not alone and not one.num_rows) or alone[0].num_rows == 1


def filled(seed):
    """A merge of some senders that are at different places, with marks, some of another kind."""
    rng = random.Random(seed)
    merge = TagMerge(3, lambda sender, size: None, rows_at_once=rng.choice([5, 40, 1_000]))
    at = 1
    for number in range(1, 30):
        serial = at + rng.randrange(0, 6)
        kind = SNAPSHOT if rng.random() < 0.05 else TIME
        merge.mark(numbered(number, kind), mark_tag(serial, number, POSITION))
        at = max(at, serial)
    for sender in range(3):
        mine = [one for one in range(1, at + 9) if one % 3 == sender and rng.random() < 0.8]
        mine = mine[: rng.randrange(1, len(mine) + 1)]
        cut = rng.randrange(len(mine))
        for part in (mine[:cut], mine[cut:]):
            if part:
                merge.rows(sender, rows_of(source_tags(np.array(part)).to_pylist()), 1)
        if rng.random() < 0.5:
            merge.set_low(sender, behind(mark_tag(at + 9, 0, POSITION)))
    return merge


def take_one(merge, found):
    """The next rows, or the marker that they are behind; whether there was one of the two."""
    if merge.ready():
        found += tags_of(next(merge)).to_pylist()
    elif merge.at_mark is not None:
        found.append(merge.marks[0])
        merge.pass_mark()
    else:
        return False
    return True


def one_by_one(merge):
    found = []
    while take_one(merge, found):
        pass
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_merge_gives_the_same_together(seed):
    expected, merge, found = one_by_one(filled(seed)), filled(seed), []
    while True:
        before = list(merge.marks)
        count = merge.marks_there(TIME, 7)
        if count:
            rows, tags = merge.marked(count)
            assert len(tags) <= count
            marks = before[: len(tags)]
            assert [tag for _, tag in marks] == tags
            parts = [] if rows is None else [rows]
            merged = tags_of(rows).to_pylist() if parts else []
            for number, tag in reversed(marks):
                merged.insert(bisect_left(Tags(tags_of(rows)), tag) if parts else 0, (number, tag))
            found += merged
            if merged:
                continue
        if not take_one(merge, found):
            break
    assert found == expected


@pytest.fixture
def taken(monkeypatch):
    """How marks came into nodes."""
    counted = Counter()
    alone, together = PolledNode.take_mark, FragmentNode._arrived

    def take_mark(self, mark):
        counted["alone"] += 1
        alone(self, mark)

    def arrived(self, what):
        counted["together"] += 0 if what.marked is None else len(what.marked.before)
        together(self, what)

    monkeypatch.setattr(PolledNode, "take_mark", take_mark)
    monkeypatch.setattr(FragmentNode, "_arrived", arrived)
    return counted


def data(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": np.sort(rng.integers(0, rows // 3, rows)),
            "k": rng.integers(0, 7, rows),
            "j": rng.integers(0, 3, rows),
            "v": rng.integers(0, 100, rows),
        }
    )


def windows(table):
    counted = od.Pipeline(table.schema).key_by("k").window(od.tumbling(1), time="ts")
    return counted.aggregate(n=od.count(), s=od.sum("v"))


def chained(table):
    """A second fragment hears the marks behind what they made the first one emit."""
    first = od.Pipeline(table.schema).key_by("k").scan(n=od.count())
    return (
        first.key_by("j").window(od.hopping(4, every=2), time="ts").aggregate(n=od.sum("n"), m=od.max("v"))
    )


@pytest.mark.parametrize("made", [windows, chained])
@pytest.mark.parametrize("nodes", [2, 3])
def test_nodes_take_most_marks_together(made, nodes, taken, monkeypatch):
    """Each mark was an item of its own: some 80 us of a node's time each, whatever the node did at it."""
    monkeypatch.setattr(polled_node, "TURN_S", 1.0)  # on a busy machine, too, a step takes what is there
    table = data(6_000)
    pipeline = made(table)
    found = run_here(pipeline, table, nodes, {"tags": True}, block_rows=2_000)
    expected = run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    tags = zip(*(found.table[name].to_pylist() for name in ("_serial", "_index")), strict=True)
    assert list(tags) == expected.tags
    assert taken["together"] > 20 * taken["alone"]


def seen(row, state, emit):
    state.n += row.v
    state.due = row.ts + 2
    emit(row.k, state.n)


def due(key, state, at, emit):
    emit(key, -at)


def timers(table):
    """A function, whose calls are timed where keys move."""
    kept = {"n": pa.int64(), "due": pa.int64()}
    return (
        od.Pipeline(table.schema)
        .key_by("k")
        .process(
            seen,
            schema={"k": pa.int64(), "n": pa.int64()},
            state=kept,
            timer="due",
            on_timer=due,
            clock=od.every("ts", 1),
        )
    )


def test_a_step_has_enough_where_no_marks_fit_together():
    """With 249 to 255 pieces it had not, and marks came one by one, until 256 rows waited beside it."""

    class Marks:
        def marks_there(self, kind, most):
            return most

    node = PolledNode.__new__(PolledNode)
    for pieces in range(2 * polled_node.BETWEEN_MARKS):
        node._fitted, node._marks_fitted = [None] * (pieces % 7), pieces - pieces % 7
        assert node.has_enough == (node.marks_wanted(Marks()) == 0), pieces


@pytest.mark.parametrize("made", [windows, chained, timers])
def test_nodes_whose_keys_may_move_take_most_marks_together(made, taken, monkeypatch):
    """With `balance=` they came one by one: a third of the rows a second, where a clock moved often."""
    monkeypatch.setattr(polled_node, "TURN_S", 1.0)  # on a busy machine, too, a step takes what is there
    table = data(6_000)
    pipeline = made(table)
    given = {k: Controller(od.Mixed(theta=1.0), 2) for k in (1, 2)[: 2 if made is chained else 1]}
    found = run_here(pipeline, table, 2, {"tags": True}, block_rows=2_000, balance=given)
    expected = run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    assert taken["together"] > 20 * taken["alone"]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("made", [windows, chained, timers])
@pytest.mark.thin(12)
def test_whatever_moves_and_runs_alone_the_output_is_the_same(made, seed, taken, monkeypatch):
    """A row that is timed alone runs without the marks around it."""
    alone, poll = [], MeasuredNode.poll

    def watched(self):
        assert all(isinstance(one, pa.RecordBatch) and one.num_rows == 1 for one in self._single)
        before = len(self.timed)
        found = poll(self)
        alone.extend(self.timed[before:])
        return found

    monkeypatch.setattr(MeasuredNode, "poll", watched)
    monkeypatch.setattr(measured_keys, "BUDGET", 50.0)  # a row in a few
    monkeypatch.setattr(polled_node, "TURN_S", 1.0)
    rng = random.Random(seed)
    table, nodes = data(1_200, seed), rng.choice([2, 3])
    pipeline = made(table)
    given = {k: RandomMoves(seed + k, nodes) for k in (1, 2)[: 2 if made is chained else 1]}
    how = {"block_rows": rng.choice([60, 600]), "channel_bytes": rng.choice([None, 300]), "seed": seed}
    found = run_here(pipeline, table, nodes, {"tags": True}, balance=given, interval=300, **how)
    expected = run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    tags = zip(*(found.table[name].to_pylist() for name in ("_serial", "_index")), strict=True)
    assert list(tags) == expected.tags
    assert len(alone) > 5
    if made is not chained and how["block_rows"] == 600 and not how["channel_bytes"]:
        assert taken["together"] > 0  # between moves


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("made", [windows, chained])
@pytest.mark.thin(10)
def test_whatever_the_pieces_the_output_is_the_same(made, seed):
    rng = random.Random(seed)
    table = data(600, seed)
    pipeline = made(table)
    how = {"block_rows": rng.choice([7, 60, 600]), "channel_bytes": rng.choice([None, 300]), "seed": seed}
    found = run_here(pipeline, table, rng.choice([2, 3, 5]), {"tags": True}, **how)
    expected = run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    tags = zip(*(found.table[name].to_pylist() for name in ("_serial", "_index")), strict=True)
    assert list(tags) == expected.tags
    half = run_here(pipeline, table.slice(0, 300), 2, {"end": "suspend"}, **how)
    rest = pipeline.run(table.slice(300), restore=half.snapshot)
    assert pa.concat_tables([half.table, rest.table]).equals(expected.table)


@pytest.mark.parametrize("behind", [False, True])
def test_a_row_that_fails_among_marks_is_named(behind):
    """The row itself, or what a mark made of it."""
    table = data(3_000)

    def fails(row):
        if row.n == 3 and row.k == 4:
            raise ValueError("not this one")
        return True

    pipeline = windows(table)
    if not behind:
        seen = od.Pipeline(table.schema).key_by("k").scan(n=od.count())
        pipeline = seen.filter(fails).key_by("k").window(od.tumbling(1), time="ts").aggregate(n=od.count())
    pipeline = pipeline.filter(fails)
    with pytest.raises(od.OperatorError) as expected:
        pipeline.run(table)
    with pytest.raises(od.OperatorError) as found:
        run_here(pipeline, table, 3, {}, block_rows=1_000)
    assert (found.value.serial, found.value.operator) == (expected.value.serial, expected.value.operator)


class Posts:
    """In place of a mesh."""

    def __init__(self):
        self.frames = []

    def post(self, process, kind, edge, run, parts):
        self.frames.append((kind, b"".join(parts)))
        return 0


def test_marks_of_a_block_are_one_frame():
    """Each was a frame of its own, to each node."""
    posts = Posts()
    out = Outbox([SocketLink(posts, process, 1, 0) for process in (0, 1)], 1_000)
    marks = [(numbered(k, TIME), mark_tag(k, 10 * k, POSITION)) for k in range(1, 40)]
    marks.append((numbered(0, TIME), mark_tag(50, -5, POSITION) + b"longer" * 60))
    out.marks(marks)
    out.marks([])
    out.mark(*marks[0])
    assert [kind for kind, _ in posts.frames] == [MARK] * 4
    assert [[*marks_of(body)] for _, body in posts.frames] == [marks, marks, marks[:1], marks[:1]]


@pytest.mark.parametrize("balanced", [False, True])
def test_steps_of_marks_that_nothing_leaves_of_are_let_go(balanced, monkeypatch):
    """The keys that each mark closed stayed in the node until a row left it: where a filter behind lets none
    pass (a stream that waits for an alert), for ever.
    """
    found, marks = [], Steps.marks

    def watched(self):
        given = marks(self)
        found.append(len(given))
        return given

    monkeypatch.setattr(Steps, "marks", watched)
    table = data(12_000)
    quiet = windows(table).filter(od.col("n") < 0)
    given = {1: Controller(od.Mixed(theta=1.0), 2)} if balanced else None
    assert run_here(quiet, table, 2, {}, block_rows=500, balance=given).table.num_rows == 0
    assert sum(found) > 5_000
    assert max(found) < 500


@pytest.mark.parametrize("quiet", [False, True])
def test_marks_that_wait_are_bounded(quiet, monkeypatch):
    """A fragment that gets no rows, for a filter in front, fell behind the source by any number of marks."""
    most, mark = [0], TagMerge.mark

    def watched(self, number, tag):
        mark(self, number, tag)
        most[0] = max(most[0], len(self.marks))

    turns, step = Counter(), LiveNode.step

    def slow(self):
        turns[self.fragment, self.node] += 1
        return step(self) if self.fragment < 1 or turns[self.fragment, self.node] % 100 == 0 else True

    monkeypatch.setattr(TagMerge, "mark", watched)
    monkeypatch.setattr(LiveNode, "step", slow)
    monkeypatch.setattr(driver, "MARKS_AHEAD", 20)
    table = data(6_000)
    pipeline = od.Pipeline(table.schema).filter(od.col("v") < (0 if quiet else 3))
    pipeline = pipeline.key_by("k").window(od.tumbling(1), time="ts").aggregate(n=od.count())
    pipeline = pipeline.key_by("n").scan(z=od.count())
    found = run_here(pipeline, table, 2, {}, block_rows=100)
    assert found.table.equals(run_serial(pipeline, table).table)
    assert 0 < most[0] < 150


@pytest.mark.parametrize("made", [windows, chained])
def test_over_processes(made):
    table = data(4_000, 5)
    pipeline = made(table)
    found, expected = pipeline.run(table, processes=2, tags=True), run_serial(pipeline, table)
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    tags = zip(*(found.table[name].to_pylist() for name in ("_serial", "_index")), strict=True)
    assert list(tags) == expected.tags
