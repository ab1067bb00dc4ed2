"""A stream that was taken back, and a sink that was not: it is refused at every start, until it is."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od

pytestmark = pytest.mark.spark

FILES, ROWS = 4, 50


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(FILES):
        path = folder / f"f{i}.parquet"
        pq.write_table(pa.table({"id": list(range(i * ROWS, (i + 1) * ROWS))}), path)
        os.utime(path, (1.7e9 + i,) * 2)
    return folder


@pytest.mark.parametrize("kind", ["folder", "function"])
def test_a_sink_that_was_not_taken_back_is_refused_at_every_start(spark, tmp_path, source, kind):
    """The second start took it as it was: a row that was mended away stayed, and nothing said so."""
    checkpoint, target, given = str(tmp_path / "cp"), str(tmp_path / "sink"), {}
    df = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))

    def sink():
        if kind == "folder":
            return od.spark.sinks.ParquetFolder(target)
        return od.spark.sinks.Function(lambda n, rows, key: given.update({n: rows["id"].to_pylist()}))

    def start(pipeline, sink):
        od.spark.stream(
            pipeline, df, order_by="id", checkpoint=checkpoint, trigger="available now", sink=sink
        ).awaitTermination()

    def delivered():
        if kind == "folder":
            return sorted(pq.read_table(target)["id"].to_pylist())
        return sorted(one for rows in given.values() for one in rows)

    whole = od.Pipeline(df).with_columns(n=od.lit(1))
    mended = od.Pipeline(df).filter(od.col("id") != FILES * ROWS - 30).with_columns(n=od.lit(1))
    start(whole, sink())
    assert od.spark.rewind(checkpoint) == FILES - 2
    for _ in range(3):
        with pytest.raises(od.CheckpointError):
            start(mended, sink())
    start(mended, None)
    with pytest.raises(od.CheckpointError):
        start(mended, sink())
    assert od.spark.sinks.take_back(sink(), checkpoint) == FILES - 2
    start(mended, sink())
    wanted = [one for one in range(FILES * ROWS) if one != FILES * ROWS - 30]
    assert delivered() == wanted
    assert sorted(row.id for row in od.spark.read_output(checkpoint).select("id").collect()) == wanted
    start(mended, sink())
    assert delivered() == wanted


def test_two_functions_of_one_name_are_refused_before_anything_runs(spark, tmp_path, source):
    """The second one was never called; three starts failed, and the fourth said nothing."""
    df = spark.readStream.schema("id long").parquet(str(source))
    functions = [od.spark.sinks.Function(print), od.spark.sinks.Function(print)]
    with pytest.raises(od.PlanError, match=r"two functions are called 'function', .*Function\(f, name="):
        od.spark.stream(od.Pipeline(df), df, order_by="id", checkpoint=str(tmp_path / "cp"), sink=functions)
    assert not (tmp_path / "cp").exists()
