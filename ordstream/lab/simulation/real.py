"""Real runs of the pipelines that a simulation is measured by and compared with: known work per tuple, known
answers.

Stages are the benchmark kernels of `_core/lab/bench_kernels`: "SL" replaces the value by so many steps of a
generator, "PS" and "SF" add the running count of the row's key. Keys are Zipf-1 over 1,000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import ordstream as od
from ordstream._core.ground import arrow as core_arrow
from ordstream._core.ground import chunk as core_chunk
from ordstream._core.ground.imported_batch import BatchFormats
from ordstream._core.lab import bench_kernels as _bench
from ordstream._core.state.routing import key_hashes
from ordstream.errors import Cancelled
from ordstream.lab.spin import Spin, SpinCount
from ordstream.node import node
from ordstream.operators.operator import Operator
from ordstream.plan.plan import Plan

BATCH = 1 << 17
KEYS = 1_000
#: After that long a run that should stop before the end of its stream is stopped.
MOST_SECONDS = 20.0
VALUE = pa.schema([("value", pa.int64())])
KEY_VALUE = pa.schema([("key", pa.int64()), ("value", pa.int64())])
MULTIPLIER, INCREMENT = 6364136223846793005, 1442695040888963407


@dataclass(frozen=True)
class Chain:
    """A chain of stages: (kind, generator steps per tuple), or ("none", 0), which lets no tuple pass;
    what the node asks of a pipeline.
    """

    parts: tuple[tuple[str, int], ...]

    @property
    def keyed(self) -> bool:
        """Has keys, and so two columns."""
        return any(kind in ("PS", "SF") for kind, _ in self.parts)

    @property
    def source_schema(self) -> pa.Schema:
        return KEY_VALUE if self.keyed else VALUE

    schema = source_schema

    @property
    def plan(self) -> Plan:
        schema = self.source_schema
        made: list[Operator] = []
        for i, (kind, spins) in enumerate(self.parts):
            common: dict[str, Any] = {
                "input": schema,
                "output": schema,
                "spins": spins,
                "column": int(self.keyed),
            }
            if kind == "none":
                made += od.Pipeline(schema).filter(od.col("value") < 0).plan.operators
            elif kind == "SL":
                made.append(Spin(name=f"{i} spin", **common))
            else:
                made.append(
                    SpinCount(name=f"{i} count", key=(0,), buckets=1 if kind == "SF" else None, **common)
                )
        return Plan.line(schema, made)

    def batches(self, tuples: int) -> list[pa.RecordBatch]:
        """`tuples` rows: one batch over and over."""
        values, keys = data()
        columns = [pa.array(keys), pa.array(values)] if self.keyed else [pa.array(values)]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.source_schema)
        whole, rest = divmod(tuples, BATCH)
        return [batch] * whole + ([batch.slice(0, rest)] if rest else [])

    def expected(self, tuples: int) -> npt.NDArray[np.int64]:
        """The value column of the output, without the core."""
        values, keys = data()
        repeats = -(-tuples // BATCH)
        results = np.tile(values, repeats)[:tuples]
        tiled = np.tile(keys, repeats)[:tuples]
        order = np.argsort(tiled, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(tiled, minlength=KEYS))])
        counts = np.empty(tuples, np.int64)
        counts[order] = np.arange(tuples) - starts[tiled[order]] + 1
        for kind, spins in self.parts:
            results = spun(results, spins)
            if kind != "SL":
                results = results + counts
        return results


@cache
def data() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Values and Zipf-1 keys of a batch, the same in every session."""
    rng = np.random.default_rng(20130101)
    values = rng.integers(0, 1 << 62, BATCH, dtype=np.int64)
    weights = 1.0 / np.arange(1, KEYS + 1)
    return values, rng.permutation(KEYS)[rng.choice(KEYS, BATCH, p=weights / weights.sum())].astype(np.int64)


@cache
def hashes() -> npt.NDArray[np.uint64]:
    """Key hashes of the batch, as the node routes by."""
    batch = pa.RecordBatch.from_arrays([pa.array(data()[1]), pa.array(data()[0])], schema=KEY_VALUE)
    return key_hashes(
        batch, [0], core_chunk.layout_of(KEY_VALUE), BatchFormats(core_arrow.core_schema(KEY_VALUE))
    )


