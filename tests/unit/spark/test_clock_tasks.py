"""Tasks in Spark of pipelines whose windows go by the clock of a `reorder`, called here: its marks are rows
of the shuffles. Random pipelines are in tests/property/test_spark_clocks.py.
"""

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

pytest.importorskip("pyspark")

from spark_steps import run_as_spark_does

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
SOURCE = od.Pipeline(SCHEMA)


def rows(count):
    """Up to 4 behind the latest."""
    rng = np.random.default_rng(count)
    ts = np.arange(count) // 3 - rng.integers(0, 4, count)
    return pa.table([ts, [f"é{n}" for n in rng.integers(0, 5, count)], np.arange(count) % 7], schema=SCHEMA)


def several(row):
    return [tuple(row)] * (row.v % 3)


def counted(made, time="ts"):
    return made.key_by("k").window(od.tumbling(3), time=time).aggregate(n=od.count(), v=od.max("v"))


ORDERED = SOURCE.reorder("ts", slack=4)
FRONT = SOURCE.key_by("v").scan(seen=od.count())
PIPELINES = {
    "at once": counted(ORDERED),
    "two keys": (
        counted(ORDERED.key_by("v").scan(m=od.count())).key_by("n").scan(there=od.sum("v")).key_by("there")
        .scan(m=od.count())
    ),
    "behind other rows": counted(
        SOURCE.flat_map(several, schema=SCHEMA).reorder("ts", slack=4).filter(od.col("v") != 3)
    ),
    "behind a key": counted(FRONT.reorder("ts", slack=5).key_by("v").scan(m=od.count())),
    "another one behind": counted(
        ORDERED.key_by("v").scan(m=od.count()).window(od.rolling(2), time="ts").aggregate(many=od.count())
        .reorder("ts", slack=6)
    ),
    "all rows": (
        ORDERED.key_by("k").scan(m=od.count()).window(od.tumbling(3), time="ts").aggregate(n=od.sum("m"))
    ),
}  # fmt: skip


def check(pipeline, table, nodes, **options):
    expected = run_serial(pipeline, table, punctuate=options.get("punctuate"))
    assert expected.error is None
    assert len(expected.rows) > 20
    found = run_as_spark_does(pipeline, table, nodes, seed=nodes, **options)
    *columns, serials, indexes = found.columns
    assert [*zip(serials.to_pylist(), indexes.to_pylist(), strict=True)] == expected.tags
    assert [*zip(*(one.to_pylist() for one in columns), strict=True)] == [tuple(r) for r in expected.rows]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("name", PIPELINES)
def test_windows_by_the_clock_of_a_reorder(name, nodes):
    check(PIPELINES[name], rows(200), nodes)


def test_marks_of_both_clocks_in_one_node():
    """What is forgotten goes by the source's punctuations, windows by what leaves `reorder`."""
    made = counted(FRONT.reorder("ts", slack=3).deduplicate("v", within=2, time="ts"))
    check(made, rows(200).sort_by("ts"), 3, punctuate=od.every("ts", 2))
