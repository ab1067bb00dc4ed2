"""The total order of a result whose rows got no serials: the output of one node, over many partitions."""

import datetime as dt
import random
from decimal import Decimal

import pytest

import ordstream as od

pytest.importorskip("pyspark")

import pyarrow.parquet as pq
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from ordstream.spark import apply
from ordstream.spark.in_files import has_own_places

pytestmark = pytest.mark.spark

ROWS = 900
KINDS = (
    "k int, n long, small int, d date, t timestamp, w timestamp_ntz, x double, s string, b binary, "
    "m decimal(20, 2), l array<int>"
)
ZERO = dt.datetime(2024, 3, 30, 22)  # an hour of the next night is missing in Berlin

ENDS = (dt.datetime.min, dt.datetime.max)


def rows(seed, count=ROWS):
    """Values in ties, nulls and extremes among them; `n` tells rows apart, but for every fourth."""
    drawn = random.Random(seed)
    for n in range(count):
        yield (
            drawn.choice([None, *range(7)]),
            n // 4 * 4 if n % 4 < 2 else n,
            drawn.choice([None, 0, 0, 1, -(1 << 31), (1 << 31) - 1]),
            drawn.choice(
                [None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 1, drawn.randint(1, 28))]
            ),
            drawn.choice([None, ZERO + dt.timedelta(minutes=drawn.randint(0, 400))]),
            drawn.choice([None, *ENDS, ZERO + dt.timedelta(minutes=drawn.randint(0, 400))]),
            drawn.choice([None, float("nan"), -0.0, 0.0, drawn.random()]),
            drawn.choice([None, "", "é", "a" * drawn.randint(0, 40), str(n % 5)]),
            drawn.choice([None, b"", bytes([drawn.randint(0, 255)])]),
            drawn.choice([None, Decimal(drawn.randint(-9, 9)) / 4]),
            drawn.choice([None, [], [1, None]]),
        )


@pytest.fixture(scope="module")
def frames(spark, tmp_path_factory):
    """Of files that tell a row's place, of rows that share places, and of rows that have none."""
    folder = tmp_path_factory.mktemp("rows")
    frame = spark.createDataFrame(list(rows(0)), KINDS)
    frame.repartition(3).write.mode("overwrite").parquet(str(folder / "files"))
    files = spark.read.parquet(str(folder / "files"))
    twice = files.withColumn("more", F.explode(F.array(F.lit(1), F.lit(0), F.lit(1))))
    twice = twice.withColumn("n", F.col("n") + F.col("more")).drop("more", "l", "s", "b")
    assert has_own_places(files.where("n > 3").select("*"))
    assert not has_own_places(twice)
    assert not has_own_places(files.union(files))
    memory = frame.select("k", "n", "small", "d", "t", "w", "x", "m").repartition(4)
    # which take no part in an order, or too much room on the way
    arrays, texts = (
        twice.withColumn("l", F.array("small")),
        frame.select("k", "s", "n", "small").repartition(4),
    )
    empty = files.where("n < 0")
    return {
        "files": files,
        "shared places": twice,
        "memory": memory,
        "empty": empty,
        "arrays": arrays,
        "texts": texts,
    }


@pytest.fixture(autouse=True)
def settings(spark):
    given = {
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.session.timeZone": "Europe/Berlin",
    }
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


PIPELINES = {
    "running values": lambda source: source.key_by("k").scan(seen=od.count(), least=od.min("n")),
    "rows before": lambda source: source.key_by("k").lag("n", 2),
    "rows that others cause": lambda source: source.key_by("k").lead("n"),
    "few": lambda source: source.key_by("k").scan(seen=od.count()).filter(od.col("seen") % 40 == 1),
    "none": lambda source: source.key_by("k").scan(seen=od.count()).filter(od.col("seen") < 0),
    "in front": lambda source: source.filter(od.col("n") % 3 != 0).drop("d").key_by("k", "small").count("c"),
    "sessions": lambda source: source.with_columns(at=od.lit(0)).key_by("k").sessionize("at", 1, ["n"]),
    "heads": lambda source: source.key_by("k").head(9),
    "tails": lambda source: source.key_by("k").tail(3),
    "the end": lambda source: source.key_by("k").aggregate(total=od.sum("n"), emit="final"),
    "both ways": lambda source: od.union(*source.branch(od.col("n") % 2 == 0)).key_by("k").count("c"),
}  # fmt: skip
ORDERS = {
    "a number": lambda: ["n"],
    "ties": lambda: ["small"],
    "descending": lambda: [F.desc("small"), F.asc_nulls_last("n")],
    "nulls last": lambda: [F.desc_nulls_first("small"), F.desc("n")],
    "dates": lambda: [F.desc("d")],
    "times": lambda: ["t", F.desc("x"), "m"],
    "wall clocks": lambda: [F.col("w").desc_nulls_first(), "m"],
    "computed": lambda: [F.col("n") % 10, F.desc("m")],
    "texts": lambda: ["s", "n"],
    "doubles": lambda: ["x"],
}
FRAMES = ("files", "shared places", "memory", "empty")
CASES = [
    *(("running values", order, frame) for order in ORDERS for frame in FRAMES[:3] if order != "texts"),
    ("running values", "texts", "files"),
    *((pipeline, "ties", frame) for pipeline in PIPELINES for frame in FRAMES),
    *((pipeline, "times", "files") for pipeline in PIPELINES),
    ("running values", "ties", "arrays"),
    ("sessions", "ties", "texts"),
]


