"""A pipeline that changes while its stream rests: its operators lie in other fragments, or are routed by
other columns, and every key goes on with its state.
"""

import pyarrow as pa
import pytest

import ordstream as od

pytest.importorskip("pyspark")
from epoch_frames import SCHEMA, Stream, rows

from ordstream.spark.streaming.epoch_functions import FINISH
from ordstream.spark.streaming.stream import _check_last

pytestmark = pytest.mark.usefixtures("tasks")


def of_users(p):
    return p.key_by("user").scan(many=od.count(), name="users")


def of_both(p):
    return p.key_by("user", "item").scan(n=od.count(), name="both")


def of_items(p):
    return p.key_by("item").scan(seen=od.count(), name="items")


def of_all(p):
    return p.scan(whole=od.count(), name="all")


CHANGES = {
    "a cut in front": ([of_users], [of_items, of_users]),
    "by a part of the key": ([of_both], [of_users, of_both]),
    "by the whole key again": ([of_users, of_both], [of_both, of_users]),
    "in another order": ([of_users, of_items], [of_items, of_users]),
    "all rows in front": ([of_users], [of_all, of_users]),
    "all rows behind": ([of_both], [of_both, of_all]),
    "columns that others computed": ([of_both, of_users], [of_users, of_items, of_both]),
}
WAYS = ("key groups", "a map", "keys that move")


def pipeline(steps):
    made = od.Pipeline(SCHEMA)
    for step in steps:
        made = step(made)
    return made.select("ts", "user", "item", found=made.schema.names[-1])


def options(way, made):
    if way == "a map":
        learner = od.DKG(theta=0.05).learner(3)
        learner.learn(pa.array([*range(9), *[4] * 9]))
        return {"grouping": {next(one.name for one in made.plan.operators if one.key): learner.build()}}
    return {"policy": od.Mixed(theta=0.08, table=20)} if way == "keys that move" else {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.thin(7)
def test_each_key_goes_on_with_its_state(tmp_path, change, way):
    first, second = map(pipeline, CHANGES[change])
    table, stream = rows(160, 7), Stream(tmp_path / "c", first)
    for start in (0, 40):
        stream.epoch(table.slice(start, 40), run="one", nodes=3, **options(way, first))
    stream.pipeline = second
    for start in (80, 120):
        stream.epoch(table.slice(start, 40), run="two", nodes=3, **options(way, second))
    stream.epoch(table.slice(0, 0), FINISH, run="three", nodes=3)
    ran = first.run(table.slice(0, 80), end="suspend")
    went_on = second.run(table.slice(80), restore=ran.snapshot)
    wanted = [tuple(row.values()) for one in (ran, went_on) for row in one.table.to_pylist()]
    assert [row[:-2] for row in stream.output()] == wanted


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_part_to_which_no_row_has_come_is_not_new(tmp_path, nodes):
    """Its operators are known to the manifest; nobody asks which of two like ones was put in front."""
    late = od.Pipeline(SCHEMA).key_by("user").lag({"before": "ts"}).filter(od.col("ts") > 9)
    behind = late.select("ts", "user", "item").key_by("item").scan(seen=od.count())
    made = behind.select("ts", "user", "item").key_by("user").lag({"before": "ts"})
    table, stream = rows(60, 7), Stream(tmp_path / "c", made)
    stream.epoch(table.slice(0, 15), run="one", nodes=nodes)
    manifest = _check_last(stream.log, made, {})
    assert [bool(manifest.states[name]) for name in ("lag_1", "scan_4", "lag_6")] == [
        True,
        nodes == 1,
        nodes == 1,
    ]
    stream.epoch(table.slice(15), run="two", nodes=nodes)
    assert [row[:-2] for row in stream.output()] == [
        tuple(row.values()) for row in made.run(table).table.to_pylist()
    ]


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_operator_that_is_new_is_asked_for_its_name(tmp_path, nodes):
    def of_user(pipeline):
        return pipeline.key_by("user").lag({"before": "ts"}).select("ts", "user", "item")

    stream = Stream(tmp_path / "c", of_user(od.Pipeline(SCHEMA)))
    stream.epoch(rows(20, 7), run="one", nodes=nodes)
    with pytest.raises(od.CheckpointError, match="has a stored state that fits 'lag_3' as well"):
        _check_last(stream.log, of_user(of_user(od.Pipeline(SCHEMA))), {})
