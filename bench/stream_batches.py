"""What a micro-batch of a stream costs, beside the floor and beside Spark's own stateful operators.

Usage: ``python bench/stream_batches.py [--batches 30] [--minutes 10] [--only NAME ...] [--json FILE]
[--driver-rows N] [--quick-logs]``, or ``make bench-stream``. With N our jobs run batches of so many rows in
the driver. Spark writes the logs of our queries without `readlink` (docs/streaming.md, "One batch"); with
`--quick-logs` it does so for all, the floor and the rivals too.

Every job is the same running count per key. The floor is `foreachBatch` with a `mapInArrow` that hands rows
through and nothing else. Jobs take turns, one batch each, in one session, so that what the machine does
besides meets all alike; each rival takes turns with our job of as many rows. A batch's time is Spark's own
`triggerExecution`. Jobs:

* `floor`, `empty`: one row per batch through the floor; one row per batch through `od.spark.stream` with a
  single-piece pipeline and 1,000 keys of state;
* `floor-100k`, `keys-1m`: 100,000 rows per batch; the second on 1,000,000 keys of state;
* `rows-100k`: 100,000 rows on 1,000 keys (`empty` is one row on as many);
* `tws-rows-*`, `tws-pandas-*`, `apply-in-pandas-*`: the same by transformWithState (rows and pandas,
  RocksDB) and applyInPandasWithState, 5 batches each.

Medians are printed after every fifth batch, and `--json` is written then, so what was measured survives an
interruption. Rivals have what is left of `--minutes`; one that takes longer is shown with the batches that
it has. The answers are compared with the input at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od
from ordstream.spark.streaming.spark_log import BY_FILE_SYSTEM, FILE_MANAGER

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
SPARK = "ts long, user long"
RIVAL_BATCHES = 5
WARM = 3  # batches that are not measured
SHOWN = 5  # batches after which medians are shown
START_SECONDS = 120.0  # a job's first batches
STARTS = 2  # of a job that fails at its first batches


class TooSlow(Exception):
    """A batch took longer than there is time."""


class Input:
    """A folder to which one file per batch is added."""

    def __init__(self, spark: Any, folder: Path, keys: int) -> None:
        self.spark, self.folder, self.next, self.ts = spark, folder, 0, 0
        self.counts = np.zeros(keys, dtype=np.int64)
        folder.mkdir(parents=True)

    def add(self, users: np.ndarray) -> None:
        """One batch."""
        table = pa.table({"ts": np.arange(self.ts, self.ts + len(users)), "user": users}, schema=SCHEMA)
        self.ts += len(users)
        path = self.folder / f"{self.next:05}.parquet"
        pq.write_table(table, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        self.next += 1
        np.add.at(self.counts, users, 1)

    def frame(self) -> Any:
        """The stream."""
        reader = self.spark.readStream.schema(SPARK).option("maxFilesPerTrigger", 1)
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))


class Job:
    """A query that lives through its part of the benchmark.

    Attributes
    ----------
    times : list of float
        ms of each measured batch.
    """

    def __init__(
        self, name: str, source: Input, start: Callable[[Any, Path], Any], rows: int, keys: int
    ) -> None:
        self.name, self.source, self.rows, self.keys = name, source, rows, keys
        self.times: list[float] = []
        self._rng = np.random.default_rng(1)
        self.query = start(source.frame(), source.folder.parent / f"{source.folder.name}-checkpoint")
        self._seen = -1

    def fill(self, until: float) -> None:
        """Every key once, so that the state is there; not measured."""
        self.source.add(self._rng.permutation(self.keys))
        self._wait(until)

    def batch(self, until: float, measured: bool = True) -> None:
        """One batch.

        Raises
        ------
        TooSlow
            It was not done when the clock (`time.monotonic`) showed `until`.
        """
        self.source.add(self._rng.integers(0, self.keys, self.rows))
        spent = self._wait(until)
        if measured:
            self.times.append(spent)

    def _wait(self, until: float) -> float:
        failed: list[Exception] = []

        def wait() -> None:
            try:
                self.query.processAllAvailable()
            except Exception as error:  # for whoever waits for this thread
                failed.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(max(0.0, until - time.monotonic()))
        if waiting.is_alive():
            raise TooSlow(f"{self.name}: no time left for another batch")
        if failed:
            raise failed[0]
        query = getattr(self.query, "query", self.query)
        found = [json.loads(one.json) for one in query.recentProgress]
        ours = [one for one in found if one["batchId"] > self._seen and one["numInputRows"]]
        self._seen = max(one["batchId"] for one in ours)
        return float(sum(one["durationMs"]["triggerExecution"] for one in ours))

    @property
    def median(self) -> float:
        """ms; nan: nothing measured."""
        return statistics.median(self.times) if self.times else float("nan")


def floor(frame: Any, checkpoint: Path) -> Any:
    """foreachBatch and mapInArrow, nothing else."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    def batch(rows: Any, number: int) -> None:
        rows.mapInArrow(through, "n long").collect()

    return frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint)).start()


