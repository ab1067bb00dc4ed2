"""What snapshots cost: export, files, restore, throughput and latency beside a snapshot every second.

    python bench/snapshots.py [--only export,files,restore,throughput,latency] [--rounds N] [--keys N]

Every result is verified first, against counts made without the core. Ways to do the same work run in turn
(harness.py), figures are medians, ratios are taken within a round.

The ways, in *throughput* and *latency*: a running count of 1 million keys, uniform and Zipf 1.2,

* **none**: no snapshot;
* **snapshots**: ``checkpoint=`` with ``every="1s"``: a marker travels in order, each bucket exports as it
  passes, a thread writes;
* **stop the world**: what an aligned barrier costs where every bucket waits for it. Made of the same parts,
  on the same runtime: the source stops, all that was fed is processed, all buckets export at once, the
  source goes on; the same thread of its own writes. No other engine is measured here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import ROOT, Contest, Ran, check, measured
from targets import RESULTS, Figure, save, summary, table

sys.path.append(str(ROOT / "tests"))

import ordstream as od
from ordstream.lab.evaluation.machine import about
from ordstream.snapshots.checkpoint import Checkpoint

KEYS = 1_000_000
BATCH = 65_536
SECONDS = 5.0  # of one run under load, about
EVERY_S = 1.0
SECTIONS = ("export", "files", "restore", "throughput", "latency")
NONE, SNAPSHOTS, STOPPED = "none", "snapshots", "stop the world"
LOAD = 0.5  # of the closed-loop throughput, in `latency`
LEAD_NS = 50_000_000  # before the first tuple is due: threads start

PLAIN = pa.schema([("key", pa.int64())])
STRINGS = pa.schema([("key", pa.string())])
NUMBERS = pa.schema([("key", pa.int64()), ("value", pa.int64())])


# ------------------------------------------------------------ pipelines and their tuples


@dataclasses.dataclass(frozen=True)
class Shape:
    """A kind of state: a pipeline, and tuples that make `keys` keys of it, one each."""

    pipeline: od.Pipeline
    rows: Callable[[np.ndarray], pa.Table]
    at_most: dict[str, float]
    at_end: bool = False  # outputs come at the end only


SHAPES = {
    "plain": Shape(
        od.Pipeline(PLAIN).key_by("key").count(),
        lambda keys: pa.table({"key": keys}, schema=PLAIN),
        {"export": 10.0, "files": 150.0, "restore": 150.0},
    ),
    "strings": Shape(
        od.Pipeline(STRINGS).key_by("key").count(),
        lambda keys: pa.table({"key": pa.array([f"customer-{key:08}" for key in keys])}, schema=STRINGS),
        {"restore": 400.0},
    ),
    "aggregates": Shape(
        od.Pipeline(NUMBERS)
        .key_by("key")
        .aggregate(n=od.count(), total=od.sum("value"), least=od.min("value"), mean=od.mean("value")),
        lambda keys: pa.table({"key": keys, "value": keys}, schema=NUMBERS),
        {"restore": 400.0},
        at_end=True,
    ),
}


@cache
def distinct(keys: int) -> np.ndarray:
    """All keys, in random order."""
    return np.random.default_rng(7).permutation(keys).astype(np.int64)


@cache
def drawn(kind: str, keys: int) -> np.ndarray:
    """Keys of a stream: uniform, or by Zipf's law with exponent 1.2, whose frequent keys lie anywhere."""
    rng, tuples = np.random.default_rng(11), 4_000_000 // BATCH * BATCH
    if kind == "uniform":
        return rng.integers(0, keys, tuples)
    weights = np.cumsum(1.0 / np.arange(1, keys + 1) ** 1.2)
    return distinct(keys)[np.searchsorted(weights, rng.random(tuples) * weights[-1])]


def running_counts(keys: np.ndarray, most: int) -> np.ndarray:
    """How often each tuple's key has come, the tuple included: by a stable sort."""
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=most))])
    counts = np.empty(len(keys), np.int64)
    counts[order] = np.arange(len(keys)) - starts[keys[order]] + 1
    return counts


