"""How rows of a stream go to nodes, without Spark: by key groups, by maps that stay, by POSG; and what of a
state a node reads when the number of nodes changes.
"""

import base64
import json
import time

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.balance.baselines import Modulo
from ordstream.balance.posg import FrozenPosg
from ordstream.errors import CheckpointError, PlanError

pytest.importorskip("pyspark")
from epoch_frames import SCHEMA, Frame, Stream, answer, rows
from patience import measured, patiently

from ordstream.snapshots import state_file
from ordstream.spark import Balancer
from ordstream.spark.streaming import epoch_runner
from ordstream.spark.streaming.arriving import Arriving
from ordstream.spark.streaming.epoch_functions import FINISH, RESULT
from ordstream.spark.streaming.group_ranges import GroupRanges
from ordstream.spark.streaming.kept_maps import map_of, read_map
from ordstream.spark.streaming.spread import Spread

pytestmark = pytest.mark.usefixtures("tasks")


def counts():
    return od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count(), latest=od.last("ts"))


def two_keys():
    return counts().key_by("item", "user").lag({"before": "seen"}).key_by("item").scan(most=od.max("seen"))


def users(count, seed):
    rng = np.random.default_rng(seed)
    return pa.table([np.arange(count), rng.integers(0, 300, count), ["a"] * count], schema=SCHEMA)


@pytest.fixture
def read(monkeypatch):
    """(task, file, key group) of everything that is read of states; a group of None: the index."""
    found = []
    group, opened = state_file.FileRows._group, state_file._opened

    def group_read(self, file, number, *rest):
        found.append((Frame.task.partition, self.path.name, number))
        return group(self, file, number, *rest)

    def file_opened(path, *rest):
        found.append((Frame.task.partition, path.name, None))
        return opened(path, *rest)

    monkeypatch.setattr(state_file.FileRows, "_group", group_read)
    monkeypatch.setattr(state_file, "_opened", file_opened)
    return found


def test_other_nodes_read_their_own_key_groups_and_no_others(tmp_path, read):
    table, stream = users(700, 1), Stream(tmp_path / "c", counts())
    before, low = None, 0
    for nodes in (1, 2, 2, 5, 3, 8, 1):
        read.clear()
        made = stream.epoch(table.slice(low, 100), nodes=nodes)
        low += 100
        wanted = {"2": GroupRanges(nodes).to_bytes()} if nodes > 1 else {}
        assert {number: base64.b64decode(one) for number, one in made.maps.items()} == wanted
        groups = [(task, number) for task, _, number in read if number is not None]
        if nodes > 1 and before is not None:
            assert groups
            assert all(number in GroupRanges(nodes).groups_of(task) for task, number in groups)
        if before is not None:
            assert len(groups) == len({(name, number) for _, name, number in read if number is not None})
        if (before, nodes) == (5, 3):  # of five files none reads more than it has to
            opened = {(task, name.split("-")[3]) for task, name, number in read if number is None}
            assert opened == {(0, "0"), (0, "1"), (1, "1"), (1, "2"), (1, "3"), (2, "3"), (2, "4")}
        before = nodes
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=4)
    assert stream.output() == answer(stream.pipeline, table)


def test_one_node_has_its_state_before_it_asks_for_a_row(tmp_path, read, monkeypatch):
    """Spark sorts the rows meanwhile."""
    table, stream = users(60, 3), Stream(tmp_path / "c", counts())
    stream.epoch(table.slice(0, 40))
    plain = Arriving.__next__

    def asked(arriving):
        read.append("a row")
        return plain(arriving)

    monkeypatch.setattr(Arriving, "__next__", asked)
    stream.epoch(table.slice(40))
    first = read.index("a row")
    assert {number for _, _, number in read[:first]} > {None}
    assert set(read[first:]) == {"a row"}
    made = stream.epoch(table.slice(0, 0))  # nothing came: the files stay
    assert made.states == stream.log.read(1).states
    assert made.output == []


