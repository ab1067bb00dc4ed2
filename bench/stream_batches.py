"""What a micro-batch of a stream costs, beside the floor and beside Spark's own stateful operators.

Usage: ``python bench/stream_batches.py [--batches 30] [--only NAME ...] [--json FILE]``, or
``make bench-stream``.

Every job is the same running count per key. The floor is `foreachBatch` with a `mapInArrow` that hands rows
through and nothing else. Jobs take turns, one batch each, in one session, so that what the machine does
besides meets all alike. Each batch's time is Spark's own `triggerExecution`. Jobs:

* `floor`, `empty`: one row per batch through the floor; one row per batch through `od.spark.stream` with a
  single-piece pipeline and 1,000 keys of state;
* `floor-100k`, `keys-1m`: 100,000 rows per batch; the second on 1,000,000 keys of state;
* `rows-100k`: 100,000 rows on 1,000 keys (`empty` is one row on as many);
* `tws-rows-*`, `tws-pandas-*`, `apply-in-pandas-*`: the same by transformWithState (rows and pandas,
  RocksDB) and applyInPandasWithState, 5 batches each.

The answers are compared with each other before any figure is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64())])
SPARK = "ts long, user long"
RIVAL_BATCHES = 5
STARTS = 3  # of a job that fails at its first batches


class Input:
    """A folder to which one file per batch is added."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.next, self.ts = spark, folder, 0, 0
        self.counts: dict[int, int] = {}
        folder.mkdir(parents=True)

    def add(self, users: np.ndarray) -> None:
        """One batch."""
        table = pa.table({"ts": np.arange(self.ts, self.ts + len(users)), "user": users}, schema=SCHEMA)
        self.ts += len(users)
        path = self.folder / f"{self.next:05}.parquet"
        pq.write_table(table, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
        self.next += 1
        for user, count in zip(*np.unique(users, return_counts=True), strict=True):
            self.counts[int(user)] = self.counts.get(int(user), 0) + int(count)

    def frame(self) -> Any:
        """The stream."""
        reader = self.spark.readStream.schema(SPARK).option("maxFilesPerTrigger", 1)
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))


class Job:
    """A query that lives through the whole benchmark.

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

    def fill(self) -> None:
        """Every key once, so that the state is there; not measured."""
        self.source.add(self._rng.permutation(self.keys))
        self._wait()

    def batch(self, measured: bool = True) -> None:
        """One batch."""
        self.source.add(self._rng.integers(0, self.keys, self.rows))
        spent = self._wait()
        if measured:
            self.times.append(spent)

    def _wait(self) -> float:
        self.query.processAllAvailable()
        query = getattr(self.query, "query", self.query)
        found = [json.loads(one.json) for one in query.recentProgress]
        ours = [one for one in found if one["batchId"] > self._seen and one["numInputRows"]]
        self._seen = max(one["batchId"] for one in ours)
        return float(sum(one["durationMs"]["triggerExecution"] for one in ours))


def floor(frame: Any, checkpoint: Path) -> Any:
    """foreachBatch and mapInArrow, nothing else."""

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": pa.array([count], pa.int64())})

    def batch(rows: Any, number: int) -> None:
        rows.mapInArrow(through, "n long").collect()

    return frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint)).start()


def ours(frame: Any, checkpoint: Path) -> Any:
    """A single-piece pipeline: a running count per key."""
    pipeline = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count())
    return od.spark.stream(pipeline, frame, order_by="ts", checkpoint=checkpoint)


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
    if job.name in RIVALS:
        found = _answers.get(str(job.source.folder), {})
        return all(found[user] == job.source.counts[user] for user in found) and bool(found)
    if job.name.startswith("floor"):
        return True
    rows = od.spark.state(job.query.checkpoint, "scan_1").collect()
    return {row["user"]: row["seen"] for row in rows} == job.source.counts


def started(
    spark: Any, folder: Path, name: str, start: Callable[[Any, Path], Any], rows: int, keys: int
) -> Job | None:
    """A job that has its state, and one batch behind it. None: it can't be had, which is told.

    Spark gives the worker of transformWithState ten seconds to start, and no setting for it; on a loaded
    machine that is too short now and then.
    """
    from pyspark.errors import StreamingQueryException

    for attempt in range(STARTS):
        job = Job(name, Input(spark, folder / str(attempt) / name), start, rows, keys)
        try:
            job.fill()
            job.batch(measured=False)
        except StreamingQueryException as error:
            reason = str(error).split("===", 1)[0].strip()
        else:
            return job
    print(f"without {name}: {reason}", file=sys.stderr)
    return None


def _has_protobuf() -> bool:
    """Spark's transformWithState in Python needs it, and PySpark does not bring it along."""
    try:
        from google.protobuf import descriptor  # noqa: F401, whether it is there
    except ImportError:
        return False
    return True


def main() -> int:
    """Measure, verify, show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[*JOBS, *RIVALS], choices=[*JOBS, *RIVALS])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not _has_protobuf():
        print("without transformWithState: it needs `pip install 'protobuf>=6.33.5'`", file=sys.stderr)
        asked.only = [one for one in asked.only if not one.startswith("tws")]
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark = od.spark.local_session(
        2, node_cores=1, settings={"spark.sql.streaming.stateStore.providerClass": provider}
    )
    failed = 0
    shown: dict[str, Any] = {"machine": os.uname().version, "load": os.getloadavg(), "jobs": {}}
    with tempfile.TemporaryDirectory(prefix="ordstream-bench-") as name:
        for group, batches in ((JOBS, asked.batches), (RIVALS, RIVAL_BATCHES)):
            jobs = []
            for one, (start, rows, keys) in group.items():
                job = started(spark, Path(name), one, start, rows, keys) if one in asked.only else None
                failed += one in asked.only and job is None
                jobs += [job] if job is not None else []
            for _ in range(batches):
                for job in jobs:
                    job.batch()
            for job in jobs:
                right = verified(job)
                failed += not right
                job.query.stop()
                times = sorted(job.times)
                median = statistics.median(times)
                said = {
                    "median_ms": median,
                    "least_ms": times[0],
                    "most_ms": times[-1],
                    "batches": len(times),
                }
                shown["jobs"][job.name] = said | {"verified": right}
                print(f"{job.name:22} {median:9.0f} ms  ({times[0]:.0f} to {times[-1]:.0f})  "
                      f"{'verified' if right else 'WRONG'}", flush=True)  # fmt: skip
    print(f"{time.strftime('%Y-%m-%d')}, load {shown['load'][0]:.1f}", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(shown, indent=1))
    spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