_driver_rows: int | str = "auto"


def ours(frame: Any, checkpoint: Path) -> Any:
    """A single-piece pipeline: a running count per key."""
    pipeline = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count())
    return od.spark.stream(pipeline, frame, order_by="ts", checkpoint=checkpoint, driver_rows=_driver_rows)


def apply_in_pandas(frame: Any, checkpoint: Path) -> Any:
    """applyInPandasWithState."""
    import pandas as pd
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(key: Any, parts: Any, state: Any) -> Any:
        seen = state.get[0] if state.exists else 0
        for part in parts:
            part = part.sort_values("ts")
            yield pd.DataFrame({"user": part["user"], "seen": np.arange(seen + 1, seen + len(part) + 1)})
            seen += len(part)
        state.update((seen,))

    counted = frame.groupBy("user").applyInPandasWithState(
        count, "user long, seen long", "seen long", "append", GroupStateTimeout.NoTimeout
    )
    return _noop(counted, checkpoint)


def tws_pandas(frame: Any, checkpoint: Path) -> Any:
    """transformWithState in pandas, RocksDB."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "seen long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            seen = self.seen.get()[0] if self.seen.exists() else 0
            for part in rows:
                yield pd.DataFrame({"user": part["user"], "seen": np.arange(seen + 1, seen + len(part) + 1)})
                seen += len(part)
            self.seen.update((seen,))

        def close(self) -> None:
            pass

    counted = frame.groupBy("user").transformWithStateInPandas(
        Count(), "user long, seen long", "append", "none"
    )
    return _noop(counted, checkpoint)


def tws_rows(frame: Any, checkpoint: Path) -> Any:
    """transformWithState with rows, RocksDB."""
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "seen long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            seen = self.seen.get()[0] if self.seen.exists() else 0
            for row in rows:
                seen += 1
                yield Row(user=row.user, seen=seen)
            self.seen.update((seen,))

        def close(self) -> None:
            pass

    counted = frame.groupBy("user").transformWithState(Count(), "user long, seen long", "append", "none")
    return _noop(counted, checkpoint)


_answers: dict[str, dict[int, int]] = {}


def _noop(frame: Any, checkpoint: Path) -> Any:
    """The rival's output goes where it can be compared, in as cheap a way as there is."""
    from pyspark.sql import functions as F

    name = str(checkpoint).removesuffix("-checkpoint")

    def batch(rows: Any, number: int) -> None:
        for user, seen in rows.groupBy("user").agg(F.max("seen")).collect():
            _answers.setdefault(name, {})[user] = seen

    return frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint)).start()


#: name: (what starts it, rows per batch, keys)
JOBS: dict[str, tuple[Callable[[Any, Path], Any], int, int]] = {
    "floor": (floor, 1, 1_000),
    "empty": (ours, 1, 1_000),
    "floor-100k": (floor, 100_000, 1_000_000),
    "keys-1m": (ours, 100_000, 1_000_000),
    "rows-100k": (ours, 100_000, 1_000),
}
RIVALS = {
    f"{name}-{what}": (start, rows, 1_000)
    for name, start in (
        ("apply-in-pandas", apply_in_pandas),
        ("tws-pandas", tws_pandas),
        ("tws-rows", tws_rows),
    )
    for what, rows in (("1", 1), ("100k", 100_000))
}


