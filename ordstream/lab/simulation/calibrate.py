"""Measuring a cost model on this machine: micro-benchmarks of the core's parts, and real runs without work.

What one worker's path costs comes from real runs of pipelines whose functions do nothing, at several chunk
sizes, as straight lines: ns per chunk = a + b * rows (+ c * parts). A worker among several is measured with
nobody beside it: a run for two workers of which one is started, so that every access is the shared one and
nothing waits. What passes between cores comes from two threads that take turns. Nothing is fitted to a run
with two workers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.ground import chunk as core_chunk
from ordstream._core.lab import bench_costs as _bench_costs
from ordstream.errors import PlanError
from ordstream.lab.evaluation.machine import about
from ordstream.lab.simulation import real
from ordstream.lab.simulation.cost_model import CostModel, PathCosts
from ordstream.lab.simulation.node import routes

CHUNKS = (1, 16, 64, 256, 1024)
#: Largest number of chunks taken in one hold of the ingress's flag (slices.pyx, INGRESS_RUN).
INGRESS_RUN = 16
CLOCK_CALLS = 1_000_000


def measure(seconds: float = 0.04, repeats: int = 5) -> CostModel:
    """Measure everything; about `seconds * repeats * 60` s on two cores that are otherwise idle.

    Raises
    ------
    PlanError
        On a machine with one core: nothing passes between cores there.
    """
    if (os.cpu_count() or 1) < 2:
        raise PlanError("a cost model needs two cores: it holds what passes between them")
    rmw, _ = _best(_bench_costs.Table().locked, CLOCK_CALLS)
    notify, wake = waking()
    few, many = (min(_bench_costs.choosing("ct", n, 100_000) for _ in range(5)) for n in (1, 9))
    clock = min(_bench_costs.clock(CLOCK_CALLS) for _ in range(3))
    entering = _bench_costs.entering(8, 2000)
    alone = path_costs(1, entering, seconds, repeats)
    shared = path_costs(2, entering, seconds, repeats)
    return CostModel(
        transfer=transfer(rmw),
        byte=streaming(),
        scatter=scatter(),
        rmw=rmw,
        decide=few - (many - few) / 8 + clock,
        decide_each=(many - few) / 8,
        slice=clock,
        notify=notify,
        wake=wake,
        yields=_bench_costs.yielding(100_000),
        publish=notify,
        read_row=reading(seconds),
        slowdown=slowdown(),
        alone=alone,
        shared=shared,
        about=about("ordstream bench cost-model"),
    )


def slowdown() -> float:
    """How many times as long a plain loop takes while every core runs one."""
    one = min(real.loops(real.BATCH, 200, 1) for _ in range(20))
    return max(1.0, min(real.loops(real.BATCH, 200, os.cpu_count() or 1) for _ in range(40)) / one)


def transfer(rmw: float, repeats: int = 7) -> float:
    """ns that a cache line takes from the core that wrote it to one that waits for it; not a constant on
    a virtual machine.
    """
    turns = two_sides(lambda table, side: table.take_turns(side, 2000, 0, 0), repeats)
    chain = two_sides(lambda table, side: table.take_turns(side, 2000, 16, 0), repeats)
    return max(0.0, (chain - turns) / 16 - rmw)


def streaming(repeats: int = 7) -> float:
    """ns per byte of a block that another core wrote, more than of one's own; follows `transfer`."""
    size = 1 << 16
    lines = two_sides(lambda table, side: table.take_turns(side, 1000, 0, 0), repeats)
    block = two_sides(lambda table, side: table.take_turns(side, 100, 0, size), repeats)
    own = min(_bench_costs.Table().alone(100, size) for _ in range(repeats))
    return max(0.0, (block - lines - own) / size)


def scatter(repeats: int = 7, lines: int = 512) -> float:
    """ns per line of many at random places that another core wrote, where loads overlap, more than of
    one's own; follows `transfer`.
    """
    turns = two_sides(lambda table, side: table.scattered(side, 1000, 0), repeats)
    many = two_sides(lambda table, side: table.scattered(side, 100, lines), repeats)
    own = min(_bench_costs.Table().scattered(-1, 100, lines) for _ in range(repeats))
    return max(0.0, (many - turns - own) / lines)


