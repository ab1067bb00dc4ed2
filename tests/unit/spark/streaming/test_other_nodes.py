"""A stream goes on with another number of nodes, without Spark: whatever its operators keep, and whatever
chooses the nodes, the output is `run_serial`'s.
"""

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import CheckpointError, PlanError
from ordstream.ground.ordertags import OrderTag
from ordstream.snapshots.fit import fit
from ordstream.snapshots.snapshot import Snapshot

pytest.importorskip("pyspark")
from epoch_frames import SCHEMA, Stream, answer, rows

from ordstream.spark.streaming.epoch_functions import FINISH
from ordstream.spark.streaming.kept_maps import map_of
from ordstream.spark.streaming.stored_state import stored

pytestmark = pytest.mark.usefixtures("tasks")

FIELDS = {"user": pa.int64(), "n": pa.int64()}


def by_user():
    return od.Pipeline(SCHEMA).key_by("user")


def counted(row, state, emit):
    state.n += 1
    emit(row.user, state.n)


def listed(row, state, emit):
    state.append(row.ts)
    emit(row.user, sum(state))


def written(state):
    return np.array(state, dtype=np.int64).tobytes()


def read(data):
    return np.frombuffer(data, dtype=np.int64).tolist()


def same(row):
    return tuple(row)


def shedding(where="front"):
    """Frozen; every decision depends on all before."""
    model = ExecutionTimes(0.05, 0.1)
    for number, cost in enumerate((1, 2, 4, 12)):
        model.update_many([f"é{number}"] * 50, np.full(50, cost * 1e6))
    frozen = {"model": model, "frozen": od.Frozen(rate=500.0, seed=7), "name": "overload"}
    made = od.Pipeline(SCHEMA).filter(od.col("user").is_not_null())
    if where == "behind":
        made = made.key_by("user").scan(seen=od.count())
        return made.shed("30ms", "user", **frozen).key_by("seen").scan(there=od.count())
    made = made.shed("30ms", "item", **frozen).map(same, schema=SCHEMA)
    return made.key_by("user").scan(seen=od.count()).key_by("seen").lag({"before": "user"})


KINDS = {
    "count": lambda: by_user().scan(seen=od.count(), latest=od.last("ts")),
    "sessions": lambda: by_user().scan(seen=od.count()).key_by("user").sessionize("ts", 2, ["seen"]),
    "lists": lambda: by_user().pair_up("ts"),
    "last rows": lambda: by_user().window(od.rows(4)).aggregate(many=od.count(), last=od.last("ts")),
    "process": lambda: by_user().process(counted, schema=FIELDS, state={"n": pa.int64()}),
    "codec": lambda: by_user().process(listed, schema=FIELDS, state=od.codec(written, read, list)),
    "two keys": lambda: (
        by_user().scan(seen=od.count()).key_by("item", "seen").lag({"before": "ts"}).key_by("item")
        .scan(most=od.max("seen"))
    ),
    "all rows": lambda: by_user().scan(seen=od.count()).top_k(3, by="seen", emit="updates"),
    "shed": shedding,
    "only at the end, in the middle": lambda: (
        by_user().aggregate(n=od.count(), emit="final").key_by("n").scan(there=od.count())
    ),
}  # fmt: skip


def learnt(operator, nodes):
    """A map for so many nodes."""
    learner = od.DKG(theta=0.05).learner(nodes)
    learner.learn(pa.array([*range(9), *[4] * 9]))
    return {operator: learner.build()}


@pytest.mark.parametrize("grouping", ["key groups", "a map"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thin(8)
def test_a_stream_goes_on_with_other_nodes(tmp_path, kind, grouping):
    table, stream = rows(180, 3), Stream(tmp_path / "c", KINDS[kind]())
    first = next((one.name for one in stream.pipeline.plan.operators if one.key), None)
    steps = [(1, 0, 50), (3, 50, 90), (3, 90, 110), (2, 110, 150), (1, 150, 165), (3, 165, 180)]
    for nodes, low, high in steps:
        options = {"grouping": learnt(first, nodes)} if grouping == "a map" and nodes > 1 else {}
        lost = stream.epoch(table.slice(low, high - low), nodes=nodes, commit=False, **options)
        made = stream.epoch(table.slice(low, high - low), nodes=nodes, **options)
        assert made.maps == lost.maps
        maps = [map_of(base64.b64decode(one)) for one in made.maps.values()]
        assert nodes == 1 or {one.instances for one in maps} == {nodes}
        left = {part["node"] for parts in made.states.values() for part in parts}
        assert left == set(range(nodes))
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=2)
    assert stream.output() == answer(stream.pipeline, table)


def test_an_aggregation_is_added_while_a_node_gets_no_rows(tmp_path):
    """That node keeps the file of the run before, which has a column less."""
    table = rows(180, 3)
    steps = [table.slice(0, 100), table.slice(100, 40), table.slice(140)]
    steps[1] = steps[1].filter(pc.equal(steps[1]["user"], 4))
    old = by_user().scan(seen=od.count(), name="s").select("user", "seen")
    new = by_user().scan(seen=od.count(), latest=od.max("ts"), name="s")
    new = new.filter(od.col("latest").is_not_null()).select("user", "seen")
    stream = Stream(tmp_path / "c", old)
    stream.epoch(steps[0], nodes=3)
    stream.pipeline = new
    made = stream.epoch(steps[1], nodes=3)
    found = stored(str(stream.log.folder), made.number, made.states)["s"]
    assert sorted(len(schema) for _, schema in found.kinds) == [2, 3]
    stream.epoch(steps[2], nodes=2)
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=1)
    assert stream.output() == answer(old, pa.concat_tables(steps))
    with pytest.raises(CheckpointError, match="aggregate 2: stored latest = max"):
        fit(old.plan, Snapshot(1, OrderTag(0), states={"s": found}))


def test_frozen_shedding_over_nodes_sees_all_rows_or_is_refused(tmp_path):
    """What it sheds in the second epoch depends on what it admitted in the first."""
    table = rows(180, 3)
    stream, apart = (Stream(tmp_path / name, shedding()) for name in ("c", "d"))
    stream.epoch(table.slice(0, 100), nodes=2)
    made = stream.epoch(table.slice(100), nodes=3)
    alone = apart.epoch(table.slice(100), nodes=2)
    assert sum(one["rows"] for one in made.output) < sum(one["rows"] for one in alone.output)
    with pytest.raises(PlanError, match=r"overload: each frozen decision depends on all before, and behind"):
        Stream(tmp_path / "e", shedding("behind")).runner(nodes=2)
    with pytest.raises(PlanError, match=r"POSG can't be combined with .shed"):
        stream.runner(nodes=2, grouping="posg")