def verified(job: Job) -> bool:
    """Whether a job's counts are those of its input."""
    counts = job.source.counts
    if job.name in RIVALS:
        found = _answers.get(str(job.source.folder), {})
        return all(found[user] == counts[user] for user in found) and bool(found)
    if job.name.startswith("floor"):
        return True
    state = od.spark.state(job.query.checkpoint, "scan_1").toArrow()
    seen = np.zeros(len(counts), dtype=np.int64)
    seen[state["user"].to_numpy()] = state["seen"].to_numpy()
    return len(state) == len(counts) and bool((seen == counts).all())


def started(spark: Any, folder: Path, name: str, until: float) -> Job | None:
    """A job that has its state, and some batches behind it. None: it can't be had, which is told.

    Spark gives the worker of transformWithState ten seconds to start, and no setting for it; on a loaded
    machine that is too short now and then.
    """
    from pyspark.errors import StreamingQueryException

    start, rows, keys = (JOBS | RIVALS)[name]
    until = min(until, time.monotonic() + START_SECONDS)
    for attempt in range(STARTS):
        job = Job(name, Input(spark, folder / str(attempt) / name, keys), start, rows, keys)
        try:
            job.fill(until)
            for _ in range(WARM if name in JOBS else 1):
                job.batch(until, measured=False)
        except StreamingQueryException as error:
            reason = str(error).split("===", 1)[0].strip()
        except TooSlow as error:
            _stop(job)
            reason = f"no state and first batches in the time it had ({error})"
            break
        else:
            return job
    print(f"without {name}: {reason}", file=sys.stderr, flush=True)
    return None


class Report:
    """What was measured so far: on the screen, and in a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.jobs: dict[str, dict[str, Any]] = {}
        self.claims: list[dict[str, Any]] = []
        self._load = os.getloadavg()[0]

    def show(self, job: Job, right: bool | None = None) -> None:
        """A job's figures; `right`: its answer, once it was looked at."""
        if not job.times:
            return
        low, high = min(job.times), max(job.times)
        self.jobs[job.name] = {
            "median_ms": job.median, "least_ms": low, "most_ms": high, "batches": len(job.times),
            "verified": right, "ms": job.times,
        }  # fmt: skip
        said = "" if right is None else "verified" if right else "WRONG"
        batches = f"{len(job.times)} batches"
        print(f"{job.name:22} {job.median:9.0f} ms  ({low:.0f} to {high:.0f}, {batches}) {said}", flush=True)
        self.write()

    def claim(self, text: str, value: float, target: str, holds: bool) -> None:
        """A figure that has a target."""
        self.claims.append({"what": text, "value": value, "target": target, "holds": holds})
        print(f"  {text}: {value:.3g} ({target}): {'holds' if holds else 'SHORT'}", flush=True)
        self.write()

    def write(self) -> None:
        """The file, as a whole."""
        if self._path is not None:
            said = {"machine": os.uname().version, "load": self._load, "jobs": self.jobs}
            self._path.write_text(json.dumps(said | {"claims": self.claims}, indent=1))


def _has_protobuf() -> bool:
    """Spark's transformWithState in Python needs it, and PySpark does not bring it along."""
    try:
        from google.protobuf import descriptor  # noqa: F401, whether it is there
    except ImportError:
        return False
    return True


def in_turns(jobs: list[Job], batches: int, until: float, report: Report) -> None:
    """So many batches of each, in turns, as far as there is time."""
    for number in range(1, batches + 1):
        try:
            for job in jobs:
                job.batch(until)
        except TooSlow as error:
            print(error, file=sys.stderr, flush=True)
            break
        if number % SHOWN == 0 and number < batches:
            for job in jobs:
                report.show(job)


