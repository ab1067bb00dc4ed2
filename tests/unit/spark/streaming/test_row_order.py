"""Rows compared and put in order across micro-batches."""

import decimal
import math
import random

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from ordstream.spark.streaming.row_order import in_order, packed, precede, unpacked


def rank(value):
    """Null first, NaN last."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


@pytest.mark.parametrize("seed", range(5))
def test_rows_compare_and_sort_as_spark_sorts_them(seed):
    rng = random.Random(seed)
    floats = [rng.choice([None, math.nan, -0.5, 0.0, 2.5, math.inf]) for _ in range(60)]
    texts = [rng.choice([None, "", "a", "é", "z"]) for _ in range(60)]
    rows = pa.record_batch({"f": pa.array(floats, pa.float64()), "t": texts})
    keys = [(rank(f), rank(t)) for f, t in zip(floats, texts, strict=True)]
    for number in range(0, 60, 7):
        found = precede(rows, unpacked(packed(rows.slice(number, 1))))
        assert found.tolist() == [key < keys[number] for key in keys]
    placed = pa.table({"f": rows["f"], "t": rows["t"], "n": np.arange(60)})
    assert in_order(placed, ["f", "t"])["n"].to_pylist() == sorted(range(60), key=lambda n: keys[n])
    assert in_order(placed, []) is placed


BIG = 2**53 + 2
NUMBERS = [
    pa.array([None, -(2**63), -1, 0, 1, 5, BIG - 1, BIG, BIG + 1, 2**63 - 1], pa.int64()),
    pa.array([None, -(2**31), -1, 0, 1, 5, 2**31 - 1], pa.int32()),
    pa.array(
        [None, -math.inf, -1.5, -0.0, 0.0, 0.1, 1.0, 5.0, float(BIG), 2.0**63, 1e300, math.inf, math.nan],
        pa.float64(),
    ),
    pa.array(
        [None, -math.inf, -1.5, -0.0, 0.1, 1.0, 5.0, 2.0**53, 2.0**63, math.inf, math.nan], pa.float32()
    ),
    pa.array(
        [None, *map(decimal.Decimal, ("-1.50", "0", "0.10", "1.00", "5.00", f"{BIG + 1}", "1e35"))],
        pa.decimal128(38, 2),
    ),
    pa.array([None, *map(decimal.Decimal, ("-1.5", "0", "0.1", "1", "5"))], pa.decimal128(38, 37)),
    pa.array([None, *map(decimal.Decimal, ("-1", "0", "1", "5", "1e37"))], pa.decimal128(38, 0)),
]


@pytest.mark.parametrize("was", NUMBERS, ids=lambda column: str(column.type))
@pytest.mark.parametrize("now", NUMBERS, ids=lambda column: str(column.type))
def test_numbers_of_other_types_compare_as_what_they_are(now, was):
    """A restart may read the column as another type; Arrow's common type of both holds not all of them."""
    rows = pa.record_batch({"k": now, "n": pa.array([1] * len(now))})
    for value in was.to_pylist():
        row = pa.record_batch({"k": pa.array([value], was.type), "n": [2]})
        expected = [rank(number) <= rank(value) for number in now.to_pylist()]
        assert precede(rows, unpacked(packed(row))).tolist() == expected
        row = row.set_column(1, "n", pa.array([1]))  # what is equal in the first column is in the second
        expected = [rank(number) < rank(value) for number in now.to_pylist()]
        assert precede(rows, row).tolist() == expected


def test_numbers_compare_where_the_program_traps_floats_among_decimals():
    with decimal.localcontext() as context:
        context.traps[decimal.FloatOperation] = True
        rows = pa.record_batch({"k": [0.5, 1.5, None]})
        row = pa.record_batch({"k": pa.array([decimal.Decimal(1)], pa.decimal128(5, 2))})
        assert precede(rows, row).tolist() == [True, False, True]