class Repeating:
    """Batches over and over, up to so many tuples, as a source that knows its place."""

    def __init__(self, batches: list[pa.RecordBatch], tuples: int) -> None:
        self._batches, self._tuples, self._row = batches, tuples, 0
        self.paused: Callable[[int], None] | None = None  # called with the tuples given so far

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._row < self._tuples:
            if self.paused is not None:
                self.paused(self._row)
            batch = self._batches[self._row // BATCH % len(self._batches)]
            batch = batch.slice(0, self._tuples - self._row)
            self._row += batch.num_rows
            yield batch

    def position(self) -> int:
        return self._row

    def seek(self, position: int) -> None:
        if position % BATCH:
            raise ValueError("only batches' first rows are places")
        self._row = position


@cache
def batches_of(kind: str, keys: int) -> list[pa.RecordBatch]:
    """The stream's keys, after all of them once: so the state has its full size from the start."""
    whole = np.concatenate([padded(distinct(keys)), drawn(kind, keys)])
    return pa.table({"key": whole}, schema=PLAIN).to_batches(max_chunksize=BATCH)


def padded(keys: np.ndarray) -> np.ndarray:
    """Whole batches."""
    return np.concatenate([keys, keys[: -len(keys) % BATCH]])


# ------------------------------------------------------------ one figure each


def export(shape: str, keys: int, rounds: int) -> list[Figure]:
    """ns of CPU per key for a copy of a bucket's rows, as the marker makes it, on one thread."""
    from state_runs import Segment

    one = SHAPES[shape]
    with Segment(one.pipeline, workers=0) as segment:
        segment.push(one.rows(distinct(keys)), BATCH)
        ((name, (index, operator)),) = segment.stages.items()
        schema = operator.state_schema()
        found = pa.Table.from_batches(segment.door.export(index, schema, BATCH), schema=schema)
        if found.num_rows != keys or len(found["key"].unique()) != keys:
            raise AssertionError(f"{name} gave {found.num_rows} rows of {keys} keys")
        runs = [cpu(lambda: segment.door.export(index, schema, BATCH), keys) for _ in range(rounds)]
    return [
        figure(
            f"export {shape}",
            "CPU per key",
            statistics.median(runs),
            "ns",
            SHAPES[shape].at_most.get("export"),
        )
    ]


def cpu(body: Callable[[], Any], keys: int) -> float:
    """ns of this process's CPU time per key."""
    start = time.process_time_ns()
    body()
    return (time.process_time_ns() - start) / keys


def snapshot_of(shape: str, keys: int) -> Any:
    """A snapshot with so many keys in its one state."""
    one = SHAPES[shape]
    result = one.pipeline.run(one.rows(distinct(keys)), workers=1, end="suspend")
    if result.snapshot.num_rows != keys:
        raise AssertionError(f"{result.snapshot.num_rows} rows of state, and there are {keys} keys")
    return result.snapshot


def files(shape: str, keys: int, rounds: int, folder: Path) -> list[Figure]:
    """Milliseconds until a snapshot lies in files, and those of the sync apart."""
    snapshot = snapshot_of(shape, keys)
    checkpoint = Checkpoint(folder / f"files-{shape}")
    parts = []

    def write() -> None:
        number = snapshot.serial + len(parts)
        parts.append(checkpoint.write(dataclasses.replace(snapshot, serial=number)))

    runs = [measured(write, keys) for _ in range(rounds)]
    if sorted_rows(checkpoint.latest()) != sorted_rows(snapshot):
        raise AssertionError("what was read is not what was written")
    syncs = [one.sync_seconds * 1e3 for one in parts]
    rest = [ran.wall_ns / 1e6 - sync for ran, sync in zip(runs, syncs, strict=True)]
    name, most = f"files {shape}", SHAPES[shape].at_most.get("files")
    told = {"bytes": parts[-1].bytes, "keys": keys}
    return [
        figure(name, "without sync", statistics.median(rest), "ms", most, **rounds_of(runs), **told),
        figure(name, "of it sort", statistics.median(one.sort_seconds * 1e3 for one in parts), "ms"),
        figure(name, "CPU", statistics.median(ran.cpu_ns / 1e6 for ran in runs), "ms"),
        figure(name, "sync", statistics.median(syncs), "ms"),
    ]


def sorted_rows(snapshot: Any) -> pa.Table:
    """The one state of a snapshot, by key."""
    (rows,) = snapshot.states.values()
    return pa.Table.from_batches(rows.batches(), schema=rows.schema).sort_by("key").combine_chunks()


def restore(shape: str, keys: int, rounds: int, folder: Path) -> list[Figure]:
    """Milliseconds from a folder with a snapshot until the state stands, and to the first output behind it;
    less what the same run takes without a snapshot.

    What emits at the end only has its target on the first: its first output is the flush of all keys, which
    is no part of restoring.
    """
    one = SHAPES[shape]
    place = folder / f"restore-{shape}"
    Checkpoint(place).write(snapshot_of(shape, keys))
    rows = one.rows(distinct(keys)[:1000])

    batches: list[pa.RecordBatch] = []

    stands: dict[bool, list[int]] = {True: [], False: []}

    def first(restored: bool) -> int:
        start = time.perf_counter_ns()
        snapshot = Checkpoint(place).latest() if restored else None
        options = {"restore": snapshot} if restored else {}
        with one.pipeline.stream(rows, workers=1, partial=False, **options) as out:
            stands[restored].append(time.perf_counter_ns() - start)
            batches.append(next(iter(out)))
            return time.perf_counter_ns() - start

    first(True)
    check(batches.pop().column(1).to_numpy()[:1000], np.full(1000, 2))  # each key had come once before
    with_state, without = [], []
    stands[True].clear()
    for _ in range(rounds):
        with_state.append(measured(lambda: first(True), keys))
        without.append(measured(lambda: first(False), keys))
    pairs = list(zip(with_state, without, strict=True))
    wall = statistics.median((a.wall_ns - b.wall_ns) / 1e6 for a, b in pairs)
    used = statistics.median((a.cpu_ns - b.cpu_ns) / 1e6 for a, b in pairs)
    installed = statistics.median((a - b) / 1e6 for a, b in zip(stands[True], stands[False], strict=True))
    most = one.at_most["restore"]
    told = rounds_of(with_state)
    return [
        figure(f"restore {shape}", "until the state stands", installed, "ms", most, **told),
        figure(f"restore {shape}", "to the first output", wall, "ms", None if one.at_end else most, **told),
        figure(f"restore {shape}", "CPU", used, "ms"),
    ]


def rounds_of(runs: list[Ran]) -> dict[str, Any]:
    """Whether other load disturbed most of some runs: all of them count."""
    disturbed = sum(ran.disturbed is not None for ran in runs)
    quiet = 2 * disturbed < len(runs)
    return {"quiet": quiet, "counted": len(runs), "not_counted": 0 if quiet else disturbed}


# ------------------------------------------------------------ a snapshot every second


class Writer:
    """Writes snapshots of the way *stop the world* on a thread of its own, as the product does."""

    def __init__(self, folder: Path) -> None:
        self._checkpoint = Checkpoint(folder)
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._given: list[concurrent.futures.Future[Any]] = []

    def add(self, snapshot: Any) -> None:
        """Write it, some time."""
        self._given.append(self._pool.submit(self._checkpoint.write, snapshot))

    def close(self) -> None:
        """All is written."""
        self._pool.shutdown()
        for one in self._given:
            one.result()


@dataclasses.dataclass
class Outcome:
    """What a run tells beside its time."""

    report: Any
    snapshots: int
    stalls: list[float]


def one_run(
    way: str,
    kind: str,
    keys: int,
    tuples: int,
    workers: int,
    collect: list[pa.RecordBatch] | None = None,
    **options: Any,
) -> Outcome:
    """A stream of `tuples` keys through the running count, in one of the three ways."""
    pipeline = SHAPES["plain"].pipeline
    source = Repeating(batches_of(kind, keys), tuples)
    stalls: list[float] = []
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        if way == SNAPSHOTS:
            options |= {"checkpoint": folder, "every": f"{EVERY_S:g}s"}
        if way == STOPPED:
            options |= {"snapshots": True}
        writer = Writer(Path(folder)) if way == STOPPED else None
        with pipeline.stream(source, workers=workers, partial=False, **options) as out:
            if writer is not None:
                source.paused = stopping(out, writer, stalls)
            rows = 0
            for batch in out:
                rows += batch.num_rows
                if collect is not None:
                    collect.append(batch)
        if writer is not None:
            writer.close()
    if rows != tuples:
        raise AssertionError(f"{rows} rows came out of {tuples}")
    if way == SNAPSHOTS:
        stalls = [one.stall_seconds for one in out.report.snapshots]
    return Outcome(out.report, len(stalls), stalls)


def stopping(out: Any, writer: Writer, stalls: list[float]) -> Callable[[int], None]:
    """What the source does every second: wait until all that it gave was processed, let all buckets export,
    and go on.
    """
    last = time.perf_counter()

    def paused(given: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last < EVERY_S:
            return
        while out.progress()[2] < given:
            time.sleep(20e-6)
        writer.add(out.request_snapshot().result(60))
        last = time.perf_counter()
        stalls.append(last - now)

    return paused


def verify(kind: str, keys: int, way: str, workers: int) -> None:
    """Values and order of a run of each way, with a snapshot in it."""
    tuples = 3_000_000 // BATCH * BATCH
    whole = pa.Table.from_batches(batches_of(kind, keys))["key"].to_numpy()[:tuples]
    found: list[pa.RecordBatch] = []
    one_run(way, kind, keys, tuples, workers, found)
    counts = pa.Table.from_batches(found)
    check(counts["count"].to_numpy(), running_counts(whole, keys))
    check(counts["key"].to_numpy(), whole)


def tuples_for(kind: str, keys: int, workers: int) -> tuple[int, float]:
    """Tuples of a run of about SECONDS, and how many pass per second."""
    some = 8_000_000 // BATCH * BATCH
    ran = min(
        (measured(lambda: one_run(NONE, kind, keys, some, workers), some) for _ in range(2)),
        key=lambda r: r.wall,
    )
    return int(SECONDS * 1e9 / ran.wall) // BATCH * BATCH, 1e9 / ran.wall


def throughput(kind: str, keys: int, workers: int, rounds: int) -> list[Figure]:
    """Tuples per second of the ways, and the CPU that a snapshot takes."""
    tuples, _ = tuples_for(kind, keys, workers)
    outcomes: dict[str, list[Outcome]] = {NONE: [], SNAPSHOTS: [], STOPPED: []}

    def body(way: str) -> Callable[[], Any]:
        def run() -> Any:
            outcome = one_run(way, kind, keys, tuples, workers)
            outcomes[way].append(outcome)
            return outcome

        return run

    for way in outcomes:
        verify(kind, keys, way, workers)
    contest = Contest(tuples, {way: body(way) for way in outcomes})
    contest.run(rounds, warm=False, seconds=rounds * SECONDS * 6)
    name = f"{kind} workers={workers}"
    found = [figure(name, f"throughput, {NONE}", 1e3 / contest.wall(NONE), "M/s", **of(contest))]
    for way in (SNAPSHOTS, STOPPED):
        ours = way == SNAPSHOTS
        taken = [outcome.snapshots for outcome in outcomes[way]]
        if min(taken) < 1:
            raise AssertionError(f"{way}: a run without a snapshot ({taken}): make it longer")

        def per_snapshot(ran: dict[str, Ran], way: str = way) -> float:
            return (ran[way].cpu_ns - ran[NONE].cpu_ns) / 1e6 / ran[way].report.snapshots

        stall = statistics.median(one for outcome in outcomes[way] for one in outcome.stalls)
        found += [
            figure(
                name, f"throughput, {way} / {NONE}", contest.ratio(NONE, way), "",
                at_least=0.97 if ours and workers == 1 else None, snapshots=taken, **of(contest),
            ),
            figure(
                name, f"CPU per snapshot, {way}", contest.paired(per_snapshot), "ms",
                130.0 if ours and workers == 2 else None, **of(contest),
            ),
            figure(name, f"stall per snapshot, {way}", stall * 1e3, "ms", **of(contest)),
        ]  # fmt: skip
    return found


def latency(kind: str, keys: int, workers: int, rounds: int) -> list[Figure]:
    """p99 in an open loop at half of the throughput: tuples are due by a schedule, whatever the node does.

    Small input batches: what is fed ahead must be processed before the world stops.
    """
    _, rate = tuples_for(kind, keys, workers)
    per_second = rate * LOAD
    tuples = int(per_second * SECONDS) // BATCH * BATCH
    schedule = LEAD_NS + (np.arange(1, tuples + 1) * (1e9 / per_second)).astype(np.int64)
    p99: dict[str, list[float]] = {NONE: [], SNAPSHOTS: [], STOPPED: []}
    for way in p99:
        verify(kind, keys, way, workers)
    disturbed = []
    for _ in range(rounds):
        for way, values in p99.items():
            ran = measured(
                lambda way=way: one_run(
                    way, kind, keys, tuples, workers, arrivals=schedule, marker_every=1024
                ),
                tuples,
            )
            values.append(ran.report.report.latency["end_to_end"].p99_us)
            if ran.disturbed:
                disturbed.append(f"{way}: {ran.disturbed}")
    name = f"{kind} workers={workers} load={LOAD:.0%}"
    quiet = not disturbed
    found = [
        figure(
            name, f"p99, {NONE}", statistics.median(p99[NONE]), "us", quiet=quiet, not_counted=len(disturbed)
        )
    ]
    for way in (SNAPSHOTS, STOPPED):
        ratio = statistics.median(a / b for a, b in zip(p99[way], p99[NONE], strict=True))
        found.append(
            figure(
                name,
                f"p99, {way} / {NONE}",
                ratio,
                "",
                2.0 if way == SNAPSHOTS else None,
                quiet=quiet,
                p99_us=p99[way],
            )
        )
    return found


# ------------------------------------------------------------ all of them


def figure(
    bench: str, what: str, value: float, unit: str, at_most: float | None = None,
    at_least: float | None = None,
    quiet: bool = True, counted: int = 0, not_counted: int = 0, **detail: Any,
) -> Figure:  # fmt: skip
    """A figure, printed as soon as it is known."""
    found = Figure(bench, what, value, unit, at_most, at_least, quiet, counted, not_counted, detail=detail)
    print(f"{bench}: {what}: {value:.4g} {unit} {found.target} {found.verdict}".rstrip(), flush=True)
    return found


def of(contest: Contest) -> dict[str, Any]:
    """How far a contest's figures may be believed."""
    return {
        "quiet": contest.quiet,
        "counted": len(contest.counted[NONE]) if contest.quiet else 0,
        "not_counted": len(contest.disturbed),
    }


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=KEYS)
    asked = parser.parse_args()
    sections = asked.only.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    said = about(" ".join(["python bench/snapshots.py", *sys.argv[1:]]))
    found: list[Figure] = []
    rounds, keys = asked.rounds, asked.keys
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        for shape in SHAPES:
            if "export" in sections:
                found += export(shape, keys, 4 * rounds)
            if "files" in sections:
                found += files(shape, keys, 2 * rounds, Path(folder))
            if "restore" in sections:
                found += restore(shape, keys, 2 * rounds, Path(folder))
    for kind in ("uniform", "zipf 1.2"):
        for workers in (1, 2):
            if "throughput" in sections:
                found += throughput(kind, keys, workers, rounds)
            if "latency" in sections:
                found += latency(kind, keys, workers, rounds)
    print("\n" + table(found))
    print(summary(found))
    name = f"snapshots-{said['time'].replace(':', '')}-{said['commit'].rstrip('+')}.json"
    save(found, RESULTS / name, said)
    print(f"saved: bench/results/{name}")


if __name__ == "__main__":
    main()
