"""Generated rows of TPC-H's tables: orders, and their line items within ten minutes, by time."""

import sys

import numpy as np
import pyarrow as pa


def tables(n: int | None = None) -> dict[str, pa.Table]:
    """About `n` line items; default: the number behind the script's name, or a million."""
    n = n or int((sys.argv[1:] or [1_000_000])[0])
    rng, count = np.random.default_rng(7), n // 4
    ordered = np.datetime64("2026-01-01", "ms") + np.cumsum(rng.integers(0, 4_000, count))
    buyer, key = rng.integers(0, 900, count), np.repeat(np.arange(count), rng.integers(1, 8, count))
    made = rng.integers([0, 90_000, 0], [60, 10_000_000, 11], (len(key), 3)).T
    items = dict(zip(("suppkey", "cents", "discount"), made, strict=True))
    shipped = ordered[key] + rng.integers(1, 600_000, len(key))
    return {
        "nation": pa.table({"nation": np.arange(25), "region": [*"ABCDE"] * 5}),
        "customer": pa.table({"custkey": np.arange(900), "nation": rng.integers(0, 25, 900)}),
        "supplier": pa.table({"suppkey": np.arange(60), "home": rng.integers(0, 25, 60)}),
        "orders": pa.table({"orderkey": np.arange(count), "custkey": buyer, "ts": ordered}),
        "lineitem": pa.table({"orderkey": key, **items, "ts": shipped}).sort_by("ts"),
    }
