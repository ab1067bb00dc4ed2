"""A driver that delivers epochs to a sink, and is killed at a step of it. Run as a program.

Each line of stdin is a job (JSON); a child is forked for it, so that nothing is imported twice. The answer
is a line with the child's exit status: 0, or -9 where it was killed.

Job: sink ("folder", "copies", "function", "postgres", "two transactions"), target (a folder, a file, or
[dsn, table]), checkpoint, fault (number of the step at which it is killed, from 1; 0: none), steps (a file
into which the names of the steps are written as they are reached).
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg  # noqa: F401 - before the fork, as are the next two
import pyarrow.parquet  # noqa: F401
from sink_epochs import from_json, rows, stream

from ordstream.snapshots.files import Files
from ordstream.spark.streaming.sinks import Function, ParquetFolder, Postgres, postgres


class TwoTransactions(Postgres):
    """The negative control: the rows in one transaction, the epoch's number in the next."""

    def _copy(self, connection: Any, *given: Any) -> None:
        super()._copy(connection, *given)
        connection.execute("COMMIT")
        connection.execute("BEGIN")


class Steps:
    """Counts steps, writes their names down, and kills the process at one."""

    def __init__(self, fault: int, told: Path) -> None:
        self.fault, self.count = fault, 0
        self.told = told.open("w", encoding="utf-8")

    def reached(self, name: str) -> None:
        self.count += 1
        print(name, file=self.told, flush=True)
        if self.count == self.fault:
            print("killed", file=self.told, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, method: str) -> None:
        """From now on a step stands before and after each call."""
        plain = getattr(owner, method)

        def stepped(*given: Any, **named: Any) -> Any:
            self.reached(f"before {method}")
            found = plain(*given, **named)
            self.reached(f"after {method}")
            return found

        setattr(owner, method, stepped)


def remember(target: Path) -> Any:
    """A function of a user's that keeps every call, at once and durably."""

    def seen(batch: int, given: Any, key: str) -> None:
        with target.open("a", encoding="utf-8") as file:
            print(json.dumps([batch, key, repr(given.to_pylist())]), file=file)

    return seen


def work(job: dict[str, Any]) -> None:
    kind, target = job["sink"], job["target"]
    steps = Steps(job["fault"], Path(job["steps"]))
    if kind == "copies":  # as on another file system
        link = Files.link

        def elsewhere(self: Files, source: Path, name: Path) -> None:
            if source.parent != name.parent:
                raise OSError(errno.EXDEV, "cross-device link")
            link(self, source, name)

        Files.link = elsewhere
    if kind in ("folder", "copies", "function"):
        for method in ("create", "write", "sync", "link", "sync_folder", "remove"):
            steps.around(Files, method)
    else:
        for method in ("_take", "_lock", "_copy", "_write", "_retried"):
            steps.around(Postgres, method)
        steps.around(postgres, "lines")
    if kind in ("folder", "copies"):
        sink: Any = ParquetFolder(target)
    elif kind == "function":
        sink = Function(remember(Path(target)))
        steps.around(sink, "function")
    else:
        sink = (TwoTransactions if kind == "two transactions" else Postgres)(*target)
    checkpoint = Path(job["checkpoint"])
    sink.open(stream(checkpoint))
    newest = sink.delivered()
    for epoch in from_json((checkpoint / "epochs.json").read_text()):
        if newest is None or epoch.number > newest:
            sink.deliver(epoch)
            steps.reached("delivered")
    sink.close()


def main() -> None:
    rows(0, 1).to_pylist()  # brings pandas with it
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                work(json.loads(line))
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
