"""Keys that move between two processes: throughput with and without, and what a move costs.

    python bench/moves.py [--rows 400000] [--heavy 0.7] [--rounds 3] [--work 200]

A word count whose counting is a plain Python function of some work (`--work`: steps of a loop per word).
Words are drawn so that hashing gives one of two processes the share `--heavy` of the rows. Runs with
`balance=od.Mixed()` and without take turns; the outputs are compared value for value. Printed per round:
rows per second of each, their ratio, moves, rows held, and the longest `move_delay`. Run on a quiet
machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od

SCHEMA = pa.schema([("word", pa.int64()), ("steps", pa.int64())])


def counted(row: Any, state: Any, emit: Any) -> None:
    total = 0
    for step in range(row.steps):
        total += step
    state.n += 1
    emit(row.word, state.n)


def pipeline() -> od.Pipeline:
    return (
        od.Pipeline(SCHEMA)
        .key_by("word")
        .process(
            counted,
            state={"n": pa.int64()},
            schema=pa.schema([("word", pa.int64()), ("n", pa.int64())]),
            name="count",
        )
    )


def words(rows: int, heavy: float, work: int) -> pa.Table:
    """Rows of which one of two processes gets the share `heavy` by the ring of `od.Mixed()`."""
    keys = np.arange(4_000, dtype=np.int64)
    home = od.Mixed().ring(2).route_words(keys.view(np.uint64))
    draw = np.random.default_rng(1)
    of = [draw.choice(keys[home == node][:300], rows) for node in (0, 1)]
    return pa.table([np.where(draw.random(rows) < heavy, *of), np.full(rows, work)], schema=SCHEMA)


def timed(table: pa.Table, **options: Any) -> tuple[float, pa.Table, list[Any]]:
    start = time.perf_counter()
    with pipeline().stream(table, processes=2, **options) as stream:
        batches = list(stream)
        moves: list[Any] = getattr(stream, "moves", [])
        found = pa.Table.from_batches(batches, schema=stream.schema)
    return time.perf_counter() - start, found, moves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--heavy", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=int, default=200)
    given = parser.parse_args()
    table = words(given.rows, given.heavy, given.work)
    # Without plans the same ring routes: od.Mixed never finds a load above this bound.
    still, moving = od.Mixed(theta=1e6), od.Mixed()
    ratios = []
    for _ in range(given.rounds):
        before, expected, none = timed(table, balance=still)
        after, found, moves = timed(table, balance=moving)
        assert not none
        assert found.equals(expected)
        ratios.append(before / after)
        delay = max((move.move_delay for move in moves), default=0.0)
        print(
            f"{given.rows / before:12,.0f} {given.rows / after:12,.0f} rows/s  {ratios[-1]:5.2f} times  "
            f"{len(moves)} moves of {sum(move.keys for move in moves)} keys, "
            f"{sum(move.held for move in moves)} rows held, move_delay {delay * 1e3:.1f} ms",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.2f} times")


if __name__ == "__main__":
    main()