def test_a_node_has_consecutive_groups():
    for nodes in (1, 2, 3, 7, 1000, 1024):
        ranges = GroupRanges(nodes)
        whole = [group for node in range(nodes) for group in ranges.groups_of(node)]
        assert whole == list(range(1024))
        keys = pa.array(range(3_000))
        chosen = ranges.route(keys)
        assert [chosen.min(), chosen.max()] == [0, nodes - 1] or nodes > 500
        for other in (2, 5):
            for node in range(other):
                groups = GroupRanges(other).groups_of(node)
                assert [one for one in range(nodes) if set(ranges.groups_of(one)) & set(groups)] == list(
                    ranges.nodes_of(groups)
                )
    assert ranges.route((pa.array([0.0, None]), pa.array(["a", "b"]))).tolist() == (
        ranges.route((pa.array([-0.0, None]), pa.array(["a", "b"]).dictionary_encode())).tolist()
    )
    with pytest.raises(ValueError, match="among 1 to 1024 nodes, not 1025"):
        GroupRanges(1_025)


def test_a_stream_of_an_older_release_goes_on_by_its_hash_until_the_nodes_change(tmp_path, monkeypatch):
    table, stream = rows(150, 2), Stream(tmp_path / "c", two_keys())
    with monkeypatch.context() as older:
        older.setattr(epoch_runner, "by_groups", lambda fragments, nodes: {})
        stream.epoch(table.slice(0, 40), nodes=2)
        stream.epoch(table.slice(40, 20), nodes=2)
    stream.epoch(table.slice(60, 30), nodes=2)
    stream.epoch(table.slice(90, 30), nodes=3)
    stream.epoch(table.slice(120, 30), nodes=3)
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=3)
    manifests = [json.loads(stream.log.path(number).read_bytes()) for number in stream.log.numbers()]
    assert [(one["version"], sorted(one["maps"])) for one in manifests] == [
        *[(1, [])] * 3,
        *[(3, ["2", "3"])] * 3,
    ]
    assert stream.output() == answer(stream.pipeline, table)


def test_a_map_that_this_release_does_not_know_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="a map of the last epoch can't be read"):
        map_of(GroupRanges(3).to_bytes()[:-1])
    other = GroupRanges(3).to_bytes().replace(b'"key_hash":1', b'"key_hash":2')
    with pytest.raises(CheckpointError, match="can't be read"):
        map_of(other)


def spun(row):
    """A tuple of "é0" takes a hundred times as long as one of another item."""
    until = time.perf_counter() + (4e-4 if row.item == "é0" else 4e-6)
    while time.perf_counter() < until:
        pass
    return (row.ts, row.user, row.item)


def spread():
    return od.Pipeline(SCHEMA).map(spun, schema=SCHEMA).key_by("user").scan(seen=od.count())


@pytest.fixture
def sent(monkeypatch):
    """Rows that came to each node of the stateless operators, by epoch."""
    found, plain = [], Frame.mapInArrow

    def watched(frame, function, schema):
        part = getattr(function, "part", None)
        if getattr(part, "number", 0) == 1 and RESULT in frame.partitions[0].column_names:
            found.append([int(rows.column(RESULT).null_count) for rows in frame.partitions])
        return plain(frame, function, schema)

    monkeypatch.setattr(Frame, "mapInArrow", watched)
    return found


def test_posg_learns_once_and_stays(tmp_path, sent):
    attempt = iter("abc")

    def once():
        sent.clear()
        learns_once_and_stays(tmp_path / next(attempt), sent)

    patiently(once)