def two_sides(body: Callable[[_bench_costs.Table, int], float], repeats: int = 7) -> float:
    """Run both sides of a measurement in two threads; the fastest of `repeats`."""
    found = []
    for _ in range(repeats):
        table = _bench_costs.Table()
        results = [0.0, 0.0]

        def side(number: int, table: _bench_costs.Table = table, results: list[float] = results) -> None:
            results[number] = body(table, number)

        threads = [threading.Thread(target=side, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.append(max(results))
    return min(found)


def waking(rounds: int = 101, pause_us: int = 300) -> tuple[float, float]:
    """(ns for the one who wakes, ns until the woken one runs), medians."""
    table = _bench_costs.Table()
    waiter = threading.Thread(target=table.waiter, args=(rounds,))
    waiter.start()
    found = table.waker(rounds, pause_us * 1000)
    waiter.join()
    return found


def _best(measurement: Callable[[int], tuple[float, float]], rounds: int) -> tuple[float, float]:
    runs = [measurement(rounds) for _ in range(5)]
    return min(a for a, _ in runs), min(b for _, b in runs)


def reading(seconds: float) -> float:
    """ns per source tuple that the thread that feeds and reads spends."""
    chain = real.Chain((("SL", 0),))
    tuples = max(1, int(seconds / 2e-9 / real.BATCH)) * real.BATCH
    runs = [real.run(chain, chain.batches(tuples), workers=1, chunk_rows=1024) for _ in range(3)]
    return min(ran.reader_seconds / ran.tuples for ran in runs) * 1e9


# --- one worker's path ----------------------------------------------------------------------------


def path_costs(workers: int, entering: tuple[float, float], seconds: float, repeats: int) -> PathCosts:
    """The path of one worker in a run for so many (1: alone; 2: as among several, nobody beside it)."""

    def per_chunk(parts: Sequence[str], chunk: int, **options: Any) -> npt.NDArray[np.float64]:
        """ns per source chunk that each operator took."""
        chain = real.Chain(tuple((kind, 0) for kind in parts))
        tuples = max(4096, int(seconds * 1e9 / (60.0 / chunk + 3.0) / len(parts))) // 4096 * 4096
        batches = chain.batches(tuples)
        runs = [
            real.run(chain, batches, threads=1, workers=workers, chunk_rows=chunk, **options)
            for _ in range(repeats)
        ]
        return np.asarray(
            np.min([ran.worker_ns for ran in runs], axis=0) / (tuples / chunk), dtype=np.float64
        )

    rows = np.array(CHUNKS, dtype=np.float64)
    ones = np.ones(len(CHUNKS))
    small = np.array(sorted({1, 2, 4, 8, *CHUNKS}))
    first = np.array([per_chunk(["SL"], int(chunk))[0] for chunk in small])
    pairs = np.array([per_chunk(["SL", "SL"], chunk) for chunk in CHUNKS])
    stateful = np.array([per_chunk(["SL", "SF"], chunk) for chunk in CHUNKS])
    hold, sl_chunk, sl_tuple = fit_line(
        [holds_per_chunk(small), np.ones(len(small)), small.astype(np.float64)], first
    )
    next_chunk, next_tuple = fit_line([ones, rows], pairs[:, 1])
    sf_chunk, sf_tuple = fit_line([ones, rows], stateful[:, 1])
    egress_chunk, egress_tuple = egress()
    next_empty, sf_empty = (float(per_chunk(["none", kind], 1)[1]) for kind in ("SL", "SF"))
    split: tuple[float, ...] = (0.0, 0.0, 0.0)
    ps = split
    enter_chunk, enter_part = entering
    if workers > 1:
        sizes, parts, ahead, behind = [], [], [], []
        for p in (8, 64):
            for chunk in CHUNKS:
                found = per_chunk(["PS"], chunk, buckets=p)
                sizes.append(chunk)
                parts.append(mean_parts(chunk, p))
                ahead.append(found[0])
                behind.append(found[1])
        rows2, parts2, ones2 = np.array(sizes, dtype=np.float64), np.array(parts), np.ones(len(sizes))
        own = (
            np.array(ahead)
            - hold * holds_per_chunk(rows2)
            - (sl_chunk - egress_chunk)
            - rows2 * (sl_tuple - egress_tuple)
            - enter_chunk
        )
        split = fit_line([ones2, rows2, parts2], np.maximum(own, 0.0))
        ps = fit_line([ones2, rows2, parts2], np.array(behind))
    return PathCosts(
        hold=hold,
        sl_chunk=max(0.0, sl_chunk - egress_chunk),
        sl_tuple=max(0.0, sl_tuple - egress_tuple),
        next_chunk=max(0.0, next_chunk - egress_chunk),
        next_tuple=max(0.0, next_tuple - egress_tuple),
        enter_chunk=enter_chunk,
        enter_part=enter_part,
        split_chunk=split[0],
        split_tuple=split[1],
        split_part=max(0.0, split[2] - enter_part),
        ps_chunk=max(0.0, ps[0] - egress_chunk),
        ps_tuple=max(0.0, ps[1] - egress_tuple),
        ps_part=ps[2],
        sf_chunk=max(0.0, sf_chunk - egress_chunk),
        sf_tuple=max(0.0, sf_tuple - egress_tuple),
        egress_chunk=egress_chunk,
        egress_tuple=egress_tuple,
        next_empty=next_empty,
        sf_empty=sf_empty,
    )


def egress() -> tuple[float, float]:
    """(ns per chunk, ns per row) of writing one column of output."""
    layout = core_chunk.layout_of(real.VALUE)
    one, many = (
        min(_bench_costs.appending(layout, rows, 20_000_000 // (rows + 1000)) for _ in range(5))
        for rows in (1, 1024)
    )
    per_row = max(0.0, (many - one) / 1023)
    return max(0.0, one - per_row), per_row


def holds_per_chunk(chunks: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Holds of the ingress's flag per chunk."""
    return np.asarray(1.0 / np.maximum(INGRESS_RUN // chunks, 1), dtype=np.float64)


def mean_parts(chunk: int, buckets: int, hashes: npt.NDArray[np.uint64] | None = None) -> float:
    """Buckets that a chunk of consecutive rows with these key hashes (default: the keyed batch) has rows
    of, on average.
    """
    hashes = real.hashes() if hashes is None else hashes
    chunk = min(chunk, len(hashes))
    bucket = routes(hashes[: len(hashes) // chunk * chunk], buckets).reshape(-1, chunk)
    return float(np.mean([len(np.unique(one)) for one in bucket[:: max(1, len(bucket) // 500)]]))


def fit_line(
    columns: Sequence[npt.NDArray[np.float64]], values: npt.NDArray[np.float64]
) -> tuple[float, ...]:
    """Coefficients, none negative, that fit `values` with the smallest relative errors."""
    kept = list(range(len(columns)))
    weights = 1.0 / np.maximum(values, 1.0)
    while True:
        matrix = np.stack([columns[k] * weights for k in kept], axis=1)
        found, *_ = np.linalg.lstsq(matrix, values * weights, rcond=None)
        if (found >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(np.argmin(found)))
    answer = np.zeros(len(columns))
    answer[kept] = np.maximum(found, 0.0)
    return tuple(float(one) for one in answer)
