"""Streams that are killed and started again: the job, the faults, and the one comparison.

A *job* is a stream from Parquet files (`tests/kills/stream_process.py`). Faults are tied to an epoch and a
step of its protocol. One in a Python worker kills that worker, and Spark runs the task again; one in the
driver kills the driver, or the driver and Java, or Java alone, and the process is started again. At the end
the committed files must hold what `run_serial` gives over the rows in the order of their serials: every
value, every order tag.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kill_progress
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from stream_faults import is_seen, passed, seen

import ordstream as od
from ordstream.balance.keys import key_words
from ordstream.testing import run_serial

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "kills" / "stream_process.py"
SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("cents", pa.int64())])
FILE_ROWS = 120
SLACK = 4
PATIENCE_S = 600.0
FAULTS = "ORDSTREAM_STREAM_FAULTS"  # the folder of a job's faults, for every process of it
JAVA = "ORDSTREAM_STREAM_JAVA"  # the process id of its Java, for its drivers
LOOK_S = 0.02  # from one look at a running job to the next

#: In a worker, before or after: `Files` of an attempt, a row that is read, and the copy of a bucket's state
#: as a marker passes (after: some of its rows are copied, others not).
WORKER_STEPS = (
    "row read",
    "state copied",
    "state created",
    "state written",
    "state synced",
    "state folder synced",
    "output written",
    "output synced",
    "output folder synced",
    "waiting written",
    "waiting synced",
)
#: In the driver.
DRIVER_STEPS = (
    "commit created",
    "commit written",
    "commit synced",
    "commit linked",
    "commits folder synced",
    "state removed",
    "batch returned",
)
#: While keys move, in a worker: its keys are told (Fig. 5, step 1), moved state is read (5).
MOVING_WORKER_STEPS = ("keys told", "moved state read", "state written", "state synced")
#: In the driver: the plan (2), the table and what is known beside the states (3, 4), the commit (6, 7).
MOVING_DRIVER_STEPS = (
    "keys planned", "known created", "known written", "known synced", "commit linked",
    "commits folder synced", "batch returned",
)  # fmt: skip
#: The policy under which keys move behind every other epoch of `drifting` rows, or more often: costs are
#: measured, so it is not known which. At once: the epochs are too small for a move to pay.
MIXED = od.Mixed(theta=0.3, table=200, payback=0.0)
MOVING_FILE_ROWS = 1_200
#: The clock of a job that has one, beside those of its operators.
EVERY = od.every("ts", 5)
#: Steps that have one moment only.
ONE_SIDED = {"row read": "after", "batch returned": "before"}


@dataclass(frozen=True)
class StreamFault:
    """What happens at a step of an epoch, once.

    Attributes
    ----------
    epoch : int
        Of a step that need not be in it ("moved state read"): or the next epoch that has it.
    step : str
    when : "before" or "after"
    what : str
        "kill"; "java": kill the Java process; "all": both driver and Java; "full": the disk is full;
        "zombie": the attempt goes on when another one has won.
    """

    epoch: int
    step: str
    when: str = "before"
    what: str = "kill"

    @property
    def ends(self) -> bool:
        """The driver is gone then."""
        return self.step in (*DRIVER_STEPS, *MOVING_DRIVER_STEPS) or self.what in ("java", "all")

    def __str__(self) -> str:
        return f"{self.what} {self.when} {self.step} of epoch {self.epoch}"


def pipeline() -> od.Pipeline:
    """Python, keys that change, sessions open across epochs, a flush."""
    spent = od.Pipeline(SCHEMA).map(seen, schema=SCHEMA).key_by("user")
    scanned = spent.scan(visits=od.count(), spent=od.sum("cents"))
    behind = scanned.key_by("visits").lag({"before": "spent"}).filter(od.col("before").is_not_null())
    return behind.key_by("user").sessionize("ts", 6, ["before"])


def clocked_pipeline() -> od.Pipeline:
    """Windows and timers that a clock closes, over the function that sees rows."""
    kept = {"n": pa.int64(), "fires": pa.int64()}
    shown = {"user": pa.int64(), "n": pa.int64(), "at": pa.int64()}
    some, rest = od.Pipeline(SCHEMA).filter(is_seen).branch(od.col("cents") % 2 == 0)
    counted = some.key_by("user").window(od.tumbling(8), time="ts").aggregate(n=od.count())
    timed = rest.key_by("user").process(
        set_timer, schema=shown, state=kept, timer="fires", on_timer=fire, clock=od.every("ts", 3)
    )
    both = od.union(counted.select("user", "n", at="end"), timed)
    return both.key_by("n").scan(there=od.count())


def set_timer(row: Any, state: Any, emit: Any) -> None:
    """Count a user's rows; forget them some time behind the last."""
    state.n += 1
    state.fires = row.ts + 11
    emit(row.user, state.n, row.ts)


