"""Keys that move between two processes: throughput with and without, and what a move costs.

    python bench/moves.py [--rows 400000] [--heavy 0.7] [--rounds 3] [--work 200] [--dear 1]
    python bench/moves.py growth [--keys 1000] [--state 1000]

A word count whose counting is a plain Python function of some work (`--work`: steps of a loop per word).
Words are drawn so that hashing gives one of two processes the share `--heavy` of the rows. Runs with
`balance=od.Mixed()` and without take turns; the outputs are compared value for value. Printed per round:
rows per second of each, their ratio, moves, rows held, and the longest `move_delay`. With `--dear N` a
tenth of the words take N times the steps, so that rows alone do not tell what a word costs.

*growth*: half of all keys move once, with `--state` bytes each, of `--keys` keys, then 10 and 100 times so
many. Printed: steps, seconds of the move, `move_delay` and `unmoved_delay` of its worst step, and how long
the reader waited for a batch at most, behind the first second. Run on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.table import Assignment

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


def words(rows: int, heavy: float, work: int, dear: int = 1) -> pa.Table:
    """Rows of which one of two processes gets the share `heavy` by the ring of `od.Mixed()`."""
    keys = np.arange(4_000, dtype=np.int64)
    home = od.Mixed().ring(2).route_words(keys.view(np.uint64))
    draw = np.random.default_rng(1)
    of = [draw.choice(keys[home == node][:300], rows) for node in (0, 1)]
    picked = np.where(draw.random(rows) < heavy, *of)
    return pa.table([picked, np.where(picked % 10 == 0, work * dear, work)], schema=SCHEMA)


class HalfMove(Controller):
    """Every second key to the other process, once, as soon as all were met."""

    def __init__(self, keys: np.ndarray[Any, Any]) -> None:
        super().__init__(od.Mixed(table=None), 2)
        self._keys = keys.view(np.uint64)[::2]

    def decide(self) -> Move | None:
        self._collect()
        if self.pending is not None or not len(self._keys):
            return None
        keys, self._keys = self._keys, self._keys[:0]
        to = 1 - self.assignment.route_words(keys)
        return self._propose(Assignment(self.assignment.ring, keys, to), self.assignment)


def remembered(row: Any, state: Any, emit: Any) -> None:
    state.n += 1
    state.text = state.text or "x" * row.steps
    emit(row.word, state.n)


def growth(given: argparse.Namespace) -> None:
    """Print a line per number of keys."""
    counted_by = (
        od.Pipeline(SCHEMA)
        .key_by("word")
        .process(
            remembered,
            state={"n": pa.int64(), "text": pa.string()},
            schema=pa.schema([("word", pa.int64()), ("n", pa.int64())]),
            name="count",
        )
    )
    for keys in (given.keys, 10 * given.keys, 100 * given.keys):
        every = np.arange(keys, dtype=np.int64)
        rows = np.tile(every, max(4, given.rows // keys))
        table = pa.table([rows, np.full(len(rows), given.state)], schema=SCHEMA)
        stream: Any = counted_by.stream(table, processes=2, balance={1: HalfMove(every)})
        # the caller asks for the first report when every key was met
        stream._balancing._interval = stream._balancing._next = 2 * keys
        waits, last, began = [0.0], 0.0, 0.0
        with stream:
            for _ in stream:
                now = time.perf_counter()
                began = began or now
                if now - began > 1.0:
                    waits.append(now - last)
                last = now
        for move in stream.moves:
            print(
                f"{keys:9,} keys, {move.keys:8,} moved, {move.bytes / 1e6:7.1f} MB in {move.steps} steps, "
                f"{move.seconds:.2f} s; move_delay {move.move_delay * 1e3:.1f} ms, unmoved_delay "
                f"{move.unmoved_delay * 1e3:.1f} ms, the reader at most {max(waits) * 1e3:.1f} ms",
                flush=True,
            )


def timed(table: pa.Table, **options: Any) -> tuple[float, pa.Table, list[Any]]:
    start = time.perf_counter()
    with pipeline().stream(table, processes=2, **options) as stream:
        batches = list(stream)
        moves: list[Any] = getattr(stream, "moves", [])
        found = pa.Table.from_batches(batches, schema=stream.schema)
    return time.perf_counter() - start, found, moves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("throughput", "growth"), default="throughput")
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--state", type=int, default=1_000, help="bytes of a key's state, about")
    parser.add_argument("--dear", type=int, default=1)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--heavy", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=int, default=200)
    given = parser.parse_args()
    if given.what == "growth":
        growth(given)
        return
    table = words(given.rows, given.heavy, given.work, given.dear)
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
            f"{sum(move.held for move in moves)} rows held, move_delay {delay * 1e3:.1f} ms, "
            f"overload {[round(move.theta_before, 3) for move in moves]}",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.2f} times")


if __name__ == "__main__":
    main()
