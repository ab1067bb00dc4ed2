"""Keys that move between two processes: throughput with and without, and what a move costs.

    python bench/moves.py [--rows 400000] [--heavy 0.7] [--rounds 3] [--work 200] [--dear 1]
    python bench/moves.py growth [--keys 1000] [--state 1000]
    python bench/moves.py waits [--rate 20000] [--seconds 10] [--work 1000] [--group 1000000] [--state 1000]
    python bench/moves.py memory [--keys 100000] [--state 1000]

A word count whose counting is a plain Python function of some work (`--work`: steps of a loop per word).
Words are drawn so that hashing gives one of two processes the share `--heavy` of the rows. Runs with
`balance=od.Mixed()` and without take turns; the outputs are compared value for value. Printed per round:
rows per second of each from its first output on (processes have started then; planning and moving count),
their ratio, moves, rows held, and the longest `move_delay`. With `--dear N` a tenth of the words take N
times the steps, so that rows alone do not tell what a word costs.

What balance could give at best is printed beside: without it the fuller node's CPU time, or all CPU time
over the processors if that is more; with it half of the nodes' CPU time, or all over the processors. The
caller's CPU time is part of all: on two processors it takes its share from the nodes.

*growth*: half of all keys move once, with `--state` bytes each, of `--keys` keys, then 10 and 100 times so
many. Rows come until the move is over, and for half a second more. Printed: steps, seconds of the move,
`move_delay` and `unmoved_delay` of its worst step, and how long the reader waited for a batch at most while
it lasted. Run on a quiet machine.

*waits*, *memory*: bench/move_waits.py says what is measured.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import move_waits
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
        over = threading.Event()

        def rows(every: Any = every, over: threading.Event = over) -> Iterator[pa.RecordBatch]:
            end, at = None, 0
            while end is None or time.perf_counter() < end:
                end = end or (time.perf_counter() + 0.5 if over.is_set() else None)
                words = np.take(every, np.arange(at, at + 4_096), mode="wrap")
                at += 4_096
                yield pa.record_batch([words, np.full(len(words), given.state)], schema=SCHEMA)

        stream: Any = counted_by.stream(rows(), processes=2, balance={1: HalfMove(every)})
        # the caller asks for the first report when every key was met
        stream._balancing._interval = stream._balancing._next = 2 * keys
        arrived = []
        with stream:
            for _ in stream:
                arrived.append(time.perf_counter())
                if stream.moves:
                    over.set()
        ended = arrived[-1] - 0.5
        waits = [b - a for a, b in itertools.pairwise(arrived) if b > ended - stream.moves[0].seconds]
        for move in stream.moves:
            print(
                f"{keys:9,} keys, {move.keys:8,} moved, {move.bytes / 1e6:7.1f} MB in {move.steps} steps, "
                f"{move.seconds:.2f} s; move_delay {move.move_delay * 1e3:.1f} ms, unmoved_delay "
                f"{move.unmoved_delay * 1e3:.1f} ms, the reader at most {max(waits) * 1e3:.1f} ms",
                flush=True,
            )


class Timed(NamedTuple):
    """A run: rows per second from its first output on, CPU seconds of the caller and of both nodes."""

    rate: float
    caller_s: float
    nodes_s: float
    output: pa.Table
    moves: list[Any]


def timed(table: pa.Table, **options: Any) -> Timed:
    before = os.times()
    with pipeline().stream(table, processes=2, **options) as stream:
        batches = [next(stream)]
        start = time.perf_counter()
        batches += stream
        took = time.perf_counter() - start
        moves: list[Any] = getattr(stream, "moves", [])
        found = pa.Table.from_batches(batches, schema=stream.schema)
    after = os.times()
    nodes = after.children_user + after.children_system - before.children_user - before.children_system
    own = after.user + after.system - before.user - before.system
    return Timed((found.num_rows - batches[0].num_rows) / took, own, nodes, found, moves)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ("throughput", "growth", "waits", "memory")
    parser.add_argument("what", nargs="?", choices=kinds, default="throughput")
    parser.add_argument("--keys", type=int, help="1,000; memory: 100,000")
    parser.add_argument("--state", type=int, default=1_000, help="bytes of a key's state, about")
    parser.add_argument("--dear", type=int, default=1)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--heavy", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=int, help="200; waits: 1,000")
    parser.add_argument("--rate", type=float, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--group", type=int, default=1_000_000, help="bytes of state that move together")
    given = parser.parse_args()
    given.keys = given.keys or (100_000 if given.what == "memory" else 1_000)
    if given.work is None:
        given.work = 1_000 if given.what == "waits" else 200
    apart = {"growth": growth, "waits": move_waits.waits, "memory": move_waits.memory}
    if given.what in apart:
        apart[given.what](given)
        return
    table = words(given.rows, given.heavy, given.work, given.dear)
    # Without plans the same ring routes: od.Mixed never finds a load above this bound.
    still, moving = od.Mixed(theta=1e6), od.Mixed()
    ratios = []
    start = timed(table.slice(0, 64), balance=still)  # what starting costs
    for _ in range(given.rounds):
        before, after = timed(table, balance=still), timed(table, balance=moving)
        assert not before.moves
        assert after.output.equals(before.output)
        ratios.append(after.rate / before.rate)
        moves = after.moves
        delay = max((move.move_delay for move in moves), default=0.0)
        print(
            f"{before.rate:12,.0f} {after.rate:12,.0f} rows/s  {ratios[-1]:5.2f} times  "
            f"{len(moves)} moves of {sum(move.keys for move in moves)} keys, "
            f"{sum(move.held for move in moves)} rows held, move_delay {delay * 1e3:.1f} ms, "
            f"overload {[round(move.theta_before, 3) for move in moves]}",
            flush=True,
        )
        print(best(before, after, start, given.heavy), flush=True)
    print(f"median {statistics.median(ratios):.2f} times")


def best(before: Timed, after: Timed, start: Timed, heavy: float) -> str:
    """What balance could give with this CPU time, and with what the balanced run took."""
    cores = min(3, len(os.sched_getaffinity(0)))

    def at_least(run: Timed, share: float) -> float:
        nodes, caller = run.nodes_s - start.nodes_s, max(0.0, run.caller_s - start.caller_s)
        return max(share * nodes, caller, (nodes + caller) / cores)

    still, same, moved = at_least(before, heavy), at_least(before, 0.5), at_least(after, 0.5)
    return (
        f"{'':12} CPU s, starting left out: nodes {before.nodes_s - start.nodes_s:.2f} and "
        f"{after.nodes_s - start.nodes_s:.2f}, caller {before.caller_s - start.caller_s:.2f} and "
        f"{after.caller_s - start.caller_s:.2f}; at best {still / same:.2f} times, {still / moved:.2f} with "
        "what the balanced run took"
    )


if __name__ == "__main__":
    main()
