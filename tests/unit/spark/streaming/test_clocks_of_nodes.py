"""A stream with a clock over several nodes, without Spark: marks reach every node, and the clock goes on
from batch to batch, whatever the nodes.
"""

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import PlanError, SourceError

pytest.importorskip("pyspark")
from epoch_frames import SCHEMA, Stream, answer, rows

from ordstream.balance.mixed import Assignment, Controller
from ordstream.spark.streaming.epoch_functions import FINISH
from ordstream.testing import run_serial

pytestmark = pytest.mark.usefixtures("tasks")

FIELDS = {"user": pa.int64(), "n": pa.int64(), "fires": pa.int64()}
EVERY = {"punctuate": od.every("ts", 4)}


def by_user():
    return od.Pipeline(SCHEMA).key_by("user")


def set_timer(row, state, emit):
    state.n += 1
    state.fires = row.ts + 5
    emit(row.user, state.n, 0)


def fire(key, state, at, emit):
    emit(key, state.n, at)
    state.n = 0


def timers():
    kept = {"n": pa.int64(), "fires": pa.int64()}
    made = by_user().process(
        set_timer, schema=FIELDS, state=kept, timer="fires", on_timer=fire, clock=od.every("ts", 2)
    )
    return made.key_by("n").scan(there=od.count())


def windows():
    """Rows that a mark causes cross two cuts, and find what the same mark closes."""
    made = by_user().window(od.hopping(8, every=4), time="ts")
    counted = made.aggregate(n=od.count(), item=od.last("item"), at=od.last("ts"), emit="both")
    shown = counted.key_by("item").process(on_mark, on_time=closed, schema=FIELDS, state={"n": pa.int64()})
    return shown.key_by("fires").scan(there=od.count())


def on_mark(row, state, emit):
    state.n += row.n
    emit(row.user, state.n, row.end)


def closed(key, state, at, emit):
    if state.n > 2:
        emit(None, state.n, at)
    state.n = 0


def graph():
    kept, rest = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count()).branch(od.col("item") != "é1")
    left = kept.key_by("user").window(od.tumbling(5), time="ts").aggregate(n=od.count())
    right = rest.key_by("user").window(od.session(2), time="ts").aggregate(n=od.count())
    return od.union(left, right).key_by("n").scan(there=od.count())


def computed():
    made = od.Pipeline(SCHEMA).filter(od.col("item") != "é1").with_columns(at=od.col("ts") * 2 + 1)
    counted = made.key_by("user").window(od.tumbling(7, offset=-2), time="at").aggregate(n=od.count())
    return counted.key_by("n").scan(there=od.count())


def reordered(slack=3):
    """The clock of the windows leaves one node; sessions in front go by the source's."""
    ordered = od.Pipeline(SCHEMA).reorder("ts", slack=slack)
    counted = ordered.key_by("user").window(od.tumbling(4), time="ts").aggregate(n=od.count())
    return counted.key_by("n").window(od.session(4), time="end").aggregate(there=od.count())


def three_clocks():
    """The source's in front, then two that leave a `reorder`: what is behind one hears no other."""
    seen = by_user().window(od.session(3), time="ts").aggregate(n=od.count(), at=od.last("ts"), emit="both")
    late = seen.reorder("at", slack=2, late="drop").key_by("n").scan(there=od.count())
    late = late.window(od.rolling(3), time="at").aggregate(lately=od.count())
    again = late.reorder("at", slack=6, late="drop").key_by("n")
    return again.window(od.tumbling(2), time="at").aggregate(many=od.count(), lately=od.max("lately"))


KINDS = {
    "windows": (windows, EVERY),
    "windows of all rows": (
        lambda: od.Pipeline(SCHEMA).window(od.tumbling(4), time="ts").aggregate(n=od.count()), {},
    ),
    "sessions": (lambda: by_user().sessionize("ts", 2, ["ts"]).key_by("start").scan(n=od.count()), EVERY),
    "deduplicate": (lambda: od.Pipeline(SCHEMA).deduplicate("user", within=4, time="ts"), EVERY),
    "keep last": (
        lambda: od.Pipeline(SCHEMA).deduplicate("user", within=4, time="ts", keep="last"), EVERY,
    ),
    "timers": (timers, {}),
    "rolling": (lambda: by_user().window(od.rolling(3), time="ts").aggregate(n=od.count()), {}),
    "a computed clock": (computed, {}),
    "a graph": (graph, {}),
    "reorder": (reordered, {}),
    "three clocks": (three_clocks, {}),
}  # fmt: skip

#: Nodes, first and last row: also batches of one row, of a node more, and of no row.
STEPS = [(1, 0, 40), (3, 40, 75), (3, 75, 76), (3, 76, 76), (3, 76, 90), (2, 90, 130), (1, 130, 140),
         (3, 140, 141), (3, 141, 180)]  # fmt: skip


