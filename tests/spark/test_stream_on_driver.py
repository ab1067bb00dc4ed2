"""Small micro-batches in the driver: what is committed is what tasks commit, value for value, in turn with
tasks and with another number of nodes.
"""

import datetime
import decimal
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import PlanError, SourceError
from ordstream.spark.streaming import epoch_runner
from ordstream.spark.streaming import on_driver as small_batches
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.micro_batch import FETCHING_TASKS, MicroBatch, Sorting
from ordstream.spark.streaming.row_order import unpacked
from ordstream.testing import run_serial

pytestmark = pytest.mark.spark

UTC = datetime.UTC
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "user": pa.int64(),
        "item": pa.string(),
        "price": pa.decimal128(9, 2),
        "weight": pa.float64(),
        "day": pa.date32(),
        "local": pa.timestamp("us"),
        "flag": pa.bool_(),
        "raw": pa.binary(),
        "few": pa.list_(pa.int64()),
    }
)
SPARK = (
    "ts timestamp, user long, item string, price decimal(9,2), weight double, day date, local timestamp_ntz,"
    " flag boolean, raw binary, few array<long>"
)
FILES = (40, 1, 90, 25, 20, 30)  # rows of each
MOST = 50


def rows(count):
    """Ties in `ts`; a row in five comes some seconds late."""
    found = []
    for n in range(count):
        at = datetime.datetime(2024, 3, 31, 0, 59, 50, tzinfo=UTC)  # clocks are put forward somewhere
        at += datetime.timedelta(seconds=n // 4 - (3 if n % 5 == 0 else 0))
        weight = [0.5, float("nan"), -0.0, None, 2.5][n % 5]
        user = None if n % 11 == 0 else (n * n) % 13
        few = None if n % 7 == 0 else [n, -n][: n % 3]
        found.append(
            (at, user, f"é{n % 5}", decimal.Decimal(n) / 100, weight, at.date(), at.replace(tzinfo=None))
            + (n % 3 == 0, bytes([n % 256]) if n % 4 else None, few)
        )
    return pa.Table.from_arrays(
        [pa.array([row[k] for row in found], kind.type) for k, kind in enumerate(SCHEMA)], schema=SCHEMA
    )


def steps():
    spent = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count(), paid=od.sum("price"))
    return spent.key_by("item").lag({"before": "paid", "then": "ts", "had": "few"})