def learns_once_and_stays(folder, sent):
    table, stream = rows(900, 4), Stream(folder, spread())
    grouping = Balancer(od.POSG(window=200), key="item")
    made, maps = [], []
    for low in (0, 300, 600):
        made.append(stream.epoch(table.slice(low, 300), nodes=2, grouping=grouping))
        maps.append(read_map(str(folder), low // 300, made[-1].maps["1"]))
    assert [(one.learnt, one.rows) for one in maps] == [(False, 300), (True, 600), (True, 600)]
    assert made[1].maps == made[2].maps
    assert sent[:2] == [[150, 150]] * 2
    assert sent[2] == np.bincount(maps[1].router().route(table["item"][600:].combine_chunks())).tolist()
    assert sorted(made[0].maps) == ["1", "2"]
    items = table["item"].combine_chunks()
    estimated = maps[2].times.estimate_many(items)
    times = estimated[items.index("é0").as_py()] / estimated[items.index("é1").as_py()]
    measured(10 < times < 1_000, times)
    assert maps[0].router().route(items).tolist() == [0, 1] * 450  # in turn
    chosen = maps[2].router().route(items)
    assert chosen.tolist() != [0, 1] * 450
    loads = np.bincount(chosen, weights=estimated)
    assert loads.max() / loads.mean() < 1.02
    left = stream.epoch(table.slice(0, 0), nodes=2)  # grouping is left out: keys stay where they are
    assert sorted(left.maps) == ["2"]
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=2)
    assert stream.output() == answer(stream.pipeline, table)


def test_a_deployed_scheduler_spreads_a_pipeline_without_keys(tmp_path):
    times = od.POSG().times()
    times.update_many([f"é{n}" for n in range(4)], np.array([9.0, 1.0, 1.0, 1.0]))
    made = od.Pipeline(SCHEMA).map(spun, schema=SCHEMA).filter(od.col("user").is_not_null())
    table, stream = rows(90, 5), Stream(tmp_path / "c", made)
    given = FrozenPosg(3, times, seed=1)
    grouping = {made.plan.operators[0].name: given}
    for low in (0, 40):
        manifest = stream.epoch(table.slice(low, 40 + low // 4), nodes=3, grouping=grouping)
    assert list(manifest.maps) == ["1"]
    assert read_map(str(tmp_path / "c"), 1, manifest.maps["1"]).to_bytes() == given.to_bytes()
    with pytest.raises(PlanError, match="for 3 nodes can't serve nodes=2"):
        stream.runner(nodes=2, grouping=grouping)
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=2)
    assert stream.output() == answer(made, table)


def test_a_balancer_gives_the_map_that_it_holds_and_the_stream_keeps_it(tmp_path):
    table, stream = users(400, 6), Stream(tmp_path / "c", counts())
    maps, balancer = [], Balancer("dkg", learn="previous")
    for low in (0, 200):
        learner = od.DKG(theta=0.05).learner(2)
        learner.learn(pa.array([low + number % 7 for number in range(500)]))
        balancer._learnt("scan_1", learner)
        maps.append(balancer.maps["scan_1"].to_bytes())
        made = stream.epoch(table.slice(low, 200), nodes=2, grouping=balancer)
        assert base64.b64decode(made.maps["2"]) == maps[0]
    assert maps[0] != maps[1]
    made = stream.epoch(table.slice(0, 0), nodes=3)
    assert base64.b64decode(made.maps["2"]) == GroupRanges(3).to_bytes()
    stream.epoch(table.slice(0, 0), end=FINISH, nodes=3)
    assert stream.output() == answer(stream.pipeline, table)


@pytest.mark.parametrize(
    ("grouping", "said"),
    [
        ("pkg", "has no declared merge"),
        (od.DKG(variant="pkg"), "has no declared merge"),
        (Modulo(2), "Modulo of 'scan_1' can't be kept in a stream's manifests: a stream takes 'hash'"),
        ("posg", "this pipeline begins with 'scan_1', which keeps state"),
        ("round", "grouping is one of 'hash', 'dkg', 'posg', 'pkg', .*; got 'round'"),
    ],
)
def test_groupings_that_a_stream_does_not_take_are_refused(tmp_path, grouping, said):
    with pytest.raises(PlanError, match=said):
        Stream(tmp_path / "c", counts()).runner(nodes=2, grouping=grouping)


def test_bytes_of_a_spread():
    measured = od.POSG().times()
    made = Spread(3, 4, 10).taught(measured, 6)
    assert (made.times, made.rows, made.learnt) == (None, 6, False)
    measured.update_many(["a"] * 4, np.full(4, 2.0))
    made = map_of(made.taught(measured, 4).to_bytes())
    assert (made.instances, made.seed, made.wanted, made.rows, made.learnt) == (3, 4, 10, 10, True)
    assert made.times.to_bytes() == measured.to_bytes()
