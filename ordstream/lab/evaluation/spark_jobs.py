"""Real jobs in Spark whose tuples take a known time: what the prototype experiments and bench/grouping.py
run.

Times are waits, as those of an external look-up would be, so that more nodes than processors overlap; or,
for as many nodes as there are processors, they are spent computing. Every tuple notes its node and when it
began and ended, so a job's figures come from the tuples themselves; its rows are compared with those of a
sequential run.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import ordstream as od
from ordstream.balance.metrics import deviation, imbalance
from ordstream.errors import OrdstreamError, PlanError

Floats = npt.NDArray[np.float64]

#: Cores that the local session claims to have: nodes that overlap. They wait most of the time.
SLOTS = 8
MEET_SECONDS = 30.0

SOURCE = pa.schema([("i", pa.int64()), ("key", pa.int64()), ("cost", pa.float64())])
MEASURED = pa.schema(
    [
        ("i", pa.int64()),
        ("value", pa.int64()),
        ("node", pa.int32()),
        ("due", pa.float64()),
        ("began", pa.float64()),
        ("ended", pa.float64()),
    ]
)
ARRIVED = pa.schema([*SOURCE, ("due", pa.float64())])


@contextmanager
def session(slots: int = SLOTS) -> Iterator[Any]:
    """A local Spark session that runs `slots` nodes at a time, one per task; stopped at the end.

    Raises
    ------
    PlanError
        PySpark or Java is missing, or this process has a Spark context already.
    """
    try:
        from ordstream.spark import local_session

        spark = local_session(slots, node_cores=1)
    except (ImportError, RuntimeError) as error:
        raise PlanError(f"this experiment runs in Spark: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _node() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def spend(seconds: float, busy: bool) -> None:
    """Let a tuple take its time: wait, or with `busy` keep the processor for so many seconds of this
    thread's own time.

    Own time, not the clock's: nodes that share a processor must not overlap then.
    """
    if not busy:
        time.sleep(seconds)
        return
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@dataclass(frozen=True)
class Worked:
    """Row function of a keyed stage: (i, seen), after the tuple's time."""

    busy: bool = False

    def __call__(self, row: Any) -> tuple[Any, ...]:
        """The row of MEASURED."""
        began = time.time()
        spend(row.cost, self.busy)
        return row.i, row.seen, _node(), began, began, time.time()


@dataclass(frozen=True)
class LookedUp:
    """Row function of a stateless stage: (i, key), after the tuple's time."""

    busy: bool = False

    def __call__(self, row: Any) -> tuple[Any, ...]:
        """The row of MEASURED."""
        began = time.time()
        spend(row.cost, self.busy)
        return row.i, row.key, _node(), row.due, began, time.time()


class Arrival:
    """Row function in front: waits until the tuple arrives. One per task; nodes that wait for each other
    agree on the start.

    Parameters
    ----------
    folder : str
        Empty; where the nodes meet.
    nodes : int
        That meet: of this job, and of those that run beside it.
    gap : float
        Seconds between two tuples.
    first : int
        `i` of the first tuple.
    job : int
        Which of the jobs that run side by side.
    """

    def __init__(self, folder: str, nodes: int, gap: float, first: int = 0, job: int = 0) -> None:
        self.folder, self.nodes, self.gap, self.first, self.job = folder, nodes, gap, first, job
        self._start: float | None = None

    def __call__(self, row: Any) -> tuple[Any, ...]:
        """The row of ARRIVED."""
        if self._start is None:
            self._start = self._meet()
        due = self._start + (row.i - self.first) * self.gap
        ahead = due - time.time()
        if ahead > 0:
            time.sleep(ahead)
        return row.i, row.key, row.cost, due

    def _meet(self) -> float:
        """When the last node began: a node without tuples is waited for in vain, but not for ever."""
        folder, end = Path(self.folder), time.time() + MEET_SECONDS
        (folder / f"{self.job}-{_node()}").touch()
        while len(list(folder.iterdir())) < self.nodes and time.time() < end:
            time.sleep(0.005)
        return max(file.stat().st_mtime for file in folder.iterdir())