def run(stream, table, steps=STEPS, **more):
    """Every epoch is made twice, the first time in vain."""
    for number, (nodes, low, high) in enumerate(steps):
        given = {name: one(number, nodes) for name, one in more.items()}
        part = table.slice(low, high - low)
        lost = stream.epoch(part, nodes=nodes, commit=False, **given)
        made = stream.epoch(part, nodes=nodes, **given)
        assert (made.latest_time, made.serials) == (lost.latest_time, lost.serials)
        assert [one["rows"] for one in made.output] == [one["rows"] for one in lost.output]
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=steps[-1][0], **given)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thin(5)
def test_a_clock_goes_on_over_other_nodes(tmp_path, kind):
    make, options = KINDS[kind]
    table, stream = rows(180, 3), Stream(tmp_path / "c", make())
    run(stream, table, options=lambda *_: options)
    assert stream.output() == answer(stream.pipeline, table, options.get("punctuate"))


def test_rows_that_wait_move_the_clock_when_they_get_their_serials(tmp_path):
    """Batches that overlap by less than `slack`; what waits behind the last one is let go by `finish`."""
    table, stream = rows(180, 5), Stream(tmp_path / "c", windows())
    order = np.argsort(np.arange(180) // 3 + np.random.default_rng(1).integers(0, 4, 180), kind="stable")
    run(stream, table.take(order), slack=lambda *_: 5, options=lambda *_: EVERY)
    assert [one.latest_time for one in stream.log.all()][-2:] == [53, 59]
    came = table.take(order)  # of equal rows those that waited are first
    whole = came.take(np.argsort(came["ts"].to_numpy(), kind="stable"))
    assert stream.output() == answer(stream.pipeline, whole, EVERY["punctuate"])


@pytest.mark.parametrize("grouping", ["posg", "a map"])
def test_groupings_take_marks_to_their_nodes(tmp_path, grouping):
    table, stream = rows(180, 6), Stream(tmp_path / "c", fronted())

    def chosen(_, nodes):
        if grouping != "a map" or nodes == 1:
            return "hash" if nodes == 1 else grouping
        learner = od.DKG(theta=0.05).learner(nodes)
        learner.learn(pa.array([*range(9), *[4] * 9]))
        return {stream.pipeline.plan.operators[1].name: learner.build()}

    run(stream, table, grouping=chosen)
    assert stream.output() == answer(stream.pipeline, table)


def same(row):
    return tuple(row)


def fronted():
    made = od.Pipeline(SCHEMA).map(same, schema=SCHEMA).key_by("user").window(od.tumbling(4), time="ts")
    return made.aggregate(n=od.count(), last=od.last("ts")).key_by("n").scan(there=od.count())


def test_keys_that_move_find_the_marks(tmp_path, monkeypatch):
    """Half of the keys change their node in every epoch, with windows that a mark will close there."""

    def decide(controller):
        rng = np.random.default_rng(len(controller.evidence.keys) + controller._issued)
        controller._collect()
        keys, ring = controller.evidence.keys, controller.assignment.ring
        keys = keys[rng.random(len(keys)) < 0.5]
        return controller._propose(
            Assignment(ring, keys, rng.choice(ring.members, len(keys))), controller.assignment
        )

    monkeypatch.setattr(Controller, "decide", decide)
    table, stream = rows(180, 7), Stream(tmp_path / "c", windows())
    run(stream, table, options=lambda *_: EVERY, policy=lambda *_: od.Mixed(theta=0.08, table=3000))
    moved = [one["moved"]["by_plan"]["rows"] for made in stream.log.all() for one in made.balance.values()]
    assert sum(count > 0 for count in moved) >= 4
    assert stream.output() == answer(stream.pipeline, table, EVERY["punctuate"])


# a task that failed ends with its process, and its files with it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_clock_that_runs_backwards_ends_the_epoch_at_that_tuple(tmp_path):
    made = od.Pipeline(SCHEMA).with_columns(at=od.col("ts") % 30).key_by("user")
    made = made.window(od.tumbling(4), time="at").aggregate(n=od.count())
    table, stream = rows(180, 3), Stream(tmp_path / "c", made)
    stream.epoch(table.slice(0, 80), nodes=2)
    with pytest.raises(SourceError) as error:
        stream.epoch(table.slice(80), nodes=3)
    assert str(error.value) == str(run_serial(made, table).error)
    assert stream.log.last().number == 0


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("between", [slice(60, 90), slice(60, 60)])
def test_a_run_without_a_clock_knows_no_time_of_it(tmp_path, nodes, between):
    """The next run's clock may have another column, whose times that one means nothing to."""
    table, stream = rows(180, 3), Stream(tmp_path / "c", by_user().sessionize("ts", 2))
    with_clock = stream.epoch(table.slice(0, 60), nodes=nodes, options=EVERY)
    assert (with_clock.latest_time, with_clock.ingress["clock"]) == (19, "'ts' (int64)")
    without = stream.epoch(table.slice(between.start, between.stop - between.start), nodes=nodes)
    assert without.latest_time is None
    assert "clock" not in without.ingress


def test_clocks_that_differ_are_refused(tmp_path):
    two = od.Pipeline(pa.schema([*SCHEMA, ("other", pa.int64())])).key_by("user")
    stream = Stream(tmp_path / "c", two.window(od.tumbling(4), time="ts").aggregate(n=od.count()))
    with pytest.raises(PlanError, match="there is one clock"):
        stream.runner(nodes=2, options={"punctuate": od.every("other", 2)})
