"""Pipelines with plain Python oracles, for the stress tests. Sizes grow with the environment variable
ORDSTREAM_STRESS.
"""

from __future__ import annotations

import functools
import os
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa

import ordstream as od
from ordstream import col

STRESS = float(os.environ.get("ORDSTREAM_STRESS", "1"))
SANITIZED = bool(os.environ.get("ORDSTREAM_SANITIZE"))

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
SCHEDULERS = ["ct", "lp", "et", "qst", "random"]
PARTITIONINGS = ["hybrid", "partitioned", "shared"]
REORDERS = ["nonblocking", "lock"]

Rows = tuple[tuple[Any, ...], ...]


def size(n: int) -> int:
    """n tuples, times ORDSTREAM_STRESS; a quarter of it under a sanitizer."""
    return max(1, round(n * STRESS / (4 if SANITIZED else 1)))


def staffed(workers: int | str, seed: int = 1) -> dict[str, Any]:
    """Options for so many workers; "auto": 1 to 8, and their number changes at random every few slices."""
    return (
        {"workers": workers, "max_workers": 8, "debug": True, "seed": seed}
        if workers == "auto"
        else {"workers": workers}
    )


@functools.cache
def keys(kind: str, n: int) -> tuple[int, ...]:
    """Keys of n tuples: "one", "few" (7), "many" (n) or "zipf" (Zipf-1 over 1,000)."""
    if kind == "one":
        return (5,) * n
    if kind == "few":
        return tuple(i * 13 % 7 for i in range(n))
    if kind == "many":
        return tuple(i * 7919 % n for i in range(n))
    weights = [1 / rank for rank in range(1, 1_001)]
    return tuple(random.Random(3).choices(range(1_000), weights, k=n))


@functools.cache
def table(kind: str, n: int) -> pa.Table:
    return pa.table(
        {"k": pa.array(keys(kind, n), pa.int64()), "v": pa.array(range(n), pa.int64())}, schema=SCHEMA
    )


def batches(kind: str, n: int, rows: int) -> list[pa.RecordBatch]:
    return table(kind, n).combine_chunks().to_batches(max_chunksize=rows)


def stateless() -> od.Pipeline:
    """One operator."""
    return od.Pipeline(SCHEMA).filter(col("v") % 3 != 0)


def keyed() -> od.Pipeline:
    """SL, PS, SL, PS, SF: every kind of operator, an operator that drops, two that keep state by key."""
    return (
        od.Pipeline(SCHEMA)
        .filter(col("v") % 11 != 0)
        .key_by("k")
        .scan(total=od.sum("v"))
        .filter(col("total") % 5 != 1)
        .key_by("k")
        .count()
        .scan(all=od.sum("count"))
    )


@functools.cache
def stateless_rows(kind: str, n: int) -> Rows:
    return tuple((k, v) for v, k in enumerate(keys(kind, n)) if v % 3 != 0)


@functools.cache
def keyed_rows(kind: str, n: int) -> Rows:
    """What `keyed` gives: (k, count, all)."""
    total: defaultdict[int, int] = defaultdict(int)
    count: defaultdict[int, int] = defaultdict(int)
    every = 0
    rows = []
    for v, k in enumerate(keys(kind, n)):
        if v % 11 == 0:
            continue
        total[k] += v
        if total[k] % 5 == 1:
            continue
        count[k] += 1
        every += count[k]
        rows.append((k, count[k], every))
    return tuple(rows)


def rows_of(batches: Any) -> Rows:
    """Rows of record batches, a table or a result."""
    if isinstance(batches, pa.Table):
        batches = batches.to_batches()
    return tuple(
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )


def difference(found: Rows, expected: Rows) -> str | None:
    """None, or where two outputs differ first (comparing them unsorted)."""
    if found == expected:
        return None
    for i, (a, b) in enumerate(zip(found, expected, strict=False)):
        if a != b:
            return f"row {i}: {a}, expected {b}; {len(found)} rows, expected {len(expected)}"
    return f"{len(found)} rows, expected {len(expected)}"
