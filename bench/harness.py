"""What the benchmarks share: inputs, measured runs, interleaving, telling which runs other load preempted.

One measurement is a *contest*: two or more ways to do the same work on the same tuples (the node, the plain
loop, a rival), first verified (values, in order), then run in turn A B C C B A ... Only rounds in which no
run was preempted are counted.
`bench/README.md` defines every figure.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream._core.lab import bench_costs as _bench_costs
from ordstream._core.lab import bench_kernels as _bench
from ordstream.ground.cpus import allowed_cpus
from ordstream.lab.evaluation.machine import busy_and_stolen
from ordstream.lab.spin import Spin, SpinCount
from ordstream.node import node
from ordstream.operators.operator import Operator
from ordstream.pipeline import Pipeline
from ordstream.plan.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"

# Tuples of one input batch; runs repeat it.
BATCH = 1 << 17
KEYS = 1_000
# Counted rounds asked for, and rounds after which a contest stops waiting for a quiet machine.
PAIRS = int(os.environ.get("ORDSTREAM_BENCH_PAIRS", "5"))
MAX_ROUNDS = 4 * PAIRS
# Wall time that one run should take, about.
RUN_SECONDS = float(os.environ.get("ORDSTREAM_BENCH_SECONDS", "0.25"))
WORK_NS = (0, 100, 1000)
# Share of the machine's CPU time that tasks of others may take beside a run that counts.
MOST_OTHERS = 0.015

# --- inputs ---------------------------------------------------------------------------------------

MULTIPLIER = 6364136223846793005
INCREMENT = 1442695040888963407


def spin(values: np.ndarray, steps: int) -> np.ndarray:
    """The work's result, computed another way: the closed form of `steps` generator steps."""
    a, c = 1, 0
    for _ in range(steps):
        a, c = a * MULTIPLIER % 2**64, (c * MULTIPLIER + INCREMENT) % 2**64
    return (values.view(np.uint64) * np.uint64(a) + np.uint64(c) + np.uint64(1)).view(np.int64)


def chain(*operators: Operator) -> Pipeline:
    """A pipeline of benchmark operators."""
    return Pipeline.of(Plan.line(operators[0].input, operators))


VALUE = pa.schema([("value", pa.int64())])
RESULT = pa.schema([("result", pa.int64())])
KEY_VALUE = pa.schema([("key", pa.int64()), ("value", pa.int64())])
KEY_RESULT = pa.schema([("key", pa.int64()), ("result", pa.int64())])


def stateless(spins: int) -> Pipeline:
    """value -> spin(value)."""
    return chain(Spin(name="spin", input=VALUE, output=RESULT, spins=spins, column=0))


def keyed(spins: int) -> Pipeline:
    """(key, value) -> (key, spin(value) + running count of the key)."""
    return chain(
        SpinCount(name="count", input=KEY_VALUE, output=KEY_RESULT, key=(0,), spins=spins, column=1)
    )


@dataclass(frozen=True)
class Data:
    """A batch that runs repeat: values, Zipf-1 keys below KEYS, and both as Arrow batches."""

    values: np.ndarray
    keys: np.ndarray
    rows: pa.RecordBatch
    keyed_rows: pa.RecordBatch

    def batches(self, tuples: int, with_keys: bool) -> list[pa.RecordBatch]:
        """`tuples` rows: the batch over and over."""
        batch = self.keyed_rows if with_keys else self.rows
        whole, rest = divmod(tuples, BATCH)
        return [batch] * whole + ([batch.slice(0, rest)] if rest else [])

    def expected(self, tuples: int, spins: int, with_keys: bool) -> np.ndarray:
        """The result column of `tuples` rows, without the core: closed form, and counts by a stable sort."""
        repeats = -(-tuples // BATCH)
        results = np.tile(spin(self.values, spins), repeats)[:tuples]
        if not with_keys:
            return results
        keys = np.tile(self.keys, repeats)[:tuples]
        order = np.argsort(keys, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=KEYS))])
        counts = np.empty(tuples, np.int64)
        counts[order] = np.arange(tuples) - starts[keys[order]] + 1
        return results + counts


