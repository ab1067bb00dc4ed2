"""Rows that stay in their input batches, under load: workers find, count and let go of batches while the
feeding thread releases them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

limits = pytest.importorskip("ordstream._core.ground.kept_batches", reason="the core is not built")

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
KEEPING = {
    "tail": lambda p: p.key_by("k").tail(2),
    "tail of texts": lambda p: p.key_by("s").tail(1),
    "last": lambda p: p.deduplicate("k", keep="last"),
    "lead": lambda p: p.key_by("k").lead("s"),
    "lag": lambda p: p.key_by("k").lag(["s", "x"], 2),
    "lag of the lead": lambda p: p.key_by("k").lead("s").key_by("k").lag("s"),
    "filtered": lambda p: p.filter(od.col("x") > 0.3).key_by("k").tail(3),
    "twice": lambda p: p.key_by("k").lead("x").key_by("s").tail(1),
    "reorder": lambda p: p.reorder("k", slack=900, late="adjust"),
    "reorder, lead": lambda p: p.reorder("k", slack=50, late="adjust").key_by("k").lead("s"),
}
LIMITS = ((1 << 20, 1), (4000, 1), (100, 1))


def rows(count: int) -> pa.Table:
    """A third of the rows are of a few keys, the others of many."""
    draw = np.random.default_rng(5)
    keys = np.where(
        draw.random(count) < 0.3, draw.integers(0, 5, count), draw.integers(0, count // 4, count)
    )
    texts = [None if key % 11 == 0 else f"text of some length {key % 97}" for key in keys.tolist()]
    return pa.table([pa.array(keys), pa.array(texts), pa.array(draw.random(count))], schema=SCHEMA)


@pytest.mark.stress
@pytest.mark.parametrize("kind", KEEPING)
def test_batches_come_and_go_while_rows_refer_to_them(kind):
    table = rows(12_000)
    pipeline = KEEPING[kind](od.Pipeline(SCHEMA))
    expected = run_serial(pipeline, table).table
    for turn, (most, least) in enumerate(LIMITS * 3):
        limits.set_kept_limits(most, least)
        try:
            batches = table.to_batches(max_chunksize=(7, 60, 500)[turn % 3])
            how = {
                "workers": 1 + turn % 4,
                "chunk_rows": (16, 64, 1)[turn // 3],
                "buckets": 1 + 4 * (turn % 2),
            }
            found = pipeline.run(iter(batches), **how).table
        finally:
            limits.set_kept_limits(-1, 0)
        assert found.equals(expected), (most, least, how)
