"""Streams: every form of a query gives what `run_serial` gives, unsorted, value for value."""

import base64
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import CheckpointError, PlanError, SourceError
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.stored_state import stored
from ordstream.testing import run_serial

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("n", pa.int64())])
SPARK = "ts long, user long, item string, n long"


def rows(numbers):
    numbers = list(numbers)
    user = [None if n % 11 == 0 else (n * n) % 37 for n in numbers]
    return pa.table(
        [[n // 7 for n in numbers], user, [f"é{n % 5}" for n in numbers], numbers], schema=SCHEMA
    )


def steps():
    """Keys that change, sessions that are open across batches, a flush."""
    paid = od.Pipeline(SCHEMA).filter(od.col("user").is_not_null())
    spent = paid.key_by("user").scan(seen=od.count(), latest=od.last("ts"), most=od.max("n"))
    return (
        spent.key_by("seen", "item").lag({"before": "most"}).key_by("user").sessionize("latest", 3, ["most"])
    )


class Source:
    """A folder of files that a stream reads one by one, in order."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.files = spark, folder / "in", 0
        self.folder.mkdir()

    def add(self, table):
        path = self.folder / f"f{self.files:03}.parquet"
        pq.write_table(table, path.with_suffix(".part"))
        os.utime(path.with_suffix(".part"), (1_000_000_000 + self.files,) * 2)
        path.with_suffix(".part").rename(path)
        self.files += 1
        return self

    def frame(self):
        reader = self.spark.readStream.schema(SPARK).option("maxFilesPerTrigger", 1)
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))

    def run(self, checkpoint, **options):
        made = options.pop("pipeline", None) or steps()
        query = od.spark.stream(
            made,
            self.frame(),
            checkpoint=checkpoint,
            trigger="available now",
            **({"order_by": "ts"} | options),
        )
        query.awaitTermination(120)
        assert not query.isActive
        return query


def output(checkpoint, **options):
    return [tuple(row) for row in od.spark.read_output(checkpoint, **options).collect()]


def answer(table, made=None):
    found = run_serial(made or steps(), table)
    assert found.error is None
    return [(*row, *tag) for row, tag in zip(found.rows, found.tags, strict=True)]


@pytest.fixture
def source(spark, tmp_path):
    return Source(spark, tmp_path)


def test_a_stream_is_the_batch_answer_whatever_the_nodes(source, tmp_path):
    table, checkpoint = rows(range(700)), tmp_path / "ç d[0] {e}*?%20#"
    source.add(table.slice(0, 200))
    with pytest.raises(od.PlanError, match=r"it is called as on_epoch\(figures\), and .* can't be"):
        source.run(checkpoint, nodes=1, on_epoch=lambda: None)
    with pytest.warns(RuntimeWarning, match="on_epoch failed at epoch 0: ZeroDivisionError"):
        source.run(checkpoint, nodes=1, on_epoch=lambda _: 1 // 0)
    source.add(table.slice(200, 150)).add(table.slice(350, 50))
    told = []
    query = source.run(checkpoint, nodes=3, grouping="dkg", on_epoch=told.append)
    maps = [one.maps for one in EpochLog(checkpoint).all()]
    assert maps[0] == {}
    assert sorted(maps[1]) == ["2", "3", "4"]
    assert maps[1] == maps[2]
    assert [one["epoch"] for one in told] == [1, 2]
    assert query.lastProgress["ordstream"] == query.epochs[-1] == told[-1]
    assert told[0]["serials"] == [201, 350]
    source.add(table.slice(400))
    query = source.run(checkpoint, nodes=2)
    known = {row["user"]: row["seen"] for row in od.spark.state(checkpoint, "scan_2").collect()}
    assert known[1] == sum(user == 1 for user in table["user"].to_pylist())
    suspended = output(checkpoint, tags=True)
    od.spark.finish(checkpoint)
    expected = answer(table)
    assert output(checkpoint, tags=True) == expected
    assert 0 < len(suspended) < len(expected)
    assert suspended == expected[: len(suspended)]
    assert query.emitted_through.serial == 700
    with pytest.raises(PlanError, match="was finished at epoch 4"):
        source.run(checkpoint)


def test_a_pipeline_may_say_otherwise_of_nulls_and_aggregate_more(source, tmp_path):
    """The second run gives rows to one node of two: the other one's state has a column less."""
    declared = pa.schema([SCHEMA.field(0), SCHEMA.field(1).with_nullable(False), *list(SCHEMA)[2:]])
    table = rows(range(1, 200)).filter(pc.is_valid(rows(range(1, 200))["user"]))
    first, then = table.slice(0, 150), table.slice(150)
    then = then.filter(pc.equal(then["user"], then["user"][0]))

    def made(schema, **more):
        counted = od.Pipeline(schema).key_by("user").scan(seen=od.count(), **more, name="s")
        return counted.select("user", "n", "seen")

    old, new = made(SCHEMA), made(declared, most=od.max("n"))
    for pipeline, part in ((old, first), (new, then)):
        source.add(part)
        sink = od.spark.sinks.ParquetFolder(tmp_path / "out")
        source.run(tmp_path / "c", pipeline=pipeline, nodes=2, order_by=["ts", "n"], sink=sink)
    known = od.spark.state(tmp_path / "c", "s").toArrow()
    assert 0 < known["most"].null_count < known.num_rows == len(set(table["user"].to_pylist()))
    expected = answer(pa.concat_tables([first, then]), old)
    assert output(tmp_path / "c", tags=True) == expected
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert [tuple(row.values()) for one in files for row in pq.read_table(one).to_pylist()] == expected


def test_a_graph_goes_on_in_another_number_of_nodes(source, tmp_path):
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("n") % 2 == 0)
    seen = hit.key_by("user").scan(c=od.count()).select("item", n="c")
    summed = miss.key_by("item", "user").scan(c=od.sum("n")).select("item", n="c")
    graph = od.union(seen, summed).key_by("item").scan(most=od.max("n"))
    table, checkpoint = rows(range(300)), tmp_path / "graph"
    source.add(table.slice(0, 120))
    source.run(checkpoint, nodes=1, pipeline=graph)
    source.add(table.slice(120))
    source.run(checkpoint, nodes=2, pipeline=graph)
    assert output(checkpoint, tags=True) == answer(table, graph)
    source.run(tmp_path / "balanced", nodes=2, balance=od.Mixed(), pipeline=graph)
    assert output(tmp_path / "balanced", tags=True) == answer(table, graph)
    assert EpochLog(tmp_path / "balanced").last().balance


def test_a_clock_goes_on_in_another_number_of_nodes(source, tmp_path):
    """The source's closes windows by user; the one that leaves `reorder` those behind, by their size."""
    made = od.Pipeline(SCHEMA).key_by("user").window(od.tumbling(5), time="ts").aggregate(n=od.count())
    made = made.reorder("end", slack=3, late="drop").key_by("n").window(od.tumbling(10), time="end")
    made = made.aggregate(windows=od.count())
    table, checkpoint = rows(range(600)), tmp_path / "clock"
    source.add(table.slice(0, 203))
    source.run(checkpoint, nodes=1, pipeline=made)
    source.add(table.slice(203, 150)).add(table.slice(353))
    source.run(checkpoint, nodes=2, pipeline=made, grouping="dkg")
    assert [one.latest_time for one in EpochLog(checkpoint).all()] == [28, 50, 85]
    od.spark.finish(checkpoint)
    assert output(checkpoint, tags=True) == answer(table, made)


def test_a_batch_that_spark_gives_again_is_skipped_and_another_one_refused(source, tmp_path):
    table, checkpoint = rows(range(90)), tmp_path / "c"
    source.add(table.slice(0, 40)).add(table.slice(40, 20))
    source.run(checkpoint)
    _forget(checkpoint, 1)
    source.add(table.slice(60))
    query = source.run(checkpoint)
    assert [one["epoch"] for one in query.epochs] == [2]
    od.spark.finish(checkpoint, steps())
    assert output(checkpoint, tags=True) == answer(table)
    # As after a kill between the last commit and its delivery: finishing again delivers.
    given = []
    late_sink = od.spark.sinks.Function(lambda number, rows, key: given.append(number))
    for _ in range(2):
        od.spark.finish(checkpoint, steps(), sink=late_sink)
    assert given == [0, 1, 2, 3]

    again = tmp_path / "again"
    shutil.copytree(checkpoint, again)
    (again / "commits" / "000000000003.json").unlink()
    _forget(again, 2)
    changed = table.slice(60).set_column(3, "n", pa.array(range(30), pa.int64()))
    source.files = 2
    source.add(changed)
    with pytest.raises(CheckpointError, match="micro-batch 2 again, with 30 rows that are not the 30"):
        source.run(again)


def test_a_deployed_map_chooses_the_nodes_of_keys(source, tmp_path):
    table, checkpoint = rows(range(300)), tmp_path / "c"
    learner = od.DKG(theta=0.05).learner(3)
    learner.learn(table["user"])
    deployed = learner.build()
    assert len(deployed.heavy) > 3
    source.add(table.slice(0, 120)).add(table.slice(120, 80))
    source.run(checkpoint, nodes=3, grouping={"scan_2": deployed})
    source.add(table.slice(200))
    source.run(checkpoint, nodes=3)  # by hash, says the caller; no key moves
    manifests = list(EpochLog(checkpoint).all())
    assert [sorted(one.maps) for one in manifests] == [["2", "3", "4"]] * 3
    assert {base64.b64decode(one.maps["2"]) for one in manifests} == {deployed.to_bytes()}
    last = manifests[-1].states["scan_2"]
    assert [part["node"] for part in last] == [0, 1, 2]
    there = stored(str(checkpoint), 2, {"scan_2": last})["scan_2"].parts
    for node, part in enumerate(there):
        keys = pa.Table.from_batches(part.batches()).column(0)
        assert set(deployed.route(keys)) == {node}
    od.spark.finish(checkpoint)
    assert output(checkpoint, tags=True) == answer(table)


def test_frozen_shedding_sheds_what_a_sequential_run_sheds(source, tmp_path):
    model = ExecutionTimes(0.05, 0.1)
    for number, cost in enumerate((1, 1, 2, 4, 12)):
        model.update_many([f"é{number}"] * 50, np.full(50, cost * 1e6))
    named = od.Pipeline(SCHEMA).filter(od.col("user").is_not_null())
    shed = named.shed("30ms", "item", model=model, frozen=od.Frozen(rate=500.0, seed=7), name="overload")
    made = shed.key_by("user").scan(seen=od.count(), latest=od.last("n"))
    table, checkpoint = rows(range(900)), tmp_path / "c"
    source.add(table.slice(0, 250)).add(table.slice(250, 1))
    source.run(checkpoint, pipeline=made)
    source.add(table.slice(251, 300)).add(table.slice(551))
    source.run(checkpoint, pipeline=made)
    od.spark.finish(checkpoint, made)
    expected = run_serial(made, table)
    assert 200 < len(expected.shed) < 700
    assert output(checkpoint, tags=True) == answer(table, made)


def _forget(checkpoint, number):
    """Spark's own commit of a batch was not written."""
    for name in (f"{number}", f".{number}.crc"):
        (checkpoint / "spark" / "commits" / name).unlink()


def test_what_does_not_follow_is_refused(source, tmp_path):
    table, checkpoint = rows(range(60)), tmp_path / "c"
    source.add(table.slice(0, 20)).add(table.slice(20, 20)).add(table.slice(40))
    source.run(checkpoint)
    other = tmp_path / "other"
    shutil.copytree(checkpoint, other)
    shutil.rmtree(other / "spark")
    with pytest.raises(CheckpointError, match="another query of Spark's"):
        source.run(other)
    ahead = tmp_path / "ahead"
    shutil.copytree(checkpoint, ahead)
    (ahead / "commits" / "000000000002.json").unlink()
    source.add(rows(range(60, 70)))
    with pytest.raises(
        CheckpointError, match=r"gives micro-batch 3, and the last committed epoch is 1.*to=1"
    ):
        source.run(ahead)
    assert od.spark.rewind(ahead, to=1) == 1
    query = source.run(ahead)
    assert [one["epoch"] for one in query.epochs] == [2, 3]
    od.spark.finish(ahead)
    assert output(ahead, tags=True) == answer(rows(range(70)))
    with pytest.raises(CheckpointError, match="ordered by ts, not by user"):
        source.run(checkpoint, order_by="user")
    with pytest.raises(CheckpointError, match="output has the columns"):
        source.run(checkpoint, pipeline=od.Pipeline(SCHEMA).key_by("user").count("c"))


def test_of_two_drivers_on_one_checkpoint_one_loses_and_stops(source, tmp_path, monkeypatch):
    table, checkpoint = rows(range(80)), tmp_path / "c"
    source.add(table.slice(0, 40))
    source.run(checkpoint)
    twin = tmp_path / "twin"
    shutil.copytree(checkpoint, twin)
    source.add(table.slice(40))
    source.run(twin)  # the other driver, which commits epoch 1
    publish = EpochLog.publish

    def overtaken(log, manifest):
        shutil.copytree(twin, log.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("spark"))
        publish(log, manifest)

    with monkeypatch.context() as patched:
        patched.setattr(EpochLog, "publish", overtaken)
        with pytest.raises(CheckpointError, match="another driver has committed epoch 1 of this stream"):
            source.run(checkpoint)
    source.run(checkpoint)
    od.spark.finish(checkpoint)
    assert output(checkpoint, tags=True) == answer(table)


def test_rows_wait_for_slack_and_late_ones_go_where_the_user_said(source, tmp_path):
    table = rows(range(300))
    order = [n + (13 if n % 5 == 0 else 0) for n in range(300)]  # some come up to 13 rows, 2 units, late
    shuffled = table.take(sorted(range(300), key=lambda n: (order[n], n)))
    for low in range(0, 300, 60):
        source.add(shuffled.slice(low, 60))
    checkpoint = tmp_path / "slack"
    query = source.run(checkpoint, slack=3)
    assert sum(one["waiting"] for one in query.epochs) > 0
    od.spark.finish(checkpoint)
    # ties come as they came: the answer to the rows in the order of their serials
    order = sorted(range(300), key=lambda n: (shuffled["ts"][n].as_py(), n))
    assert output(checkpoint, tags=True) == answer(shuffled.take(order))

    with pytest.raises(SourceError, match=r"came too late: ts \d+ comes before ts \d+"):
        source.run(tmp_path / "raise")
    dropped = source.run(tmp_path / "drop", late="drop")
    aside = source.run(tmp_path / "aside", late="side_output")
    count = sum(one["late"] for one in dropped.epochs)
    assert 0 < count == sum(one["late"] for one in aside.epochs)
    put_aside = od.spark.read_output(tmp_path / "aside", late=True)
    assert put_aside.dtypes == [("ts", "bigint"), ("user", "bigint"), ("item", "string"), ("n", "bigint")]
    late, latest = [], -1
    for low in range(0, 300, 60):
        batch = shuffled.slice(low, 60).to_pylist()
        late += [tuple(row.values()) for row in batch if row["ts"] < latest]
        latest = max(latest, *(row["ts"] for row in batch))
    assert sorted(map(tuple, put_aside.collect()), key=str) == sorted(late, key=str)
    assert len(late) == count
    with pytest.raises(PlanError, match="late rows have no tags"):
        od.spark.read_output(tmp_path / "aside", late=True, tags=True)
    assert output(tmp_path / "aside", tags=True) == output(tmp_path / "drop", tags=True)


def test_after_a_stop_the_stream_goes_on(source, tmp_path):
    table, checkpoint = rows(range(60)), tmp_path / "c"
    source.add(table.slice(0, 30))
    query = od.spark.stream(steps(), source.frame(), order_by="ts", checkpoint=checkpoint)
    query.processAllAvailable()
    assert query.isActive
    with pytest.raises(PlanError, match="still runs"):
        od.spark.finish(checkpoint)
    source.add(table.slice(30, 20))
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    assert query.awaitTermination() is True
    source.add(table.slice(50))
    source.run(checkpoint)
    od.spark.finish(checkpoint)
    assert output(checkpoint, tags=True) == answer(table)
