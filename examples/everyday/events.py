"""Generated events for the examples: payments of cards, in the order of time."""

import sys

import numpy as np
import pyarrow as pa


def events(n: int | None = None) -> pa.Table:
    """`n` rows; default: the number behind the script's name, or a million."""
    n = n or int((sys.argv[1:] or [1_000_000])[0])
    rng = np.random.default_rng(7)
    shops = pa.array(["grocer", "Fuel station", "online SHOP", "cinema"])
    return pa.table({
        "card": rng.integers(0, max(n // 100, 1), n),
        "ts": pa.array(1_700_000_000_000 + np.cumsum(rng.integers(0, 400, n)), pa.timestamp("ms")),
        "cents": rng.integers(1, 50_000, n),
        "shop": shops.take(pa.array(rng.integers(0, 4, n))),
    })  # fmt: skip