@dataclass(frozen=True)
class Job:
    """What a job's tuples tell, in the order of the output.

    Attributes
    ----------
    nodes : int
    node : int array (m)
    due, began, ended : float array (m)
        Seconds since the epoch: when the tuple arrived (keyed jobs: began), began and ended.
    seconds : float
        Of the whole job, Spark's part and sorting included.
    """

    nodes: int
    node: npt.NDArray[np.int64]
    due: Floats
    began: Floats
    ended: Floats
    seconds: float

    @property
    def rows(self) -> Floats:
        """Tuples per node."""
        return np.bincount(self.node, minlength=self.nodes).astype(np.float64)

    @property
    def busy(self) -> Floats:
        """Seconds at work per node."""
        return np.asarray(
            np.bincount(self.node, weights=self.ended - self.began, minlength=self.nodes), dtype=np.float64
        )

    @property
    def stage_seconds(self) -> float:
        """Of the slowest node, from its first tuple to its last: what the stage takes where all begin
        together.
        """
        spans = [
            self.ended[self.node == k].max() - self.began[self.node == k].min()
            for k in range(self.nodes)
            if (self.node == k).any()
        ]
        return float(max(spans))

    @property
    def completion(self) -> Floats:
        """Completion time of each tuple, seconds: from its arrival to its end (POSG, section V-A: l(i))."""
        return np.asarray(self.ended - self.due)

    @property
    def taken(self) -> float:
        """Mean seconds that a node is taken by a tuple: at work, and from its end to the beginning of
        the next one that waits already.
        """
        between = []
        for k in range(self.nodes):
            mine = np.flatnonzero(self.node == k)
            mine = mine[np.argsort(self.began[mine], kind="stable")]
            ended, began = self.ended[mine[:-1]], self.began[mine[1:]]
            between.append((began - ended)[self.due[mine[1:]] < ended])
        waited = np.concatenate(between)
        return float((self.ended - self.began).mean() + (waited.mean() if len(waited) else 0.0))

    @property
    def tuple_imbalance(self) -> float:
        """λ of tuples received, in per cent."""
        return imbalance(self.rows)

    @property
    def work_imbalance(self) -> float:
        """λ of time at work, in per cent."""
        return imbalance(self.busy)

    @property
    def tuple_deviation(self) -> float:
        """σ of tuples received."""
        return deviation(self.rows)


def table_of(
    keys: npt.NDArray[np.int64], seconds: npt.NDArray[np.float64] | float, first: int = 0
) -> pa.Table:
    """The tuples of a job."""
    n = len(keys)
    return pa.table(
        [np.arange(first, first + n), keys, np.broadcast_to(np.asarray(seconds, dtype=np.float64), n)],
        schema=SOURCE,
    )


def keyed_job(spark: Any, tuples: pa.Table, nodes: int, grouping: Any, busy: bool = False) -> Job:
    """Count the tuples of each key, one after the other, each taking its time (`key_by(key)`); `busy`:
    computing.

    Raises
    ------
    OrdstreamError
        The counts or their order are not those of a sequential run.
    """
    pipeline = (
        od.Pipeline(SOURCE)
        .key_by("key")
        .scan(seen=od.count(), name="per key")
        .map(Worked(busy), schema=MEASURED, name="work")
    )
    keys = tuples["key"].to_numpy()
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=keys[order][:1] - 1))
    seen = np.empty(len(keys), dtype=np.int64)
    seen[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys)))) + 1
    return _run(spark, pipeline, tuples, nodes, grouping, seen)


@dataclass(frozen=True)
class Asked:
    """A stateless job to be run: its tuples, on how many nodes, what chooses these, and the seconds
    between two arrivals.
    """

    tuples: pa.Table
    nodes: int
    grouping: Any
    gap: float


def shuffle_job(
    spark: Any, tuples: pa.Table, nodes: int, grouping: Any, gap: float, busy: bool = False
) -> Job:
    """A stateless look-up per tuple, each taking its time, waiting or `busy`; tuples arrive `gap`
    seconds apart.
    """
    return shuffle_jobs(spark, [Asked(tuples, nodes, grouping, gap)], nodes, busy)[0]


