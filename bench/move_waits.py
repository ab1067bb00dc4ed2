"""What a move of keys between two processes costs those it meets: waits and memory (`bench/moves.py`).

*waits*: an open loop. Rows come at `--rate` a second, a batch every millisecond, each key in turn; a row
takes `--work` steps in a plain Python function. Twice a second a group of keys with `--group` bytes of state
goes to the other process, or back. A row is processed when its function ends; its delay counts from when it
was to come. Runs with and without moves take turns. Compared are the same rows of both: those that were to
come while a move lasted. Printed per round: the p99 of keys that stay, with moves over without; how long a
row of the group waits at most, by move; what the stream itself says (`stream.moves`); and the median delay
of all rows, which must be small: else the machine does not keep up with the rate. First with steps of a move
as they are, then with the group in one step.

*memory*: `--keys` keys with `--state` bytes each; half of those of each process move, once. The peak of the
memory (RSS) of the caller and both processes together, looked at every 5 ms, over that of a run without.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments import balancing

WAITS = pa.schema([("word", pa.int64()), ("due", pa.int64()), ("steps", pa.int64()), ("size", pa.int64())])
TICK_S, EVERY_S = 0.001, 0.5
#: Of each key, rows in a run whose memory is looked at, at least.
TIMES = 12
STILL = od.Mixed(theta=1e6)


class Shuttle(Controller):
    """Keys go to the other process and back, at every report; `times`: no more often."""

    def __init__(self, keys: np.ndarray[Any, Any], times: int = 1 << 30) -> None:
        super().__init__(od.Mixed(table=None), 2)
        self._keys, self._left = np.sort(keys.view(np.uint64)), times

    def decide(self) -> Move | None:
        self._collect()
        if self.pending is not None or not self._left:
            return None
        self._left -= 1
        to = 1 - self.assignment.route_words(self._keys)
        return self._propose(Assignment(self.assignment.ring, self._keys, to), self.assignment)


def timed(row: Any, state: Any, emit: Any) -> None:
    total = 0
    for step in range(row.steps):
        total += step
    state.text = state.text or "x" * row.size
    emit(row.word, time.perf_counter_ns() - row.due)


def pipeline() -> od.Pipeline:
    fields = pa.schema([("word", pa.int64()), ("delay", pa.int64())])
    state = {"text": pa.string()}
    return od.Pipeline(WAITS).key_by("word").process(timed, state=state, schema=fields, name="timed")


def arriving(keys: np.ndarray[Any, Any], given: argparse.Namespace) -> Iterator[pa.RecordBatch]:
    """Each at its time."""
    start, sent = time.perf_counter_ns(), 0
    count, each = int(given.rate * given.seconds), 1e9 / given.rate
    while sent < count:
        now = min(count, int((time.perf_counter_ns() - start) / each))
        if now > sent:
            numbers = np.arange(sent, now)
            yield pa.record_batch(
                [
                    keys[numbers % len(keys)],
                    (start + numbers * each).astype(np.int64),
                    np.full(len(numbers), given.work),
                    np.full(len(numbers), given.state),
                ],
                schema=WAITS,
            )
            sent = now
        time.sleep(TICK_S)


def delays(keys: np.ndarray[Any, Any], balance: Any, given: argparse.Namespace) -> tuple[Any, list[Any]]:
    """Milliseconds from when each row was to come until it was processed, by its place; the moves."""
    stream: Any = pipeline().stream(arriving(keys, given), processes=2, balance=balance)
    stream._balancing._interval = int(given.rate * EVERY_S)
    stream._balancing._next = max(2 * len(keys), stream._balancing._interval)
    with stream:
        found = pa.Table.from_batches([*stream], schema=stream.schema)
        return found["delay"].to_numpy() / 1e6, stream.moves


@contextlib.contextmanager
def in_one_step(whole: bool) -> Iterator[None]:
    """Moves are not divided."""
    before = balancing.STEP_KEYS, balancing.STEP_BYTES
    if whole:
        balancing.STEP_KEYS = balancing.STEP_BYTES = 1 << 40
    try:
        yield
    finally:
        balancing.STEP_KEYS, balancing.STEP_BYTES = before


def waits(given: argparse.Namespace) -> None:
    """Print a line per round."""
    keys = np.arange(4 * given.group // given.state, dtype=np.int64)
    group = keys[od.Mixed().ring(2).route_words(keys.view(np.uint64)) == 0][: given.group // given.state]
    for whole in (False, True):
        ratios, held = [], []
        with in_one_step(whole):
            for _ in range(given.rounds):
                still, _ = delays(keys, {1: Controller(STILL, 2)}, given)
                found, moves = delays(keys, {1: Shuttle(group)}, given)
                numbers = np.arange(len(found))
                stays = ~np.isin(keys[numbers % len(keys)], group)
                during = np.zeros(len(found), dtype=bool)
                longest = []
                for move in moves:
                    window = slice(move.serial, move.serial + int(move.seconds * given.rate) + 1)
                    during[window] = True
                    of_group = found[window][~stays[window]]
                    longest.append(float(of_group.max()) if len(of_group) else 0.0)
                both = [float(np.percentile(one[during & stays], 99)) for one in (found, still)]
                ratios.append(both[0] / both[1])
                held += longest
                print(
                    f"{len(moves)} moves of {moves[0].bytes / 1e6:.2f} MB in {moves[0].steps} steps, "
                    f"{statistics.median(one.seconds for one in moves) * 1e3:.0f} ms each: keys that stay "
                    f"p99 {both[0]:.1f} ms, without moves {both[1]:.1f}, {ratios[-1]:.2f} times; a row of "
                    f"the group waits {statistics.median(longest):.1f} ms at most (median of moves; "
                    f"{max(longest):.1f}); move_delay {max(one.move_delay for one in moves) * 1e3:.1f} ms; "
                    f"median delay of all rows {np.median(found):.1f} ms",
                    flush=True,
                )
        print(
            f"{'in one step' if whole else 'in steps'}: median {statistics.median(ratios):.2f} times; a "
            f"row of the group waits {statistics.median(held):.1f} ms at most (median of {len(held)} moves)",
            flush=True,
        )


# ------------------------------------------------------------------------------------------------ memory


class Peak:
    """Looks at the memory of processes until it is left: `peak`, in bytes."""

    def __init__(self, processes: list[int]) -> None:
        self._paths = [Path(f"/proc/{one}/statm") for one in processes]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.peak = 0

    def _run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(0.005):
            with contextlib.suppress(OSError):  # one has ended
                self.peak = max(
                    self.peak, page * sum(int(one.read_text().split()[1]) for one in self._paths)
                )

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()


def peak_of(
    keys: np.ndarray[Any, Any], balance: Any, given: argparse.Namespace, count: int | None = None
) -> tuple[int, list[Any], int]:
    """The peak of a run over so many rows, or over `TIMES` of each key and on until a move is over; its
    moves, and its rows.
    """
    over, least = threading.Event(), TIMES * len(keys)

    def rows() -> Iterator[pa.RecordBatch]:
        at = 0
        while at < count if count is not None else at < least or not over.is_set():
            words = np.take(keys, np.arange(at, at + 4_096), mode="wrap")
            at += len(words)
            filled = [np.full(len(words), one) for one in (0, 0, given.state)]
            yield pa.record_batch([words, *filled], schema=WAITS)

    stream: Any = pipeline().stream(rows(), processes=2, balance=balance)
    stream._balancing._interval = stream._balancing._next = len(keys)
    with stream:
        came = next(stream).num_rows
        with Peak([os.getpid(), *(one.pid for one in stream._pool._processes)]) as looked:
            for batch in stream:
                came += batch.num_rows
                if stream.moves:
                    over.set()
        return looked.peak, stream.moves, came


def memory(given: argparse.Namespace) -> None:
    """Print a line per round."""
    keys, ratios = np.arange(given.keys, dtype=np.int64), []
    for _ in range(given.rounds):
        moving, moves, count = peak_of(keys, {1: Shuttle(keys[::2], times=1)}, given)
        still, _, _ = peak_of(keys, {1: Controller(STILL, 2)}, given, count)
        ratios.append(moving / still)
        print(
            f"{moves[0].bytes / 1e6:.1f} MB moved in {moves[0].steps} steps, {count:,} rows: peak "
            f"{moving / 1e6:.0f} MB, without {still / 1e6:.0f} MB, {ratios[-1]:.2f} times",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.2f} times")