@pytest.mark.parametrize(("pipeline", "order", "frame"), sorted({*CASES}))
@pytest.mark.thin(7)
def test_the_rows_are_those_of_one_node_in_its_order(frames, pipeline, order, frame):
    source, order_by = frames[frame], ORDERS[order]()
    steps = PIPELINES[pipeline](od.Pipeline(source))
    expected = apply(steps, source, order_by=order_by, nodes=1).toArrow()
    found = apply(steps, source, order_by=order_by, nodes=3)
    assert list(map(repr, found.toArrow().to_pylist())) == list(map(repr, expected.to_pylist()))  # NaN too
    plan = found._jdf.queryExecution().executedPlan().toString()
    numbered = order in ("texts", "doubles", "computed") or frame in ("arrays", "texts")
    assert ("AttachDistributedSequence" in plan or "ZipWithIndex" in plan) == numbered


WRITTEN = {
    "one key": (lambda source: source.key_by("k").count("c"), {}),
    "two keys": (lambda source: source.key_by("k").scan(c=od.count()).key_by("small").lag("c"), {}),
    "a function in front": (lambda source: source.filter(lambda x: x["n"] > 9).key_by("k").count("c"), {}),
    "what the end causes": (lambda source: source.key_by("k").lead("n"), {}),
    "that, and serials": (lambda source: source.key_by("k").lead("n").key_by("small").lag("n"), {}),
    "what has tags": (lambda source: source.key_by("k").count("c"), {"tags": True}),
    "one node": (lambda source: source.key_by("k").count("c"), {"nodes": 1}),
}  # fmt: skip


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("case", WRITTEN)
@pytest.mark.thin(3)
def test_a_partitioned_write_keeps_the_order_in_its_files(spark, frames, tmp_path, case, adaptive):
    steps, options = WRITTEN[case]
    source = frames["files"].select("k", "n", "small")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        found = apply(steps(od.Pipeline(source)), source, order_by=["small", "n"], **{"nodes": 3} | options)
        found = found.withColumn("part", F.coalesce("k", F.lit(0)) % 2)
        expected = found.toArrow().to_pylist()
        found.write.partitionBy("part").parquet(str(tmp_path / "rows"))
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    columns = [name for name in found.columns if name != "part"]
    for part in (0, 1):
        files = sorted((tmp_path / "rows" / f"part={part}").glob("*.parquet"))
        tables = [pq.ParquetFile(file).read().select(columns).to_pylist() for file in files]
        assert len(files) > 1 or options.get("nodes") == 1
        wanted = [{name: row[name] for name in columns} for row in expected if row["part"] == part]
        assert [row for table in tables for row in table] == wanted


def test_no_partition_has_most_of_the_rows_however_many_tie(frames):
    for order in ("a number", "ties", "descending", "nulls last", "dates", "computed", "texts"):
        steps = PIPELINES["running values"](od.Pipeline(frames["files"]))
        found = apply(steps, frames["files"], order_by=ORDERS[order](), nodes=3)
        sizes = [len(part) for part in found.rdd.glom().collect()]
        assert sum(sizes) == ROWS
        assert len(sizes) == 5
        assert max(sizes) < ROWS / 2, (order, sizes)


def test_the_ends_of_the_calendar_are_times_to_cut_at(spark):
    ends = [
        f"TIMESTAMP_NTZ'{text}'"
        for text in ("-290308-12-21 19:59:05.224192", "+294247-01-10 04:00:54.775807")
    ]
    frame = spark.sql(
        f"SELECT element_at(array({', '.join(ends)}), 1 + cast(id % 2 AS int)) w, id n FROM range(400)"
    )
    frame = frame.repartition(3)
    steps = od.Pipeline(frame).key_by("n").count("seen")
    found = apply(steps, frame, order_by="w", nodes=3).select("n").collect()
    assert [row.n for row in found] == [*range(0, 400, 2), *range(1, 400, 2)]


def test_an_error_behind_a_shuffle_that_is_read_twice_is_told_without_java_s_trace(spark, tmp_path):
    """What the end causes and the rest are two readings, which both fail: Spark has one error for them."""
    rows = spark.range(200).selectExpr("id", "id % 7 k")
    kept = od.Pipeline(rows).key_by("k").lead("id").filter(lambda row: row.id != 50 or 1 // 0)
    result = apply(kept, rows, order_by="id", nodes=2)
    actions = (
        result.collect,
        result.count,
        result.isEmpty,
        result.first,
        lambda: result.tail(2),
        lambda: result.write.parquet(str(tmp_path / "rows")),
    )
    for action in actions:
        with pytest.raises(PythonException, match="ZeroDivisionError") as failed:
            action()
        assert "org.apache" not in str(failed.value)