@cache
def data() -> Data:
    """The input of every benchmark; the same in every session."""
    rng = np.random.default_rng(20130101)
    values = rng.integers(0, 1 << 62, BATCH, dtype=np.int64)
    weights = 1.0 / np.arange(1, KEYS + 1)
    keys = rng.permutation(KEYS)[rng.choice(KEYS, BATCH, p=weights / weights.sum())].astype(np.int64)
    return Data(
        values,
        keys,
        pa.RecordBatch.from_arrays([pa.array(values)], schema=VALUE),
        pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=KEY_VALUE),
    )


@cache
def spins_for(work_ns: int) -> int:
    """Steps per tuple that take `work_ns` in the plain loop: the fastest of many short runs."""
    if work_ns == 0:
        return 0
    values = data().values[:4096]
    results = np.empty_like(values)
    best = min(_bench.loop(values, results, 1, 64) for _ in range(200))
    return max(1, round(work_ns / (best / (len(values) * 64))))


# --- one run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """One run: wall and CPU ns of the whole process, and why it should not be counted (None: it should)."""

    tuples: int
    wall_ns: float
    cpu_ns: float
    disturbed: str | None
    report: Any = None
    # ns between the cores, the longer of before and after (`round_trip`); 0: not measured
    round_trip: float = 0.0

    @property
    def wall(self) -> float:
        """Nanoseconds per tuple."""
        return self.wall_ns / self.tuples