def shuffle_jobs(spark: Any, asked: Sequence[Asked], slots: int, busy: bool = False) -> list[Job]:
    """Such jobs side by side, as many at a time as `slots` have nodes for; what happens to the machine
    meanwhile happens to all of them.

    All nodes that run at a time begin at one moment, when none of them has Spark's part before it any more.
    """
    found: list[Job] = []
    while len(found) < len(asked):
        now = list(asked[len(found) : len(found) + 1])
        for one in asked[len(found) + 1 :]:
            if sum(other.nodes for other in now) + one.nodes > slots:
                break
            now.append(one)
        with tempfile.TemporaryDirectory(prefix="ordstream-arrivals-") as folder:
            nodes = sum(one.nodes for one in now)
            # Built one after the other: only their actions may overlap.
            ready = [
                _ready(spark, _look_up(folder, nodes, one, number, busy), one)
                for number, one in enumerate(now)
            ]
            with ThreadPoolExecutor(len(ready)) as pool:
                try:
                    found += [future.result() for future in [pool.submit(one) for one in ready]]
                except BaseException:
                    spark.sparkContext.cancelAllJobs()  # or the others would be waited for
                    raise
    return found


def _look_up(folder: str, nodes: int, asked: Asked, number: int, busy: bool) -> Any:
    first = asked.tuples["i"][0].as_py()
    arrival = Arrival(folder, nodes, asked.gap, first, number)
    return (
        od.Pipeline(SOURCE)
        .map(arrival, schema=ARRIVED, name="arrival")
        .map(LookedUp(busy), schema=MEASURED, name="look up")
    )


def _ready(spark: Any, pipeline: Any, asked: Asked) -> Callable[[], Job]:
    # One tuple in the node at a time: else its one thread waits for later arrivals while tuples that are
    # there wait for it.
    options = {"chunk_rows": 1, "max_chunks": 1}
    return _built(
        spark, pipeline, asked.tuples, asked.nodes, asked.grouping, asked.tuples["key"].to_numpy(), options
    )


def _run(
    spark: Any, pipeline: Any, tuples: pa.Table, nodes: int, grouping: Any, values: npt.NDArray[np.int64]
) -> Job:
    return _built(spark, pipeline, tuples, nodes, grouping, values, {})()


def _built(
    spark: Any,
    pipeline: Any,
    tuples: pa.Table,
    nodes: int,
    grouping: Any,
    values: npt.NDArray[np.int64],
    options: dict[str, Any],
) -> Callable[[], Job]:
    """A function that runs the job and checks its output."""
    from ordstream.spark import apply

    begin = time.perf_counter()
    frame = apply(
        pipeline, spark.createDataFrame(tuples), order_by="i", nodes=nodes, grouping=grouping, **options
    )

    def run() -> Job:
        found = frame.toArrow()
        took = time.perf_counter() - begin
        if not (found["i"].equals(tuples["i"]) and np.array_equal(found["value"].to_numpy(), values)):
            raise OrdstreamError("the job's output is not that of a sequential run")
        node, due, began, ended = (
            pc.cast(found[name], pa.float64()).to_numpy() for name in ("node", "due", "began", "ended")
        )
        return Job(nodes, node.astype(np.int64), due, began, ended, took)

    return run


def overhead(spark: Any, tuples: pa.Table, nodes: int, grouping: Any, busy: bool = False) -> float:
    """Seconds that a tuple takes a node beyond its own time here: arrivals that leave it out would overload
    every node.

    `tuples`: hundreds per node, such as will be measured. `grouping`: the one that costs a node most, since
    it measures.
    """
    shuffle_job(spark, tuples.slice(0, 8 * nodes), nodes, grouping, 0.0, busy)  # workers start
    return spare_of([shuffle_job(spark, tuples, nodes, grouping, 0.0, busy)], [tuples["cost"].to_numpy()])


def spare_of(jobs: Sequence[Job], costs: Sequence[Floats]) -> float:
    """Seconds per tuple that nodes took beyond the tuples' own times, in jobs whose tuples all wait from
    the beginning.
    """
    spans = [
        job.ended[job.node == k].max() - job.began[job.node == k].min()
        for job in jobs
        for k in range(job.nodes)
        if (job.node == k).any()
    ]
    own, tuples = sum(float(cost.sum()) for cost in costs), sum(len(cost) for cost in costs)
    return max(0.0, (float(np.sum(spans)) - own) / tuples)


def in_batches(job: Callable[[pa.Table], Job], tuples: pa.Table, rows: int) -> list[Job]:
    """The jobs of micro-batches of so many rows, one after the other."""
    return [job(tuples.slice(start, rows)) for start in range(0, len(tuples), rows)]