def written(folder, table):
    """A file for each micro-batch."""
    folder.mkdir()
    at = 0
    for number, count in enumerate(FILES):
        path = folder / f"f{number:03}.parquet"
        pq.write_table(table.slice(at, count), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
        at += count
    return folder


def run(spark, folder, checkpoint, **options):
    frame = spark.readStream.schema(SPARK).option("maxFilesPerTrigger", 1).parquet(str(folder))
    query = od.spark.stream(
        options.pop("pipeline", None) or steps(),
        frame,
        checkpoint=checkpoint,
        trigger="available now",
        **({"order_by": "ts", "slack": "3s"} | options),
    )
    query.awaitTermination(120)
    return query


def manifests(checkpoint):
    return list(EpochLog(checkpoint).all())


def content(checkpoint):
    """What each epoch says, but for names, times and where it ran; and the rows of its files."""
    found = []
    for one in manifests(checkpoint):
        tables = [pq.ParquetFile(checkpoint / "output" / file["file"]).read() for file in one.output]
        if one.number == len(FILES) - 1:  # older ones are gone
            tables += [pq.ParquetFile(checkpoint / "waiting" / file["file"]).read() for file in one.waiting]
        last = one.ingress["last"] and unpacked(one.ingress["last"])
        ingress = (last and (last.schema, last.to_pylist()), one.ingress["latest"])
        said = (one.serials, one.emitted_through, one.input, ingress, one.late, one.state_rows)
        found.append((said, [table.schema for table in tables], [repr(t.to_pylist()) for t in tables]))
    return found


@pytest.fixture
def elsewhere(spark):
    """A session in whose time zone an hour is missing."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


def test_the_driver_commits_what_tasks_commit(elsewhere, tmp_path):
    table = rows(sum(FILES))
    folder = written(tmp_path / "in", table)
    in_tasks, on_driver = tmp_path / "tasks", tmp_path / "driver"
    assert not any(one["on_driver"] for one in run(elsewhere, folder, in_tasks, driver_rows=0).epochs)
    query = run(elsewhere, folder, on_driver, driver_rows=MOST)
    # not the first one, none of more rows, none behind such a one
    assert [one["on_driver"] for one in query.epochs] == [False, True, False, False, True, True]
    assert [one.figures["on_driver"] for one in manifests(on_driver)] == [
        one["on_driver"] for one in query.epochs
    ]
    assert content(on_driver) == content(in_tasks)
    # Spark gives an epoch of the driver again: tasks see the same rows
    for name in (f"{len(FILES) - 1}", f".{len(FILES) - 1}.crc"):
        (on_driver / "spark" / "commits" / name).unlink()
    assert run(elsewhere, folder, on_driver).exception() is None
    od.spark.finish(on_driver)
    ordered = table.take(pa.array(sorted(range(len(table)), key=lambda n: (table["ts"][n].as_py(), n))))
    expected = run_serial(steps(), ordered)
    found = od.spark.read_output(on_driver, tags=True).toArrow().to_pylist()
    wanted = [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]
    assert repr([tuple(row.values()) for row in found]) == repr(wanted)


def test_driver_and_nodes_in_turn(spark, tmp_path):
    table = rows(sum(FILES))
    folder, later = written(tmp_path / "in", table), tmp_path / "later"
    later.mkdir()
    for path in sorted(folder.iterdir())[2:]:
        shutil.move(path, later / path.name)
    checkpoint = tmp_path / "c"
    run(spark, folder, checkpoint, nodes=3)
    for path in sorted(later.iterdir())[:2]:
        shutil.move(path, folder / path.name)
    run(spark, folder, checkpoint, driver_rows=1_000)
    for path in sorted(later.iterdir()):
        shutil.move(path, folder / path.name)
    run(spark, folder, checkpoint, nodes=2, driver_rows=1_000)  # more nodes than one: in tasks
    od.spark.finish(checkpoint)
    where = [one.figures["on_driver"] for one in manifests(checkpoint)]
    assert where == [False, False, True, True, False, False, False]
    ordered = table.take(pa.array(sorted(range(len(table)), key=lambda n: (table["ts"][n].as_py(), n))))
    expected = run_serial(steps(), ordered)
    found = od.spark.read_output(checkpoint).toArrow().to_pylist()
    assert repr([tuple(row.values()) for row in found]) == repr([tuple(row) for row in expected.rows])


def test_what_fails_in_the_driver_runs_in_a_task(spark, tmp_path, monkeypatch):
    folder = written(tmp_path / "in", rows(sum(FILES)))
    plain, failures = epoch_runner.run_here, []

    def fails(function, batches):
        if function.begin.number == 2 and not failures:
            failures.append(list(plain(function, batches)))  # its files are there, and nobody names them
            raise MemoryError("no room")
        return plain(function, batches)

    monkeypatch.setattr(epoch_runner, "run_here", fails)
    with pytest.warns(RuntimeWarning, match=r"epoch 2 failed in the driver \(MemoryError\('no room'\)\)"):
        query = run(spark, folder, tmp_path / "c", driver_rows=1_000)
    assert [one["on_driver"] for one in query.epochs] == [False, True, False, True, True, True]
    lost = [one["file"] for one in failures[0][0]["output"]]
    named = [one["file"] for epoch in manifests(tmp_path / "c") for one in epoch.output]
    assert lost
    assert not set(lost) & set(named)
    # an error of the rows is the task's, in its words
    with pytest.raises(SourceError, match=r"row\(s\) of this micro-batch came too late: ts "):
        run(spark, folder, tmp_path / "late", driver_rows=1_000, slack=None)


PLAIN = [name for name in SCHEMA.names if name != "few"]


@pytest.mark.parametrize("partitions", [1, 3, 9])
@pytest.mark.parametrize("first", [*PLAIN, "few"])
@pytest.mark.thin(12)
def test_rows_are_sorted_here_as_spark_sorts_them(elsewhere, first, partitions):
    """By each type, and behind it by all others; lists, which Arrow does not compare, by Spark."""
    table = rows(97).append_column("n", pa.array(range(97)))
    table = table.set_column(
        4, "weight", pa.array([[1.5, float("nan"), -0.0, None, 0.0][n % 5] for n in range(97)])
    )
    frame = elsewhere.createDataFrame(table).repartition(partitions)
    keys = [first, *(name for name in PLAIN if name != first), "n"]
    sorting = Sorting.of(frame, keys, table.schema.names, one_slot=False)
    assert sorting.alike == (first != "few")
    batch = MicroBatch(frame, sorting)
    wanted = [row.n for row in batch.in_order().collect()]
    found = pa.Table.from_batches(batch.fetched(97))
    assert found["n"].to_pylist() == wanted
    assert found.schema.names == table.schema.names
    assert batch.fetched(96) is None


def test_of_too_many_rows_few_are_fetched(spark, monkeypatch):
    frame = spark.range(0, 10_000, 1, 50)
    batch = MicroBatch(frame, Sorting.of(frame, ("id",), ("id",), one_slot=False))
    taken = []
    plain = type(frame)._collect_as_arrow

    def collect(self):
        taken.append(plain(self))
        return taken[-1]

    monkeypatch.setattr(type(frame), "_collect_as_arrow", collect)
    assert batch.fetched(20) is None
    assert sum(one.num_rows for one in taken[0]) <= FETCHING_TASKS * 21
    assert batch.fetched(10_000)[0].column(0).to_pylist() == list(range(10_000))
    nothing = MicroBatch(frame.where("id < 0"), batch.sorting)
    assert nothing.fetched(5) == []


def twice(row):
    return (*row[:-1], row.paid and 2 * row.paid)


def test_by_default_what_is_small_runs_in_the_driver_unless_it_is_the_users_code(
    spark, tmp_path, monkeypatch
):
    folder = written(tmp_path / "in", rows(sum(FILES)))

    def where(name, pipeline=None, **options):
        query = run(spark, folder, tmp_path / name, pipeline=pipeline, **options)
        assert all(one["input_bytes"] > 0 for one in query.epochs)
        return [one["on_driver"] for one in query.epochs], query.epochs

    all_but_first = [False] + [True] * (len(FILES) - 1)
    (found, epochs) = where("plain")
    assert found == all_but_first
    spent = od.Pipeline(SCHEMA).key_by("user").scan(paid=od.sum("price"))
    mapped = spent.map(twice, schema=spent.schema)
    nowhere = [False] * len(FILES)
    assert where("mapped", mapped)[0] == nowhere
    assert where("asked", mapped, driver_rows=1_000)[0] == all_but_first
    assert where("threads", workers=1)[0] == where("never", driver_rows=0)[0] == nowhere
    monkeypatch.setattr(small_batches, "AUTO_ROWS", 50)
    assert where("fewer")[0] == [False, True, False, False, True, True]
    monkeypatch.setattr(small_batches, "AUTO_ROWS", 1_000)
    largest = max(one["input_bytes"] + one["state_bytes"] for one in epochs[:-1])
    monkeypatch.setattr(small_batches, "AUTO_SIZE", largest - 1)
    found, _ = where("smaller")
    assert found.count(False) == 2  # the first one, and the one behind the largest


def test_a_wrong_driver_rows_is_refused(spark, tmp_path):
    folder = written(tmp_path / "in", rows(sum(FILES)))
    for wrong in (-1, True, 1.5, "all", None, 10_000_001):
        with pytest.raises(PlanError, match="driver_rows is 'auto' or a whole number from 0 to 10,000,000"):
            run(spark, folder, tmp_path / "c", driver_rows=wrong)
