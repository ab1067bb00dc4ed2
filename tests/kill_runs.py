"""Processes that are killed and started again: the job, the faults, and the one comparison.

A *job* is a pipeline from Parquet files into output files. The process that does it
(`tests/kills/node_process.py`) takes snapshots; it is killed, started again, killed again, and at last left
alone. Then the files that it wrote, one behind the other, must hold what `run_serial` gives: every value,
every order tag, in order.

Output files carry the range of commit points that they cover in their names. So a restarted process knows
how far the output came, by looking at the names alone.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kill_progress
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od
from ordstream.testing import run_serial

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "kills" / "node_process.py"

SCHEMA = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("cents", pa.int64())])
FILES, GROUPS, GROUP_ROWS = 4, 20, 250
ROWS = FILES * GROUPS * GROUP_ROWS
PATIENCE_S = 60.0

#: Moments of the process itself (tests/kills/node_process.py), beside those of the checkpoint's files.
OWN_STEPS = ("marker met", "output written", "output named")


# ------------------------------------------------------------ the job


def spend(row: Any, state: Any, emit: Any) -> None:
    """Python with declared state: what a user has spent so far."""
    state.visits += 1
    state.cents += row.cents
    emit(row.ts, row.user, row.item, state.visits, state.cents)


def pipeline(which: str) -> od.Pipeline:
    """What the process runs: "sessions" or "counts"."""
    paid = od.Pipeline(SCHEMA).filter(od.col("cents") > 20)
    if which == "counts":
        counted = paid.key_by("user").count("visits")
        before = counted.key_by("visits").lag({"previous": "user"})
        return before.scan(most=od.max("visits"), outputs=od.count())  # one state for all rows
    spent = paid.key_by("user").process(
        spend,
        schema=pa.schema(
            [("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("visits", pa.int64())]
            + [("cents", pa.int64())]
        ),
        state={"visits": pa.int64(), "cents": pa.int64()},
        name="spend",
    )
    seen = spent.key_by("item").scan(seen=od.count(), most=od.max("cents"))
    return seen.key_by("user").sessionize("ts", 30, collect=["visits", "seen"])


def rows(seed: int) -> pa.Table:
    """The source: clicks of 60 users, one of them null, in the order of time."""
    rng = np.random.default_rng(seed)
    users = pa.array(rng.integers(0, 60, ROWS), mask=rng.integers(0, 60, ROWS) == 0)
    return pa.table(
        {
            "ts": np.cumsum(rng.integers(0, 3, ROWS)),
            "user": users,
            "item": pa.array([f"item {k}" for k in rng.zipf(1.5, ROWS) % 200]),
            "cents": rng.integers(0, 100, ROWS),
        },
        schema=SCHEMA,
    )


def write_source(folder: Path, table: pa.Table) -> None:
    """The source's files: `FILES` of `GROUPS` row groups."""
    folder.mkdir()
    size = GROUPS * GROUP_ROWS
    for number in range(FILES):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=GROUP_ROWS)


# ------------------------------------------------------------ output files

_NAME = re.compile(r"(\d+)\.(\d+)-(\d+)\.(\d+)\.arrow")


def output_name(first: od.OrderTag, last: od.OrderTag) -> str:
    """Name of the file with the outputs behind `first`, up to `last`; names sort as the output does."""
    return f"{first.serial:09}.{first.index + 1:06}-{last.serial:09}.{last.index + 1:06}.arrow"


def output_files(folder: Path) -> list[tuple[od.OrderTag, od.OrderTag, Path]]:
    """Finished files in order, each with its range; what is half written has another name."""
    found = []
    for path in sorted(folder.iterdir()):
        if name := _NAME.fullmatch(path.name):
            a, b, c, d = map(int, name.groups())
            found.append((od.OrderTag(a, b - 1), od.OrderTag(c, d - 1), path))
    return found


