"""The promise, 7, in bytes: one cap from the first input batch to the last output batch that nobody has taken, for rows of any width.

Batches end where 32-bit offsets or memory do, also in the middle of a chunk; what they hold, in which order, does not depend on it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordstream as od
from ordstream import source
from ordstream._core._testing import set_offset_limit
from ordstream.testing import run_serial

SCHEMA = pa.schema([("i", pa.int64()), ("k", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.string())), ("n", pa.list_(pa.int32()))])
LEAST_BATCH = 64 << 10  # a smaller bound on an output batch is not kept (egress.pyx)


def rows_of_width(seed: int, n: int, width: int, longest: int) -> pa.Table:
    """Rows with strings and lists of random sizes around `width` bytes, at most `longest`; some are null, some empty."""
    rng = random.Random(seed)

    def text() -> str:
        return chr(97 + rng.randrange(26)) * min(rng.choice([0, 1, width // 2, width, 2 * width]), longest)

    def words() -> list[str]:
        left, found = longest, []
        for _ in range(rng.randrange(4)):
            found.append(text()[: left // 2])
            left -= len(found[-1])
        return found

    return pa.table(
        {
            "i": list(range(n)),
            "k": [rng.randrange(3) for _ in range(n)],
            "s": [None if rng.random() < 0.1 else text() for _ in range(n)],
            "l": [None if rng.random() < 0.1 else words() for _ in range(n)],
            "n": [list(range(min(rng.randrange(width), longest))) for _ in range(n)],
        },
        schema=SCHEMA,
    )


def pipelines() -> dict[str, od.Pipeline]:
    start = od.Pipeline(SCHEMA)
    many = pa.schema([("i", pa.int64()), ("s", pa.string())])

    def copies(row: Any) -> Iterator[tuple[int, str | None]]:
        yield from [(row.i, row.s)] * (40 if row.i % 7 == 3 else row.i % 3)

    return {
        "filter": start.filter(od.col("k") != 1),
        "keyed": start.key_by("k").scan(c=od.count()).filter(od.col("c") > 1),
        "explode": start.flat_map(copies, schema=many),
        "explode, keyed": start.flat_map(copies, schema=many).key_by("i").scan(c=od.count()),
        "flush": start.key_by("k").process(flushed, schema=many, state={"rows": list}, at_end=flush),
    }


def flushed(row: Any, state: Any, emit: Any) -> None:
    state.rows.append((row.i, row.s))
    if row.i % 5 == 0:
        emit(row.i, row.s)


def flush(key: Any, state: Any, emit: Any) -> None:
    for i, s in state.rows:
        emit(i, s)


@contextmanager
def watched(stream: Any) -> Iterator[Any]:
    """The stream; a run that stands still for long is cancelled, so that the test fails and does not hang."""
    timer = threading.Timer(120, stream.cancel)
    timer.start()
    try:
        with stream as out:
            yield out
    finally:
        timer.cancel()


def check(out: Any, expected: Any, slow: random.Random | None = None) -> list[pa.RecordBatch]:
    """Every batch says truly how far it goes, and together they are what a sequential run gives, tags included."""
    batches, through = [], []
    for batch in out:
        batches.append(batch)
        through.append(out._emitted_through)
        if slow is not None and slow.random() < 0.3:
            time.sleep(0.002)
    assert through == sorted(through)
    table = pa.Table.from_batches(batches, schema=out.schema)
    assert table.drop_columns(["_serial", "_index"]).equals(expected.table)
    assert list(zip(*(table[c].to_pylist() for c in ("_serial", "_index")), strict=True)) == expected.tags
    return batches
