"""`deduplicate(within=)` by the clock in Spark: batches and streams over nodes give what `run_serial` gives,
unsorted.
"""

import itertools
import os
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.testing import run_serial

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string())])
CUTS = [0, 150, 151, 151, 300, 500]  # one row, and none
drawn = random.Random(5)
TABLE = pa.table(
    [
        sorted(drawn.randrange(300) for _ in range(CUTS[-1])),
        [drawn.choice([None, *range(12)]) for _ in range(CUTS[-1])],
        [f"é{number}" for number in range(CUTS[-1])],
    ],
    schema=SCHEMA,
)


def first():
    return od.Pipeline(SCHEMA).deduplicate("user", 20, time="ts")


def last():
    """At the end of the stream every key has a row to let go; another key behind it."""
    kept = od.Pipeline(SCHEMA).filter(od.col("ts") % 5 != 0).deduplicate("user", 20, "last", time="ts")
    return kept.with_columns(m=od.col("ts") % 3).key_by("m").scan(n=od.count())


def behind_keys():
    """Over two cuts, behind the clock that leaves a reorder."""
    seen = od.Pipeline(SCHEMA).reorder("ts", slack=4).key_by("user").scan(n=od.count())
    return seen.with_columns(m=od.col("n") % 4).deduplicate(["m", "user"], 15, "last", time="ts")


PIPELINES = pytest.mark.parametrize("made", [first, last, behind_keys])


def answer(pipeline):
    found = run_serial(pipeline, TABLE)
    assert found.error is None
    assert 50 < len(found.rows) < CUTS[-1]
    return [(*row, *tag) for row, tag in zip(found.rows, found.tags, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("deduplicate")
    for number, (low, high) in enumerate(itertools.pairwise(CUTS)):
        path = made / f"{number}.parquet"
        pq.write_table(TABLE.slice(low, high - low), path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    return made


@PIPELINES
@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.thin(4)
def test_a_batch(spark, folder, made, nodes):
    rows = od.spark.apply(made(), spark.read.parquet(str(folder)), order_by="ts", nodes=nodes, tags=True)
    assert [tuple(row) for row in rows.collect()] == answer(made())


@PIPELINES
@pytest.mark.thin(1)
def test_a_stream_over_changing_nodes(spark, folder, tmp_path, made):
    """An epoch per file; spans are open across epochs and starts."""
    checkpoint, reads, expected = tmp_path / "cp", tmp_path / "in", answer(made())
    reads.mkdir()
    frame = spark.readStream.schema("ts long, user long, item string").option("maxFilesPerTrigger", 1)
    for nodes, files in ((1, [0]), (3, [1, 2]), (2, [3, 4])):
        for number in files:
            shutil.copy2(folder / f"{number}.parquet", reads)
        given = {"order_by": "ts", "checkpoint": checkpoint, "nodes": nodes, "trigger": "available now"}
        query = od.spark.stream(made(), frame.parquet(str(reads)), **given)
        assert query.awaitTermination(120)
        assert [one["epoch"] for one in query.epochs] == files

    def output():  # whatever session tests before this one have left active
        rows = od.spark.read_output(checkpoint, tags=True, spark=spark)
        return [tuple(row) for row in rows.collect()]

    before = output()
    assert before == expected[: len(before)]
    od.spark.finish(checkpoint, spark=spark)
    assert output() == expected
    assert (len(before) < len(expected)) == (made is not first)
