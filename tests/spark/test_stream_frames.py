"""Streams over frames that spell their columns otherwise, read in sessions that are set otherwise."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import SchemaError


@pytest.fixture
def run(spark, tmp_path):
    """Run a stream over tables, each of them a micro-batch; its checkpoint."""

    def made(pipeline, schema, *tables, **options):
        folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
        folder.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number}.parquet")
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
        given = {"order_by": "ts", "checkpoint": checkpoint, "trigger": "available now"} | options
        od.spark.stream(pipeline, frame, **given).awaitTermination(120)
        return checkpoint

    return made


@pytest.fixture
def conf(spark):
    """Set the session; as it was, afterwards."""
    changed = set()

    def set_to(name, value):
        changed.add(name)
        spark.conf.set(name, value)

    yield set_to
    for name in changed:
        spark.conf.unset(name)


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION"])
def test_dates_before_1582_are_read_as_they_were_written(run, conf, mode):
    days = [datetime.date(1, 1, 1), datetime.date(1500, 2, 28), datetime.date(1582, 10, 10)]
    table = pa.table({"ts": [1, 2, 3], "day": days})
    pipeline = od.Pipeline(table.schema).key_by("day").count("n").key_by("day").lag({"before": "n"})
    checkpoint = run(pipeline, "ts long, day date", table, table, late="side_output")
    conf("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    assert (
        od.spark.read_output(checkpoint).toArrow().to_pylist()[:3] == pipeline.run(table).table.to_pylist()
    )
    late = od.spark.read_output(checkpoint, late=True).toArrow()
    assert late["day"].to_pylist() == days[:2]


def test_slack_finds_a_column_in_another_case(run):
    table = pa.table({"TS": [1, 2, 5], "user": [1, 1, 2]})
    pipeline = od.Pipeline(pa.schema([("ts", pa.int64()), ("user", pa.int64())])).key_by("user").count("n")
    checkpoint = run(pipeline, "TS long, user long", table, slack=3)
    assert od.spark.read_output(checkpoint).count() == 1
    od.spark.finish(checkpoint)
    assert (
        od.spark.read_output(checkpoint).toArrow().to_pylist()
        == pipeline.run(table.rename_columns(["ts", "user"])).table.to_pylist()
    )


def test_columns_that_differ_in_case_are_read_where_spark_tells_them_apart(run, conf):
    conf("spark.sql.caseSensitive", "true")
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2], "User": [4, 5, 6]})
    pipeline = od.Pipeline(table.schema).key_by("user").scan(total=od.sum("User"))
    checkpoint = run(pipeline, "ts long, user long, User long", table, table, late="side_output")
    assert od.spark.read_output(checkpoint).columns == ["ts", "user", "User", "total"]
    assert od.spark.read_output(checkpoint, late=True).count() == 2
    conf("spark.sql.caseSensitive", "false")
    for late in (False, True):
        with pytest.raises(SchemaError, match=r"'user' and 'User' differ in case only.*caseSensitive"):
            od.spark.read_output(checkpoint, late=late)


FAILS = """
import sys
import pyarrow as pa
import pyarrow.parquet as pq
import ordstream as od

def fails(row):
    if row.ts == 2:
        raise ValueError("not this one")
    return tuple(row)

if __name__ == "__main__":
    folder = sys.argv[1]
    table = pa.table({"ts": [1, 2, 3], "user": [1, 1, 2]})
    pq.write_table(table, f"{folder}/in/a.parquet")
    spark = od.spark.local_session(1, memory="500m")
    pipeline = od.Pipeline(table.schema).map(fails, schema=table.schema).key_by("user").count("n")
    frame = spark.readStream.schema("ts long, user long").parquet(f"{folder}/in")
    query = od.spark.stream(
        pipeline, frame, order_by="ts", checkpoint=f"{folder}/checkpoint", trigger="available now"
    )
    try:
        query.awaitTermination(120)
    except od.OrdstreamError as error:
        print(error)
    spark.stop()
"""


def test_an_error_in_a_stream_says_where_and_shows_no_trace_of_java(java, tmp_path):
    pytest.importorskip("pyspark")
    (tmp_path / "in").mkdir()
    program = tmp_path / "program.py"
    program.write_text(FAILS)
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, str(program), str(tmp_path)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    line = FAILS.split("\n").index('        raise ValueError("not this one")') + 1
    assert ended.stdout.splitlines() == [
        "operator 'map_1' failed at serial 2: ValueError: not this one",
        f"  at: {program}:{line}, in fails",
        "  row: {'ts': 2, 'user': 1}",
    ]
    assert "ERROR MicroBatchExecution" in ended.stderr
    assert "ValueError: not this one" in ended.stderr
    assert "\tat " not in ended.stderr
