"""Any frame a user may have: its columns' names."""

import pyarrow as pa
import pytest
from spark_tools import rows_of

import ordstream as od
from ordstream.testing import run_serial

pytest.importorskip("pyspark")

from ordstream.spark import apply

pytestmark = pytest.mark.spark

HOSTILE = ["a.b", "A", "a", "`", "x y", " ", "c0", "d0", "o0", "_0", "value", "_metadata", "_tag", "partition", "é", "a`.`b", "count(1)"]
HOSTILE += [f"__ordstream_{name}" for name in ("serial", "tag", "node", "file", "row")]


@pytest.fixture(params=["false", "true"])
def case_sensitive(spark, request):
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield
    spark.conf.unset("spark.sql.caseSensitive")


def hostile(spark, rows=60):
    """Every hostile name at once, values that tell columns apart; the last column is the order."""
    names = [*HOSTILE, "t.s"]
    table = pa.table([[(n * (k + 3)) % (k + 2) for n in range(rows)] for k in range(len(HOSTILE))] + [list(range(rows))], names=names)
    frame = spark.createDataFrame(rows_of(table), [f"x{k}" for k in range(len(names))]).repartition(3).toDF(*names)
    return table, frame


@pytest.mark.parametrize("nodes", [1, 2, "auto"])
def test_users_columns_keep_their_names_and_values_whatever_they_are_called(spark, case_sensitive, nodes):
    table, frame = hostile(spark)
    passed = od.Pipeline(table.schema).filter(od.col("a.b") >= 0)
    found = apply(passed, frame, order_by=["t.s", "__ordstream_serial"], nodes=nodes).toArrow()
    assert found.schema.names == table.schema.names
    columns = [column.to_pylist() for column in found.columns]
    assert list(zip(*columns, strict=True)) == [tuple(row) for row in run_serial(passed, table).rows]


@pytest.mark.parametrize(("nodes", "grouping", "presorted"), [(1, "hash", False), (2, "hash", True), (3, "dkg", False), (2, "dkg", True)])
def test_keys_states_and_order_may_have_any_name(spark, nodes, grouping, presorted):
    names = ["t.s", "a.b", "__ordstream_node", "__ordstream_tag", "__ordstream_serial", "A", "a", "`"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    table = pa.table([list(range(90)), *([(n * k) % (k + 1) for n in range(90)] for k in range(2, 9))], schema=schema)
    pipeline = od.Pipeline(schema).key_by("a.b", "a").scan(**{"__ordstream_row": od.count(), "value": od.sum("`")})
    pipeline = pipeline.key_by("__ordstream_node").scan(**{"x.y": od.last("value"), "__ordstream_file": od.max("t.s")})
    frame = spark.createDataFrame(rows_of(table), [f"x{k}" for k in range(len(names))])
    frame = frame.orderBy("x0").toDF(*names) if presorted else frame.repartition(3).toDF(*names)
    found = apply(pipeline, frame, order_by="t.s", nodes=nodes, grouping=grouping, presorted=presorted, tags=True).toArrow()
    serial = run_serial(pipeline, table)
    assert found.schema.names == [*pipeline.schema.names, "_serial", "_index"]
    columns = [column.to_pylist() for column in found.columns]
    assert list(zip(*columns[:-2], strict=True)) == [tuple(row) for row in serial.rows]
    assert list(zip(*columns[-2:], strict=True)) == serial.tags