def fire(key: Any, state: Any, at: int, emit: Any) -> None:
    """The time has come."""
    emit(key, -state.n, at)
    state.n = 0


def moving_pipeline() -> od.Pipeline:
    """Two keys, with a function behind each."""
    spent = od.Pipeline(SCHEMA).map(seen, schema=SCHEMA).key_by("user")
    scanned = spent.scan(visits=od.count(), spent=od.sum("cents"))
    counted = scanned.map(passed, schema=scanned.schema)
    behind = counted.key_by("visits", "user").lag({"before": "spent"})
    return behind.map(passed, schema=behind.schema)


def drifting(files: int, seed: int) -> pa.Table:
    """Rows of which two thirds are those of four users whom the ring of two nodes sends to the first; two of
    them are new in each file, since a key's time counts when it was measured twice.
    """
    count = files * MOVING_FILE_ROWS
    table, rng = rows(count, seed), np.random.default_rng(seed)
    users = np.arange(100, 2_000)
    heavy = users[MIXED.ring(2).route_words(key_words(users)) == 0]
    of_epoch = 2 * (np.arange(count) // MOVING_FILE_ROWS) + rng.integers(0, 4, count)
    chosen = np.where(rng.random(count) < 2 / 3, heavy[of_epoch], rng.integers(0, 60, count))
    return table.set_column(1, "user", pa.array(chosen, pa.int64()))


def rows(count: int, seed: int) -> pa.Table:
    """The source as it comes: times up to `SLACK` behind the largest."""
    rng = np.random.default_rng(seed)
    times = np.arange(count) // 3 - rng.integers(0, SLACK, count) + SLACK
    users = pa.array(rng.integers(0, 25, count), mask=rng.integers(0, 25, count) == 0)
    return pa.table({"ts": times, "user": users, "cents": rng.integers(0, 100, count)}, schema=SCHEMA)


def with_late(table: pa.Table, files: int) -> tuple[pa.Table, Any]:
    """The source with rows that are further behind than `SLACK`, and which of its rows come too late: those
    behind the watermark of the file in front. A row of the largest time ends each file, so that it moves.
    """
    times = table["ts"].to_numpy().copy()
    times[np.arange(7, len(times), 23)] -= 15
    times = np.maximum(times, 0).reshape(files, -1)
    times[:, -1] = times.max(axis=1)
    behind = np.maximum.accumulate(times.max(axis=1))[:-1] - SLACK
    late = times < np.concatenate([[0], behind])[:, None]
    return table.set_column(0, "ts", pa.array(times.ravel(), pa.int64())), late.ravel()


class Java:
    """A Java process that outlives the drivers of jobs: each finds it warm, and stops the Spark that the one
    before has left. Half of a driver's time goes into Java's start otherwise.

    Parameters
    ----------
    folder : Path
        For its log, and the name by which its workers find the job that runs.
    """

    def __init__(self, folder: Path) -> None:
        self.log, self._job = folder / "java-log", folder / "job-of-java"
        self._gateway: Any = None
        self._start()

    def _start(self) -> None:
        from pyspark.java_gateway import launch_gateway

        before = dict(os.environ)
        os.environ.update(surroundings(self._job))
        try:
            with self.log.open("ab") as log:
                self._gateway = launch_gateway(popen_kwargs={"stdout": log, "stderr": log})
        finally:
            os.environ.clear()
            os.environ.update(before)

    def serve(self, folder: Path) -> dict[str, str]:
        """From now on it serves the job of this folder; what its drivers must have in their environment.
        Where a fault has killed it, another one is started.
        """
        if self._gateway.proc.poll() is not None:
            self._gateway.close()
            self._gateway.proc.stdin.close()
            self._start()
        self._job.unlink(missing_ok=True)
        self._job.symlink_to(folder)
        parameters = self._gateway.gateway_parameters
        return {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
            JAVA: str(self._gateway.proc.pid),
        }

    def wait(self) -> None:
        """Until a fault's kill has ended it."""
        self._gateway.proc.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):  # it was killed
            self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait(60)