def spun(values: npt.NDArray[np.int64], steps: int) -> npt.NDArray[np.int64]:
    """What "SL" makes of values: the closed form of `steps` steps, and one more."""
    a, c = 1, 0
    for _ in range(steps):
        a, c = a * MULTIPLIER % 2**64, (c * MULTIPLIER + INCREMENT) % 2**64
    return (values.view(np.uint64) * np.uint64(a) + np.uint64(c) + np.uint64(1)).view(np.int64)


def step_ns() -> float:
    """ns of one generator step now: the fastest of some hundred short loops."""
    values = data()[0][:4096]
    results = np.empty_like(values)
    return min(_bench.loop(values, results, 1, 64) for _ in range(200)) / (len(values) * 64)


def verify(chain: Chain, tuples: int, **options: Any) -> None:
    """One run whose output must be right, every value, in order.

    Raises
    ------
    AssertionError
    """
    table = node.run(chain, chain.batches(tuples), **options).table
    got, expected = table["value"].to_numpy(), chain.expected(tuples)
    if len(got) != len(expected) or not np.array_equal(got, expected):
        wrong = np.flatnonzero(got[: len(expected)] != expected[: len(got)])
        raise AssertionError(
            f"{chain.parts} {options}: {len(got)} results of {len(expected)}, first difference at "
            f"{wrong[:1]}"
        )


@dataclass(frozen=True)
class Ran:
    """A real run: seconds from start to last output, worker ns per operator, CPU seconds of the reading
    thread.
    """

    tuples: int
    seconds: float
    worker_ns: tuple[float, ...]
    reader_seconds: float
    report: Any

    @property
    def throughput(self) -> float:
        """Tuples per second."""
        return self.tuples / self.seconds


def run(
    chain: Any,
    batches: Sequence[pa.RecordBatch],
    threads: int | None = None,
    flush: bool = True,
    **options: Any,
) -> Ran:
    """One run, output dropped.

    `threads`: start only so many of the `workers`: the path of a worker among several, with nobody else on
    it. `flush` False: stop when the last tuple's output is out, before the end of the stream, at which
    operators emit what they hold.
    """
    rows = 0
    options = {"marker_every": 1 << 40, "partial": False} | options

    def without_end() -> Iterator[pa.RecordBatch]:
        yield from batches
        last = sum(batch.num_rows for batch in batches)
        patience = time.perf_counter() + MOST_SECONDS
        while out.progress()[2] < last and time.perf_counter() < patience:
            time.sleep(0.001)
        out.cancel()

    given = batches if flush else without_end()
    with (
        node.stream(chain, given, feeder=None if flush else "caller", **options) as out,
        suppress(Cancelled),
    ):
        if threads is not None:
            out.start_only(threads)
        cpu = time.thread_time()
        begin = time.perf_counter()
        for batch in out:
            rows += batch.num_rows
    seconds = time.perf_counter() - begin
    cpu = time.thread_time() - cpu
    report = out.report
    busiest = max(report.operators, key=lambda o: o.tuples_in)
    total = busiest.cost_ns * busiest.tuples_in / busiest.worker_share if busiest.worker_share else 0.0
    return Ran(report.tuples, seconds, tuple(o.worker_share * total for o in report.operators), cpu, report)


def beside(runs: int, chain: Any, batches: Sequence[pa.RecordBatch], **options: Any) -> list[Ran]:
    """So many runs at the same time, one worker each: what a function takes while other cores use the
    memory too.
    """
    if runs == 1:
        return [run(chain, batches, **options)]
    with ThreadPoolExecutor(runs) as pool:
        return list(pool.map(lambda _: run(chain, batches, threads=1, **options), range(runs)))


def loops(tuples: int, spins: int, threads: int) -> float:
    """Seconds that `threads` plain loops need for `tuples` tuples each, at the same time."""
    values = data()[0]
    rounds = max(1, tuples // BATCH)

    def body() -> None:
        _bench.loop(values, np.empty_like(values), rounds, spins)

    started = [threading.Thread(target=body) for _ in range(threads)]
    begin = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return time.perf_counter() - begin
