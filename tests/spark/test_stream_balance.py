"""Keys that move between the micro-batches of a stream in Spark."""

import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.errors import PlanError
from ordstream.testing import run_serial

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def words(count):
    """Zipf-1.1 words."""
    rng = np.random.default_rng(1)
    weight = 1 / np.arange(1, 301) ** 1.1
    found = rng.choice(300, p=weight / weight.sum(), size=count)
    return pa.table([range(count), [f"wört{n}" for n in found]], schema=SCHEMA)


def counted():
    return od.Pipeline(SCHEMA).key_by("word").scan(seen=od.count(), latest=od.last("n"))


def test_keys_move_once_and_with_the_nodes(spark, tmp_path):
    table, folder, checkpoint = words(8_000), tmp_path / "in", tmp_path / "c"
    folder.mkdir()

    def run(nodes, low, high, **options):
        for at in range(low, high, 2_000):
            path = folder / f"f{at:05}.parquet"
            pq.write_table(table.slice(at, 2_000), path)
            os.utime(path, (1_000_000_000 + at,) * 2)
        reader = spark.readStream.schema("n long, word string").option("maxFilesPerTrigger", 1)
        query = od.spark.stream(
            counted(), reader.parquet(str(folder)), checkpoint=checkpoint, order_by="n", nodes=nodes,
            trigger="available now", **options,
        )  # fmt: skip
        query.awaitTermination(240)
        return [one["balance"]["scan_1"] for one in query.epochs], query.lastProgress["ordstream"]

    with pytest.raises(PlanError, match=r"balance takes od.Mixed\(...\), got 'mixed'"):
        run(2, 0, 0, balance="mixed")
    with pytest.raises(PlanError, match="balance needs nodes="):
        run(None, 0, 0, balance=od.Mixed())
    with pytest.raises(PlanError, match="balance: window=2 does nothing in a run"):
        run(2, 0, 0, balance=od.Mixed(window=2))
    told, last = run(2, 0, 6_000, balance=od.Mixed(theta=0.08, table=50, payback=0))
    assert [sum(one["tuples"]) for one in told] == [2_000] * 3
    assert told[0]["theta"] > 0.15
    assert told[0]["next"]["keys"] == told[1]["moved"]["by_plan"]["keys"] > 0
    assert told[1]["moved"]["by_plan"]["bytes"] > 0
    assert told[2]["theta"] < 0.12
    assert told[2]["moved"]["by_plan"]["keys"] == 0
    assert last["balance"]["scan_1"] == told[2]
    assert told[2]["payback"] is None
    told, _ = run(3, 6_000, 8_000, balance=od.Mixed(theta=0.08, table=50))
    assert told[0]["payback"]["plans"] == told[0]["payback"]["put_off"]  # ms of work in seconds
    assert told[0]["next"] is None
    assert told[0]["moved"]["by_ring"]["keys"] > 0
    assert len(told[0]["tuples"]) == 3
    od.spark.finish(checkpoint)
    expected = run_serial(counted(), table)
    found = [tuple(row) for row in od.spark.read_output(checkpoint, tags=True).collect()]
    assert found == [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]


def test_keys_that_are_decimals_move(spark, tmp_path):
    kind = pa.decimal128(10, 2)
    prices = [Decimal(n % 5 * 25).scaleb(-2) for n in range(600)]
    table = pa.table({"n": range(600), "price": pa.array(prices, kind)})
    (tmp_path / "in").mkdir()
    for at in range(0, 600, 200):
        path = tmp_path / "in" / f"f{at:03}.parquet"
        pq.write_table(table.slice(at, 200), path)
        os.utime(path, (1_000_000_000 + at,) * 2)

    def seen(row, state, emit):
        state.n += 1
        emit((row.n, row.price, state.n))

    out = pa.schema([*table.schema, ("seen", pa.int64())])
    pipeline = od.Pipeline(table.schema).key_by("price")
    pipeline = pipeline.process(seen, schema=out, state={"n": pa.int64()}, name="f")
    reader = spark.readStream.schema("n long, price decimal(10, 2)").option("maxFilesPerTrigger", 1)
    query = od.spark.stream(
        pipeline, reader.parquet(str(tmp_path / "in")), checkpoint=tmp_path / "c", order_by="n", nodes=2,
        trigger="available now", balance=od.Mixed(),
    )  # fmt: skip
    query.awaitTermination(240)
    assert [sum(one["balance"]["f"]["tuples"]) for one in query.epochs] == [200] * 3
