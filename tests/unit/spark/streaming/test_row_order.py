"""Rows compared and put in order across micro-batches."""

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
