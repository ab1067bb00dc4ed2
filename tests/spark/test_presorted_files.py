"""Rows that are said to be in order, in many files, which Spark puts into partitions by their size: the
order is (file, row). Against `run_serial`.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark_tools import rows_of

import ordstream as od
from ordstream.errors import PlanError
from ordstream.reference.run_serial import run_serial

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from ordstream.spark import apply

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("n", pa.int64())])
ROWS, FILES, NODES = 6_000, 30, 3
SOURCE = od.Pipeline(SCHEMA)
JOBS = {
    "a key first": SOURCE.key_by("user").scan(seen=od.count(), latest=od.last("n")),
    "no state": SOURCE.filter(od.col("n") % 7 != 0),
    "two keys": SOURCE.filter(od.col("n") % 5 != 0).key_by("user").scan(seen=od.count())
    .key_by("seen").scan(both=od.sum("n")),
    "functions": SOURCE.flat_map(lambda row: [tuple(row)] * (row.n % 3), schema=SCHEMA)
    .key_by("user").scan(seen=od.count()),
    "one state": SOURCE.scan(seen=od.count()),
    "the end": SOURCE.key_by("user").sessionize("ts", 3, ["n"]),
    "a clock": SOURCE.key_by("user").window(od.tumbling(50), time="ts").aggregate(seen=od.count()),
}  # fmt: skip


def table_of(descending=False):
    """Rows whose ts has ties across files."""
    random = np.random.default_rng(7)
    ts = np.sort(random.integers(0, 400, ROWS))
    return pa.table(
        [ts[::-1] if descending else ts, random.integers(0, 40, ROWS), random.permutation(ROWS)],
        schema=SCHEMA,
    )


def write(folder, table, cuts, name):
    for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
        path = folder / name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(low, high - low), path, row_group_size=150)


@pytest.fixture
def packed(spark):
    """Several files, or several pieces of one, in a partition."""
    settings = {"openCostInBytes": "1000", "maxPartitionBytes": "9000"}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.files.{name}", value)
    yield spark
    for name in settings:
        spark.conf.unset(f"spark.sql.files.{name}")


@pytest.fixture(scope="module")
def cuts():
    return np.sort(np.random.default_rng(3).choice(np.arange(1, ROWS), FILES - 1, replace=False)).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cuts):
    found = tmp_path_factory.mktemp("files")
    write(found, table_of(), cuts, "part-{:05d}-x.parquet".format)
    return str(found)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.thin(3)
def test_many_files_in_order_are_taken_in_the_order_of_their_names(packed, folder, job):
    frame, expected = packed.read.parquet(folder), run_serial(JOBS[job], table_of())
    assert 1 < frame.rdd.getNumPartitions() < FILES
    for nodes in (1, NODES):
        result = apply(JOBS[job], frame, order_by="ts", presorted=True, nodes=nodes, tags=True)
        found = result.toArrow()
        assert rows_of(found.drop(["_serial", "_index"])) == rows_of(expected.table)
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
    for order in ("none",) if JOBS[job] is JOBS["no state"] or job == "one state" else ("none", "by_key"):
        found = apply(JOBS[job], frame, order_by="ts", presorted=True, nodes=NODES, order=order).toArrow()
        assert sorted(map(repr, rows_of(found))) == sorted(map(repr, rows_of(expected.table)))


def test_their_rows_are_neither_sorted_nor_moved_for_their_serials(packed, folder):
    frame = packed.read.parquet(folder)
    plan = apply(JOBS["a key first"], frame, order_by="ts", presorted=True, nodes=NODES)
    text = plan._jdf.queryExecution().executedPlan().toString()
    # to the nodes, and into the order of the result; the pieces of files, a row each, meet in one task
    assert text.count("Exchange RoundRobin") + text.count("Exchange SinglePartition") == 1
    assert text.count("Exchange") - text.count("BroadcastExchange") == 3
    assert "rangepartitioning" not in text


def test_files_that_were_filtered_in_folders_and_descending(packed, tmp_path, cuts):
    table, job = table_of(descending=True), JOBS["two keys"]
    write(tmp_path, table, cuts, lambda number: f"day={number // 9}/{number % 9}.parquet")
    frame = packed.read.parquet(str(tmp_path)).where((F.col("n") % 3 != 0) & (F.col("ts") < 300))
    kept = [row["n"] % 3 != 0 and row["ts"] < 300 for row in table.to_pylist()]
    expected = rows_of(run_serial(job, table.filter(pa.array(kept))).table)
    for order_by in (F.desc("ts"), ()):  # (): the order that the source has
        found = apply(job, frame, order_by=order_by, presorted=True, nodes=NODES).toArrow()
        assert rows_of(found) == expected


@pytest.mark.parametrize("job", ["a key first", "no state"])
@pytest.mark.thin(1)
def test_rows_out_of_order_are_named_with_their_files(packed, tmp_path, job):
    table = pa.table([list(range(ROWS))] * 3, schema=SCHEMA)
    write(tmp_path / "borders", table, [100, 5_000], lambda number: "bac"[number] + ".parquet")
    ts = pa.array([5 if n == 3_007 else n for n in range(ROWS)])
    write(tmp_path / "inside", table.set_column(0, "ts", ts), [100, 5_000], "{}.parquet".format)
    text = {
        "borders": r"row 1 of the file \S*b.parquet comes before row 4900 of the file \S*a.parquet in the",
        "inside": r"row 2908 of the file \S*1.parquet comes before row 2907 of it in the order ts: pres",
    }
    for name, wrong in text.items():
        frame = packed.read.parquet(str(tmp_path / name))
        with pytest.raises(Exception, match=wrong):
            apply(JOBS[job], frame, order_by="ts", presorted=True, nodes=NODES).collect()


@pytest.mark.parametrize("scan", ["csv", ""])  # Spark's own readers, and those of its second version
def test_files_that_tell_no_place_have_no_order_of_their_own(packed, spark, tmp_path, scan):
    """The larger file's partition would come first."""
    spark.conf.set("spark.sql.sources.useV1SourceList", scan)
    try:
        for name, rows in (("a", range(10)), ("b", range(10, 5_000))):
            (tmp_path / f"{name}.csv").write_text("".join(f"{n},1,{n}\n" for n in rows))
        frame = spark.read.schema("ts long, user long, n long").csv(str(tmp_path)).where("n != 3")
        job = JOBS["a key first"]
        for rows in (frame, frame.coalesce(1)):
            with pytest.raises(PlanError, match=r"by their size.*name the columns"):
                apply(job, rows.select("*"), order_by=(), presorted=True, nodes=NODES)
        seen = list(range(1, 5_000))
        whole = spark.read.schema(frame.schema).csv(str(tmp_path / "b.csv"))
        for found in (
            apply(job, frame, order_by="ts", nodes=NODES),
            apply(job, frame.orderBy("ts"), order_by=(), presorted=True, nodes=NODES),
        ):
            assert [row.seen for row in found.collect()] == seen[:4_999]
        found = apply(job, whole, order_by=(), presorted=True, nodes=NODES)
        assert [row.seen for row in found.collect()] == seen[:4_990]
    finally:
        spark.conf.unset("spark.sql.sources.useV1SourceList")