def compare(folder: Path, which: str, table: pa.Table) -> None:
    """The concatenated output is `run_serial`'s, values and tags, and no two files overlap.

    Raises
    ------
    AssertionError
        It says where the first difference is.
    """
    expected = run_serial(pipeline(which), table)
    assert expected.error is None
    wanted = [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]
    got: list[tuple[Any, ...]] = []
    ranges = []
    for first, last, path in output_files(folder):
        ranges.append((first, last))
        with pa.ipc.open_file(path) as file:
            for row in file.read_all().to_pylist():
                got.append(tuple(row.values()))
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=False)):
        assert mine == theirs, f"output {number} of {len(wanted)} is {mine}, and run_serial gives {theirs}"
    assert len(got) == len(wanted), f"{len(got)} outputs, and run_serial gives {len(wanted)}"
    assert len(wanted) > ROWS // 10, "a job without output shows nothing"
    for (_, last), (first, _) in itertools.pairwise(ranges):
        assert first == last, f"a file begins at {first} where the one before ends at {last}"


# ------------------------------------------------------------ faults


@dataclass(frozen=True)
class Fault:
    """How a process ends: at a step (before or after it, the n-th time), or after so many seconds."""

    step: str = ""
    when: str = "before"
    n: int = 1
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.step:
            return f"{self.when} {self.step} ({self.n})"
        return f"after {self.seconds:.3f} s"


@dataclass
class Job:
    """One job in a folder of its own.

    Attributes
    ----------
    which : str
        See `pipeline`.
    workers : int
    every : int
        Rows from one snapshot to the next.
    held : int
        Output batches that the process keeps in memory before it writes the oldest. 0 is right. With more,
        a snapshot is published before its outputs are written: the negative control.
    """

    folder: Path
    which: str = "sessions"
    workers: int = 2
    every: int = 500
    seed: int = 1
    held: int = 0
    table: pa.Table = field(init=False)
    fired: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.table = rows(self.seed)
        write_source(self.folder / "source", self.table)
        for name in ("output", "flags"):
            (self.folder / name).mkdir()

    def run(self, fault: Fault | None = None) -> int:
        """Start the process, end it by `fault`, and see that it really ended so. Its exit status.

        Raises
        ------
        AssertionError
            The fault never fired, or the process ended badly by itself.
        """
        number, began = len(self.fired), time.monotonic()
        flag = self.folder / "flags" / f"{number}"
        given = {
            "folder": str(self.folder),
            "which": self.which,
            "workers": self.workers,
            "every": self.every,
            "held": self.held,
            "flag": str(flag),
            "fault": [fault.when, fault.step, fault.n] if fault is not None and fault.step else None,
        }
        log = self.folder / f"log-{number}"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *filter(None, sys.path)])},
            )
        try:
            if fault is not None and not fault.step:
                self._kill_later(process, fault.seconds, flag)
            status = process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        said = log.read_text(errors="replace")
        if fault is None:
            assert status == 0, f"the process ended with {status}:\n{said}"
            return status
        assert status in (0, -signal.SIGKILL), f"the process ended with {status}:\n{said}"
        assert flag.exists(), f"the fault {fault} never fired: the process ended with {status}\n{said}"
        assert status == -signal.SIGKILL
        self.fired.append(fault)
        kill_progress.told(f"{fault} ({self.which}, {self.workers} workers)", time.monotonic() - began)
        return status

    @staticmethod
    def _kill_later(process: subprocess.Popen[bytes], seconds: float, flag: Path) -> None:
        """Wait until the process has its stream, then so long, then kill it."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        if not ready or process.stdout.readline().strip() != b"begun":
            return  # it failed before; the flag tells
        time.sleep(seconds)
        if process.poll() is None:
            flag.touch()
            process.kill()

    def compare(self) -> None:
        """`compare` of what the job wrote."""
        compare(self.folder / "output", self.which, self.table)


def drawn(steps: Sequence[str], kills: int, seed: int) -> list[Fault]:
    """So many faults in random order: one of six at a random moment, the others before or after a step,
    each step as often as any other; what does not go into the last round are the last steps.
    """
    rng = random.Random(seed)
    at_random = kills // 6
    faults = [Fault(seconds=rng.uniform(0.0, 0.04)) for _ in range(at_random)]
    for number in range(kills - at_random):
        step = steps[number % len(steps)]
        most = 12 if step in ("state written", "state copied") else 2
        faults.append(Fault(step, rng.choice(("before", "after")), rng.randint(1, most)))
    rng.shuffle(faults)
    return faults