def own(spark: Any, folder: Path, asked: argparse.Namespace, end: float, report: Report) -> dict[str, Job]:
    """The floor and our jobs; they live on for the rivals."""
    jobs: dict[str, Job] = {}
    for name in JOBS:
        job = started(spark, folder, name, end) if name in asked.only else None
        if job is not None:
            jobs[name] = job
    in_turns(list(jobs.values()), asked.batches, end, report)
    for name, ours, most in (("floor", "empty", 100.0), ("floor-100k", "keys-1m", 400.0)):
        if name in jobs and ours in jobs and jobs[ours].times:
            above = statistics.median(
                b - a for a, b in zip(jobs[name].times, jobs[ours].times, strict=False)
            )
            report.claim(f"{ours} above {name}, ms", above, f"at most {most:.0f}", above <= most)
    return jobs


def against(spark: Any, folder: Path, name: str, mine: Job | None, until: float, report: Report) -> bool:
    """A rival, in turns with our job; whether its answer is right."""
    job = started(spark, folder, name, until)
    if job is None:
        return False
    count = 0 if mine is None else len(mine.times)
    in_turns([job] if mine is None else [mine, job], RIVAL_BATCHES, until, report)
    right = verified(job) if job.times else False
    report.show(job, right)
    _stop(job)
    if mine is not None and job.times:
        factor, least = job.median / statistics.median(mine.times[count:]), 2.0 if job.rows == 1 else 5.0
        report.claim(f"{name} over {mine.name}, times", factor, f"at least {least:g}", factor >= least)
    return right


def main() -> int:
    """Measure, verify, show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=10.0, help="the whole run takes no longer, about")
    parser.add_argument("--only", nargs="*", default=[*JOBS, *RIVALS], choices=[*JOBS, *RIVALS])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--driver-rows", type=int, help="as of od.spark.stream; default: its own")
    parser.add_argument("--quick-logs", action="store_true", help="Spark writes all logs as it writes ours")
    asked = parser.parse_args()
    global _driver_rows
    _driver_rows = "auto" if asked.driver_rows is None else asked.driver_rows
    end = time.monotonic() + 60 * asked.minutes
    if not _has_protobuf():
        print("without transformWithState: it needs `pip install 'protobuf>=6.33.5'`", file=sys.stderr)
        asked.only = [one for one in asked.only if not one.startswith("tws")]
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    settings = {
        "spark.sql.streaming.stateStore.providerClass": provider,
        "spark.sql.streaming.pollingDelay": "50ms",  # of the queries that wait for their turn
        "spark.sql.streaming.stopTimeout": "10s",
        **({FILE_MANAGER: BY_FILE_SYSTEM[0]} if asked.quick_logs else {}),
    }
    spark = od.spark.local_session(2, node_cores=1, settings=settings)
    report, failed = Report(asked.json), 0
    with tempfile.TemporaryDirectory(prefix="ordstream-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        jobs = own(spark, folder, asked, end, report)
        for one in [*jobs]:
            if one not in ("empty", "rows-100k"):
                failed += _ended(jobs.pop(one), report)
        rivals = [one for one in RIVALS if one in asked.only]
        for number, one in enumerate(rivals):
            mine = jobs.get("empty" if RIVALS[one][1] == 1 else "rows-100k")
            share = (end - time.monotonic()) / (len(rivals) - number)
            failed += not against(spark, folder, one, mine, time.monotonic() + share, report)
        for job in jobs.values():
            failed += _ended(job, report)
        print(f"{time.strftime('%Y-%m-%d')}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        spark.stop()
    return 1 if failed else 0


def _ended(job: Job, report: Report) -> bool:
    """Look at a job's answer and stop it; whether it is wrong."""
    right = verified(job)
    report.show(job, right)
    _stop(job)
    return not right


def _stop(job: Job) -> None:
    """A batch that takes too long may take longer than the stop waits."""
    try:
        job.query.stop()
    except Exception as error:
        print(f"{job.name} does not stop: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
