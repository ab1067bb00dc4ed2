"""A graph's tasks in Spark, called here: what they make of odd rows, and what their errors say. Random
graphs are in tests/property/test_cut_graphs.py.
"""

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import OperatorError
from ordstream.fragments.fragmenting import fragments_of
from ordstream.pipeline.runs import fed
from ordstream.testing import run_serial

pytest.importorskip("pyspark")

from spark_steps import run_as_spark_does

from ordstream.spark.nodes import _front_in_nodes

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
A, B = od.Pipeline(SCHEMA, source="a"), od.Pipeline(SCHEMA, source="b")
HIT, MISS = A.branch(od.col("v") > 2)


def rows(count, step=1):
    return pa.table(
        [[None if n % 5 == 0 else "é" * (n % 3) for n in range(count)],
         [n // 3 for n in range(0, count * step, step)], [n % 7 for n in range(count)]],
        schema=SCHEMA,
    )  # fmt: skip


def merged(pipeline, left, right):
    """The pipeline of one source, and the rows as both frames' together are sorted."""
    plan, data = fed(pipeline.plan, {"b": right, "a": left}, "ts")
    batches = [pa.RecordBatch.from_arrays(one.columns, schema=plan.source) for one in data]
    return od.Pipeline.of(plan), pa.Table.from_batches(batches, plan.source)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 0), (0, 30), (40, 25)])
@pytest.mark.parametrize(
    "pipeline",
    [
        A.join_interval(B, on="k", within=(-2, 3), how="left", time="ts"),
        A.join_interval(B, on="k", within=(-2, 3), how="full", time="ts"),
        od.union(HIT, B, MISS).key_by("k").window(od.session(2), time="ts").aggregate(n=od.count()),
        od.union(A, od.union(HIT, MISS), A).key_by("k").lag("v").join_asof(B, on="k", time="ts"),
    ],
)
def test_sources_without_rows_and_keys_that_are_null(pipeline, left, right):
    data = rows(left), rows(right, 2)
    expected = run_serial(pipeline, {"b": data[1], "a": data[0]}, merge_by="ts")
    found = run_as_spark_does(*merged(pipeline, *data), 3)
    *columns, serials, indexes = found.columns
    assert [*zip(serials.to_pylist(), indexes.to_pylist(), strict=True)] == expected.tags
    assert [*zip(*(one.to_pylist() for one in columns), strict=True)] == [tuple(r) for r in expected.rows]


def test_an_error_names_the_operator_of_its_way_and_the_serial_in_the_merged_order():
    share = B.select("k", v=od.col("ts") // (od.col("v") - 6), name="share")
    counted = od.union(HIT.select("k", "v"), share).key_by("k").scan(n=od.count())
    expected = run_serial(counted, {"b": rows(20), "a": rows(30)}, merge_by="ts").error
    with pytest.raises(OperatorError) as found:
        run_as_spark_does(*merged(counted, rows(30), rows(20)), 2)
    assert (found.value.operator, found.value.serial) == ("share", expected.serial)


def test_a_graph_in_front_of_the_first_key_runs_in_its_nodes():
    counted = od.union(A.select("ts", "k"), B.select(ts="v", k="k")).key_by("k").scan(n=od.count())
    pipeline, data = merged(counted, rows(30), rows(20))
    _, whole = _front_in_nodes(fragments_of(pipeline.plan))
    assert [whole.source.names[at] for at in whole.key] == ["k"]
    found = od.Pipeline.of(whole.plan).run(data).table
    assert found.equals(run_serial(counted, {"b": rows(20), "a": rows(30)}, merge_by="ts").table)


def test_a_column_that_nobody_reads_need_not_arrive_where_it_is_declared_without_nulls():
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64(), False)])
    pipeline = od.Pipeline(schema).with_columns(m=od.col("k") % 3).key_by("m").count()
    table = pa.table([[1, 2, 3, 4], [5, 6, 7, 8]], schema=schema)
    found = run_as_spark_does(pipeline, table, 2)
    assert found.drop(["_serial", "_index"]).equals(pipeline.run(table).table)