def _others() -> dict[str, int] | None:
    """CPU ns of every task on the machine but ours, to the ns; None where the kernel does not say."""
    own = str(os.getpid())
    found = {}
    try:
        for process in Path("/proc").iterdir():
            if not process.name.isdigit() or process.name == own:
                continue
            try:
                for task in (process / "task").iterdir():
                    found[task.name] = int((task / "schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended
    except (OSError, ValueError, IndexError):
        return None
    return found or None


def round_trip(rounds: int = 2000) -> float:
    """ns of a cache line's way to another core and back, now: the best of some short measurements.

    On a virtual machine it is no constant: the hypervisor moves its processors (docs/benchmarks.md).
    """

    def once() -> float:
        lines = _bench_costs.Table()
        turns = [0.0, 0.0]

        def side(number: int) -> None:
            turns[number] = lines.take_turns(number, rounds, 0, 0)

        threads = [threading.Thread(target=side, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 2 * min(turns)

    return min(once() for _ in range(6)) if allowed_cpus() > 1 else 0.0


def measured(body: Callable[[], Any], tuples: int, between: bool = False) -> Ran:
    """Run `body`; it returns None, a report, or its own wall time in ns (an int).

    `between`: of what passes between cores. `round_trip` is measured before and after, and other tasks are
    looked at closely.
    """
    gc.collect()
    gc.disable()
    try:
        apart = round_trip() if between else 0.0
        before = _others() if between else None
        busy, stolen = busy_and_stolen() or (0.0, 0.0)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu = time.process_time_ns()
        start = time.perf_counter_ns()
        report = body()
        wall = time.perf_counter_ns() - start
        cpu = time.process_time_ns() - cpu
        switched = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - usage.ru_nivcsw
        busy_after, stolen_after = busy_and_stolen() or (0.0, 0.0)
        after = _others() if between else None
        apart = max(apart, round_trip()) if between else 0.0
    finally:
        gc.enable()
    reason = preempted(wall / 1e9, cpu / 1e9, busy_after - busy, stolen_after - stolen, switched)
    if reason is None and before and after:
        reason = beside(wall / 1e9, sum(ns - before.get(task, 0) for task, ns in after.items()) / 1e9)
    if isinstance(report, int):
        wall, report = report, None
    return Ran(tuples, float(wall), float(cpu), reason, report, apart)


def beside(wall: float, other: float) -> str | None:
    """Why a run was disturbed by tasks that took `other` CPU seconds beside it, or None.

    They may have taken it on a core that the run left unused, which nobody can tell: a little is allowed
    for.
    """
    share = other / wall / (os.cpu_count() or 1)
    return f"other tasks took {share:.1%} of the machine" if share > MOST_OTHERS else None


def preempted(wall: float, own: float, busy: float, stolen: float, switched: int) -> str | None:
    """Why a run was disturbed by other load, or None. Seconds, but `switched`: our involuntary switches.

    /proc/stat counts in steps of 10 ms, so two of them are allowed for. Other load is harmless while it
    fits into the CPU time that the run left unused; where it does not, the run waited for a core.
    """
    cpus = os.cpu_count() or 1
    tick = 0.02
    if stolen > tick + 0.01 * wall * cpus:
        return f"{stolen:.2f} s stolen by the hypervisor"
    other = max(0.0, busy - own - tick)
    spare = max(0.0, cpus * wall - own)
    if other > 0.03 * wall and other > 0.5 * spare:
        return f"other load took {other:.2f} s of CPU in {wall:.2f} s"
    if other > 0.0 and switched > 20 + 200 * wall:
        return f"{switched} involuntary context switches beside {other:.2f} s of other load"
    return None


def run_node(chain: Pipeline, batches: list[pa.RecordBatch], **options: Any) -> Any:
    """One run of the node, output counted and dropped; its report."""
    rows = 0
    with node.stream(chain, batches, partial=False, marker_every=1 << 40, **options) as out:
        for batch in out:
            rows += batch.num_rows
    expected = sum(batch.num_rows for batch in batches)
    if rows != expected:
        raise AssertionError(f"{rows} rows came out of {expected}")
    return out.report


def check_node(chain: Pipeline, tuples: int, spins: int, **options: Any) -> None:
    """Verify a run's output: every value, in order."""
    with_keys = len(chain.source_schema) == 2
    table = node.run(chain, data().batches(tuples, with_keys), **options).table
    check(table["result"].to_numpy(), data().expected(tuples, spins, with_keys))
    if with_keys:
        check(table["key"].to_numpy(), np.tile(data().keys, -(-tuples // BATCH))[:tuples])


def check(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal in length, values and order; says where not."""
    if len(got) != len(expected):
        raise AssertionError(f"{len(got)} results, expected {len(expected)}")
    wrong = np.flatnonzero(got != expected)
    if len(wrong):
        k = wrong[0]
        raise AssertionError(f"result {k} is {got[k]}, expected {expected[k]}; {len(wrong)} are wrong")


def loop_body(tuples: int, spins: int, with_keys: bool) -> Callable[[], int]:
    """The work of `tuples` tuples in one plain loop; it returns its wall time in ns."""
    rounds = max(1, tuples // BATCH)
    values = data().values if tuples >= BATCH else data().values[:tuples]
    results = np.empty(len(values), np.int64)
    keys = data().keys[: len(values)] if with_keys else None
    scale = tuples / (rounds * len(values))

    def body() -> int:
        counts = np.zeros(KEYS, np.int64) if with_keys else None
        return int(_bench.loop(values, results, rounds, spins, keys, counts) * scale)

    return body


def two_loops_body(tuples: int, spins: int) -> Callable[[], None]:
    """Half of the work in each of two plain threads, nothing shared: what two cores can do."""
    halves = [loop_body(tuples // 2, spins, False) for _ in range(2)]

    def body() -> None:
        threads = [threading.Thread(target=half) for half in halves]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return body


# --- rivals ---------------------------------------------------------------------------------------


@cache
def onetbb() -> Any:
    """oneTBB's parallel_pipeline as a shared library, built now; None without compiler or library."""
    source = Path(__file__).parent / "rivals" / "onetbb_pipeline.cpp"
    library = BUILD / "onetbb_pipeline.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        command = [os.environ.get("CXX", "g++"), "-O3", "-std=c++17", "-shared", "-fPIC", "-pthread"]
        command += ["-o", str(library), str(source), "-ltbb"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(
                f"no oneTBB rival (apt-get install libtbb-dev): {getattr(error, 'stderr', error)}",
                file=sys.stderr,
            )
            return None
    found = ctypes.CDLL(str(library))
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    found.onetbb_stateless.argtypes = [
        pointer,
        whole,
        whole,
        whole,
        whole,
        ctypes.c_int,
        ctypes.c_int,
        pointer,
    ]
    found.onetbb_stateless.restype = whole
    found.onetbb_version.restype = ctypes.c_char_p
    return found


def onetbb_body(tuples: int, spins: int, unit: int, threads: int) -> tuple[Callable[[], int], np.ndarray]:
    """oneTBB doing the stateless work in units of `unit` tuples (returns wall ns), and its results."""
    found = onetbb()
    rounds = max(1, tuples // BATCH)
    values = data().values if tuples >= BATCH else data().values[:tuples]
    results = np.empty(len(values), np.int64)
    scale = tuples / (rounds * len(values))
    tokens = 16 * threads

    def body() -> int:
        ns = found.onetbb_stateless(
            values.ctypes.data, len(values), rounds, unit, spins, threads, tokens, results.ctypes.data
        )
        return int(ns * scale)

    return body, results


# --- contests -------------------------------------------------------------------------------------


@dataclass
class Contest:
    """Ways to do the same work, run in turn.

    Attributes
    ----------
    counted : dict of name to list of Ran
        One entry per counted round.
    disturbed : list of str
        Why other rounds were not counted.
    quiet : bool
        False: the machine was never quiet enough; the counted rounds are then all rounds.
    between : bool
        What passes between cores counts: see `measured`.
    """

    tuples: int
    bodies: dict[str, Callable[[], Any]]
    counted: dict[str, list[Ran]] = field(default_factory=dict)
    disturbed: list[str] = field(default_factory=list)
    quiet: bool = True
    between: bool = False

    def run(self, pairs: int = PAIRS, *, warm: bool = True, seconds: float | None = None) -> Contest:
        """Rounds until `pairs` are counted, or MAX_ROUNDS were run.

        Parameters
        ----------
        pairs : int
        warm : bool
            One uncounted round first.
        seconds : float, optional
            After this time, and `pairs` rounds, there are no more, whatever their number that counts.
        """
        everything: dict[str, list[Ran]] = {name: [] for name in self.bodies}
        self.counted = {name: [] for name in self.bodies}
        for body in self.bodies.values() if warm else ():
            body()
        names = list(self.bodies)
        start = time.monotonic()
        for done in range(MAX_ROUNDS):
            if seconds is not None and done >= pairs and time.monotonic() - start > seconds:
                break
            ran = {name: measured(self.bodies[name], self.tuples, self.between) for name in names}
            names.reverse()  # A B, B A: a drift of the machine favours nobody
            for name, one in ran.items():
                everything[name].append(one)
            reasons = [f"{name}: {one.disturbed}" for name, one in ran.items() if one.disturbed]
            if reasons:
                self.disturbed.append("; ".join(reasons))
                continue
            for name, one in ran.items():
                self.counted[name].append(one)
            if len(self.counted[names[0]]) >= pairs:
                return self
        if len(self.counted[names[0]]) < 3:
            self.quiet = False
            self.counted = everything
        return self

    def wall(self, name: str) -> float:
        """Median nanoseconds per tuple."""
        return statistics.median(ran.wall for ran in self.counted[name])

    def paired(self, figure: Callable[[dict[str, Ran]], float]) -> float:
        """Median over counted rounds of a figure made of one round's runs."""
        rounds = zip(*self.counted.values(), strict=True)
        return statistics.median(figure(dict(zip(self.counted, runs, strict=True))) for runs in rounds)

    def ratio(self, a: str, b: str) -> float:
        """Median over rounds of wall(a) / wall(b)."""
        return self.paired(lambda ran: ran[a].wall / ran[b].wall)

    def round_trips(self, name: str) -> list[float]:
        """ns between the cores in each counted run of `name`."""
        return [round(ran.round_trip) for ran in self.counted[name]]

    def overhead(self, name: str, workers: int, work: str = "loop") -> float:
        """Median over rounds of workers * wall - work, ns per tuple."""
        return self.paired(lambda ran: max(1, workers) * ran[name].wall - ran[work].wall)


def tuples_for(work_ns: float, chunk: int | None, workers: int, own_ns: float = 0.0) -> int:
    """Tuples that keep one run near RUN_SECONDS (by a guess of its speed), a multiple of 4,096."""
    unit = chunk or 1024
    guess = work_ns / max(1, min(workers, allowed_cpus())) + (own_ns or 0.6 + 150.0 / unit)
    return max(4096, min(int(RUN_SECONDS * 1e9 / guess), 40_000_000) // 4096 * 4096)


# --- pytest-benchmark -----------------------------------------------------------------------------


class ReplayedClock:
    """A clock that moves by measured walls: pytest-benchmark gets the counted runs, and only those."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


replayed_clock = ReplayedClock()


def record(benchmark: Any, runs: Sequence[Ran], **info: Any) -> None:
    """Save counted runs (seconds per million tuples) and figures with pytest-benchmark."""
    walls = iter([ran.wall / 1e3 for ran in runs])

    def replay() -> None:
        replayed_clock.now += next(walls)

    benchmark.extra_info.update(info)
    benchmark.extra_info["unit"] = "seconds per million tuples"
    if benchmark.disabled:
        return
    benchmark.pedantic(replay, rounds=len(runs), iterations=1)