def surroundings(folder: Path) -> dict[str, str]:
    """What processes of the job in this folder have in their environment."""
    paths = [str(ROOT / "tests"), str(ROOT / "tests" / "kills"), *filter(None, sys.path)]
    return {"PYTHONPATH": os.pathsep.join(paths), FAULTS: str(folder / "faults")}


@dataclass
class StreamJob:
    """One stream in a folder of its own.

    Attributes
    ----------
    files : int
        Of the source: epochs, but for the end.
    nodes : int
    early : bool
        The manifest is published before the output: the negative control.
    moving : bool
        Keys move between epochs.
    clocked : bool
        Windows and timers close by a clock, and rows come that are too late.
    driver_rows : int
        As for `od.spark.stream`: what a worker does otherwise happens in the driver.
    java : Java, optional
        Default: each driver starts its own, which dies with it.
    """

    folder: Path
    files: int = 12
    nodes: int = 1
    seed: int = 1
    early: bool = False
    moving: bool = False
    clocked: bool = False
    driver_rows: int = 0
    java: Java | None = None
    starts: int = 0
    table: pa.Table = field(init=False)
    late: Any = field(init=False)  # per row of `table`: it comes too late
    faults: Sequence[StreamFault] = ()
    fired: list[int] = field(default_factory=list)  # numbers of `faults`
    _since: float = 0.0  # when the last one fired
    _all_of_them: bool = False

    def __post_init__(self) -> None:
        each = MOVING_FILE_ROWS if self.moving else FILE_ROWS
        self.table = drifting(self.files, self.seed) if self.moving else rows(self.files * each, self.seed)
        self.late = np.zeros(self.table.num_rows, dtype=np.bool_)
        if self.clocked:
            self.table, self.late = with_late(self.table, self.files)
        for name in ("source", "faults"):
            (self.folder / name).mkdir(parents=True)
        for number in range(self.files):
            path = self.folder / "source" / f"{number:04}.parquet"
            pq.write_table(self.table.slice(number * each, each), path)
            os.utime(path, (1_000_000_000 + number,) * 2)

    def run(
        self,
        faults: Sequence[StreamFault],
        forget: bool = False,
        to_the_end: bool = True,
        all_of_them: bool = False,
    ) -> None:
        """Run the stream through all faults; then, with `to_the_end`, to its end. `forget`: delete Spark's
        last commit after each end of a driver. Where the time of all kills is up, no further fault fires,
        unless `all_of_them` are wanted.

        Raises
        ------
        AssertionError
            A fault did not fire, or a process ended badly by itself.
        """
        for number, fault in enumerate(faults):
            said = [fault.epoch, fault.step, fault.when, fault.what]
            (self.folder / "faults" / f"{number}.json").write_text(json.dumps(said))
        self.faults, self._since, self._all_of_them = faults, time.monotonic(), all_of_them
        left = sum(self._ends(fault) for fault in faults)
        while left or to_the_end:
            before = len(self.fired)
            status, said = self._start()
            if status == 0:
                break
            fired = [faults[number] for number in self.fired[before:]]
            ends = sum(self._ends(fault) for fault in fired)
            behind = ", ".join(map(str, fired)) or "no fault"
            assert ends == 1, f"the process ended with {status} behind {behind}:\n{said[-4000:]}"
            left -= 1
            if self.java is not None and any(fault.what in ("java", "all") for fault in fired):
                self.java.wait()  # the driver hears of it before it is gone
            if forget:
                self._forget()
        missed = [str(f) for k, f in enumerate(faults) if k not in self.fired]
        assert not missed or self._enough(), f"faults never fired: {missed}"

    def _ends(self, fault: StreamFault) -> bool:
        """The driver is gone then; what only fails there is done again in a task."""
        return fault.ends or (self.driver_rows > 0 and fault.what == "kill")

    def _enough(self) -> bool:
        return not self._all_of_them and kill_progress.over()

    def _tell(self) -> None:
        """Of what has fired by now; and that no more faults are wanted, where the time is up."""
        for number, fault in enumerate(self.faults):
            if number not in self.fired and (self.folder / "faults" / f"{number}.fired").exists():
                self.fired.append(number)
                now = time.monotonic()
                nodes = f"{self.nodes} node{'s' if self.nodes > 1 else ''}"
                kill_progress.told(f"{fault} ({self.folder.parent.name}, {nodes})", now - self._since)
                self._since = now
        if self._enough():
            (self.folder / "faults" / "enough").touch()

    def _forget(self) -> None:
        commits = self.folder / "checkpoint" / "spark" / "commits"
        numbers = [int(path.name) for path in commits.glob("[0-9]*")] if commits.is_dir() else []
        if numbers:
            (commits / f"{max(numbers)}").unlink()

    def _start(self) -> tuple[int, str]:
        """Start the process and wait for its end, which is its own, or a fault's. Its exit status, and what
        it has said.
        """
        names = ("nodes", "early", "moving", "clocked", "driver_rows")
        given = {"folder": str(self.folder), **{name: getattr(self, name) for name in names}}
        log = self.folder / f"log-{self.starts}"
        self.starts += 1
        before = len(self.fired)
        environment = os.environ | surroundings(self.folder)
        if self.java is not None:
            environment |= self.java.serve(self.folder)
        heard = self.java.log.stat().st_size if self.java is not None else 0
        until = time.monotonic() + PATIENCE_S
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(given)],
                stdout=errors,
                stderr=errors,
                cwd=self.folder,
                env=environment,
            )
            try:
                while process.poll() is None:
                    assert time.monotonic() < until, f"the process did not end within {PATIENCE_S} s"
                    self._tell()
                    time.sleep(LOOK_S)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
        self._tell()
        said = log.read_bytes()
        if self.java is not None:
            said = self.java.log.read_bytes()[heard:] + said
        fired = [self.faults[number] for number in self.fired[before:]]
        return self._checked(process.returncode, said.decode(errors="replace"), fired)

    def _checked(self, status: int, said: str, fired: list[StreamFault]) -> tuple[int, str]:
        assert status in (0, 1, -signal.SIGKILL), f"the process ended with {status}:\n{said[-4000:]}"
        if status == 1:  # Java was killed, or the disk was full: the driver told of it
            # what a worker says goes through the Java that it kills, which may be gone before it told
            assert "planned" in said or any(fault.what == "java" for fault in fired), said[-4000:]
        return status, said

    # ------------------------------------------------------------------------------------------ the answer

    def committed(self) -> list[tuple[Any, ...]]:
        """The rows of the files that the manifests name, one behind the other."""
        from ordstream.spark.streaming.epoch_log import EpochLog

        log = EpochLog(self.folder / "checkpoint")
        found: list[tuple[Any, ...]] = []
        for manifest in log.all():
            for one in manifest.output:
                path = log.folder / "output" / one["file"]
                assert path.exists(), f"{path.name} is committed and missing"
                found += [tuple(row.values()) for row in pq.ParquetFile(path).read().to_pylist()]
        return found

    def compare(self) -> None:
        """What is committed is `run_serial`'s answer, values and tags."""
        table = self.table.filter(pa.array(~self.late))
        order = np.argsort(table["ts"].to_numpy(), kind="stable")
        made = clocked_pipeline() if self.clocked else moving_pipeline() if self.moving else pipeline()
        every = EVERY if self.clocked else None
        expected = run_serial(made, table.take(pa.array(order)), punctuate=every)
        assert expected.error is None
        wanted = [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]
        got = self.committed()
        for number, (mine, theirs) in enumerate(zip(got, wanted, strict=False)):
            assert mine == theirs, f"output {number} is {mine}, and run_serial gives {theirs}"
        assert len(got) == len(wanted) > self.files, f"{len(got)} outputs, run_serial gives {len(wanted)}"
        assert self.late_rows() == self._too_late()

    def late_rows(self) -> list[tuple[int, ...]]:
        """What is committed as too late."""
        from ordstream.spark.streaming.epoch_log import EpochLog

        log = EpochLog(self.folder / "checkpoint")
        names = [one["file"] for manifest in log.all() for one in manifest.late_output]
        parts = [pq.ParquetFile(log.folder / "late" / name).read() for name in names]
        return [tuple(row[name] for name in SCHEMA.names) for part in parts for row in part.to_pylist()]

    def on_driver(self) -> list[bool]:
        """Of each epoch: it ran in the driver."""
        from ordstream.spark.streaming.epoch_log import EpochLog

        return [one.figures["on_driver"] for one in EpochLog(self.folder / "checkpoint").all()]

    def _too_late(self) -> list[tuple[int, ...]]:
        number = np.arange(self.table.num_rows) // (self.table.num_rows // self.files)
        order = np.lexsort((self.table["ts"].to_numpy(), number))
        rows = self.table.take(pa.array(order[self.late[order]])).to_pylist()
        return [tuple(row.values()) for row in rows]

    def moves(self) -> dict[tuple[int, int], int]:
        """(epoch, fragment) -> keys that moved there. Every attempt of an epoch, and every node, has been
        told of the same move; and what the nodes took over is what the epoch in front had decided on.
        """
        from ordstream.spark.streaming.epoch_log import EpochLog

        found: dict[tuple[int, int], list[Any]] = {}
        for path in (self.folder / "faults").glob("move-*"):
            epoch, fragment = (int(part) for part in path.name.split("-")[1:3])
            found.setdefault((epoch, fragment), []).append(json.loads(path.read_text()))
        for place, told in found.items():
            assert all(one == told[0] for one in told), f"attempts of {place} moved different keys"
        log = EpochLog(self.folder / "checkpoint")
        manifests = [one for one in log.all() if one.balance]
        for before, after in itertools.pairwise(manifests):
            for fragment, said in before.balance.items():
                took = after.balance[fragment]["moved"]["by_plan"]["keys"]
                wanted = 0 if said["next"] is None else said["next"]["keys"]
                assert took <= wanted, f"epoch {after.number} took {took} keys, and {wanted} were to move"
                assert after.balance[fragment]["version"] == said["version"] + bool(wanted)
        return {place: len(told[0][0]) for place, told in found.items()}


def drawn(
    kills: int,
    seed: int,
    files: int,
    workers: Sequence[str] = WORKER_STEPS,
    drivers: Sequence[str] = DRIVER_STEPS,
) -> list[StreamFault]:
    """So many faults, at most two per epoch in workers and one in the driver: three of four in workers,
    which cost no new driver. The first of those in the driver takes Java along.
    """
    rng = random.Random(seed)
    found: list[StreamFault] = []
    room = {(epoch, in_driver): 2 - in_driver for epoch in range(2, files) for in_driver in (False, True)}
    number = 0
    while len(found) < kills:
        in_driver = number % 4 == 3
        steps = drivers if in_driver else workers
        step = steps[(number // 4 if in_driver else number - number // 4) % len(steps)]
        epoch = rng.randrange(2, files)
        if not room[epoch, in_driver]:
            if not any(room.values()):
                break
            if not any(room[one, in_driver] for one in range(2, files)):
                number += 1
            continue
        room[epoch, in_driver] -= 1
        when = ONE_SIDED.get(step) or rng.choice(("before", "after"))
        found.append(StreamFault(epoch, step, when, "all" if number == 3 else "kill"))
        number += 1
    return found
