"""Maps of many megabytes: their blocks grow by moving pages where the system can, and every key keeps
its state.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ordstream as od

KEYS = 400_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """Each key three times, the second and third time in another order; `other` tells keys of two
    columns apart.
    """
    rng = np.random.default_rng(5)
    keys = rng.permutation(KEYS).astype(np.int64)
    key = np.concatenate([keys, rng.permutation(keys), rng.permutation(keys)])
    return pa.table({"key": key, "other": key % 3, "value": np.arange(len(key))})


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("columns", [["key"], ["key", "other"]])
def test_records_keep_their_states_through_every_growth(
    rows: pa.Table, columns: list[str], workers: int
) -> None:
    """64-byte records: four doublings of blocks above 4 MB in one bucket; sums per key beside Polars'
    running ones.
    """
    pipeline = (
        od.Pipeline(rows.schema).key_by(*columns).scan(od.sum("value").alias("sum"), od.count().alias("n"))
    )
    got = pl.from_arrow(pipeline.run(rows, workers=workers, buckets=workers).table)
    running = [
        pl.col("value").cum_sum().over(columns).alias("sum"),
        pl.int_range(1, pl.len() + 1).over(columns).alias("n"),
    ]
    source = pl.from_arrow(rows).with_columns(running)
    assert isinstance(got, pl.DataFrame)
    assert got.select("sum", "n").equals(source.select("sum", "n"))


def test_slots_keep_their_sessions_through_every_growth(rows: pa.Table) -> None:
    """Sessions by one integer key lie in a table of slots: all keys are open at once, each closes with
    its own three values.
    """
    clicks = rows.append_column("ts", pa.array(np.arange(rows.num_rows) // KEYS))
    sessions = (
        od.Pipeline(clicks.schema)
        .key_by("key")
        .sessionize(time="ts", timeout=10, aggregate={"total": od.sum("value")})
    )
    got = pl.from_arrow(sessions.run(clicks, workers=1).table)
    assert isinstance(got, pl.DataFrame)
    expected = (
        pl.from_arrow(rows).group_by("key").agg(pl.col("value").sum().alias("total"), pl.len().alias("n"))
    )
    both = got.join(expected, on="key", suffix="_expected")
    assert len(got) == len(both) == KEYS
    assert (both["total"] == both["total_expected"]).all()
    assert (both["count"] == 3).all()
