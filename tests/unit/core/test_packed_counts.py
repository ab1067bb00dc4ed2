"""Counts of keys: those that pack into 64 bits, those that do not, and both in one run, against NumPy
and dicts.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od

pytest.importorskip("ordstream._core.flow.run", reason="the core is not built")

ONES = (1 << 64) - 1


def counted(table, key, **options):
    """All rows of the count per key."""
    pipeline = od.Pipeline(table.schema).key_by(*key).count()
    return [tuple(row.values()) for row in pipeline.run(table, **options).table.to_pylist()]


def running(rows):
    """Each row with the number of equal rows so far."""
    seen = Counter()
    for row in rows:
        seen[row] += 1
        yield (*row, seen[row])


def ascending(rows):
    """One row per key with its count, as keys sort: nulls first."""
    counts = Counter(rows)
    return [
        (*key, counts[key]) for key in sorted(counts, key=lambda key: [(v is not None, v or 0) for v in key])
    ]


EDGES = {
    pa.int64(): [0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**32],
    pa.uint64(): [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**21 - 1, 2**21],
    pa.int32(): [0, 1, -1, 2**31 - 1, -(2**31), 2**20, 2**20 - 1, -(2**20)],
    pa.uint32(): [0, 1, 2**32 - 1, 2**31, 2**16],
    pa.int8(): [0, 1, -1, 127, -128],
    pa.uint16(): [0, 1, 65535],
    pa.bool_(): [False, True],
}


@pytest.mark.parametrize("ncols", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("workers", [1, 2])
def test_values_at_the_edges_of_their_share_of_the_bits(ncols, workers):
    rng = np.random.default_rng(ncols)
    types = list(EDGES)
    for first in range(len(types)):
        chosen = [types[(first + j) % len(types)] for j in range(ncols)]
        columns = [rng.choice(np.array([*EDGES[t], None], dtype=object), 300) for t in chosen]
        arrays = [pa.array(list(c), t) for c, t in zip(columns, chosen, strict=True)]
        table = pa.table(arrays, names=[f"k{j}" for j in range(ncols)])
        rows = [tuple(row.values()) for row in table.to_pylist()]
        assert counted(table, table.column_names, workers=workers) == list(running(rows))
        assert counted(table, table.column_names, workers=workers, emit="final", buckets=5) == ascending(
            rows
        )


@pytest.mark.parametrize("wide", [0.0, 0.3])
@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 2, "buckets": 3}, {"workers": 2}])
def test_many_keys(wide, options):
    """Enough of them that pages split, keys wait and buffers grow; with `wide`, some of the keys do not
    pack.
    """
    rng = np.random.default_rng(3)
    n = 1_000_000 if options["workers"] == 1 else 300_000
    left, right = rng.integers(0, n // 1000, n), rng.integers(-300, 300, n)
    left[rng.random(n) < wide] += 1 << 40
    table = pa.table({"left": left, "right": right})
    joined = (left.astype(object) * 2000 + right).astype(np.int64)
    keys, inverse, totals = np.unique(joined, return_inverse=True, return_counts=True)
    assert len(keys) > n // 3

    pipeline = od.Pipeline(table.schema).key_by("left", "right").count()
    found = pipeline.run(table, **options).table
    order = np.argsort(inverse, kind="stable")
    firsts = np.cumsum(totals) - totals
    expected = np.empty(n, np.int64)
    expected[order] = np.arange(n) - np.repeat(firsts, totals) + 1
    assert (found["count"].to_numpy() == expected).all()
    assert (found["left"].to_numpy() == left).all()

    final = pipeline.run(table, emit="final", **options).table
    assert (final["left"].to_numpy() * 2000 + final["right"].to_numpy() == keys).all()
    assert (final["count"].to_numpy() == totals).all()

    best = np.lexsort((keys, -totals))[:500]
    top = pipeline.top_k(500, by="count").run(table, emit="final", **options).table
    assert (top["left"].to_numpy() * 2000 + top["right"].to_numpy() == keys[best]).all()
    assert (top["count"].to_numpy() == totals[best]).all()


def keys_of_one_page(n):
    """int64 keys whose hashes agree in their upper 40 bits: packed_counts.pyx's `spread`, backwards."""
    keys = []
    for low in range(n):
        h = (0xABCDEF0123 << 24) | low
        product = h ^ (h >> 29) ^ (h >> 58)
        mixed = product * pow(0xD6E8FEB86659FD93, -1, 1 << 64) & ONES
        packed = (mixed ^ (mixed >> 32)) * pow(0x9E3779B97F4A7C15, -1, 1 << 64) & ONES
        keys.append(packed - (1 << 63))  # packed is the key + 2**63
    return np.array(keys, dtype=np.int64)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_page_that_cannot_split_closes(workers):
    keys = np.tile(keys_of_one_page(30_000), 3)
    others = np.arange(len(keys)) // 4
    table = pa.table({"k": np.stack([keys, others], axis=1).ravel()})
    pipeline = od.Pipeline(table.schema).key_by("k", buckets=2).count()
    found = pipeline.run(table, workers=workers)
    assert found.table["count"].to_pylist()[0::2] == [1] * 30_000 + [2] * 30_000 + [3] * 30_000
    assert found.table["count"].to_pylist()[1::2] == [1, 2, 3, 4] * 22_500
    operator = found.report.operators[-1]
    assert operator.state_bytes < 40_000_000
    final = pipeline.run(table, workers=workers, emit="final").table
    expected = dict(
        zip(*(a.tolist() for a in np.unique(table["k"].to_numpy(), return_counts=True)), strict=True)
    )
    assert dict(zip(final["k"].to_pylist(), final["count"].to_pylist(), strict=True)) == expected
    assert final["k"].to_pylist() == sorted(expected)
