"""The process that is killed: one pipeline from Parquet files into output files, with snapshots.

``python node_process.py '{"folder": ..., "which": ..., ...}'``; see `kill_runs.Job.run`. On a second start
it goes on where the first one was: the checkpoint says what the pipeline knew, the names of the output
files say what was delivered.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from kill_runs import output_files, output_name, pipeline
from snapshot_faults import install

import ordstream as od

PACE_S = 0.004  # per source batch: else a run ends before a random kill


class Faults:
    """Kills this process at one moment of its life; the flag says that it was reached."""

    def __init__(self, fault: list[Any] | None, flag: str) -> None:
        self._when, self._step, self._left = fault or ("", "", 0)
        self._flag = flag

    def reached(self, when: str, step: str) -> None:
        """A moment has come."""
        if (when, step) != (self._when, self._step):
            return
        self._left -= 1
        if self._left == 0:
            Path(self._flag).touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Paced:
    """A source of a user's own around another one: it takes its time, and keeps the place."""

    def __init__(self, source: od.ParquetSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            time.sleep(PACE_S)
            yield batch

    def position(self) -> Any:
        return self._source.position()

    def seek(self, position: Any) -> None:
        self._source.seek(position)


class Output:
    """Files that are there whole or not at all; the names say which outputs are in them."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults
        files = output_files(folder)
        self.through = files[-1][1] if files else None

    def write(self, batch: pa.RecordBatch, through: od.OrderTag) -> None:
        """Add one file. When this returns it survives a crash of the machine."""
        final = self._folder / output_name(self.through or od.OrderTag(0), through)
        begun = final.with_suffix(".part")
        self._faults.reached("before", "output written")
        with begun.open("wb") as file:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        self._faults.reached("after", "output written")
        self._faults.reached("before", "output named")
        begun.rename(final)
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.through = through
        self._faults.reached("after", "output named")


def main() -> None:
    """Run until the source ends, or the fault comes."""
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    faults = Faults(given["fault"], given["flag"])
    install(faults.reached)
    output = Output(folder / "output", faults)
    options = {} if output.through is None or given["held"] else {"emitted_through": output.through}
    stream = pipeline(given["which"]).stream(
        Paced(od.ParquetSource(str(folder / "source" / "*.parquet"))),
        checkpoint=str(folder / "checkpoint"),
        every=given["every"],
        workers=given["workers"],
        tags=True,
        **options,
    )
    print("begun", flush=True)
    held: list[tuple[pa.RecordBatch, od.OrderTag]] = []
    with stream:
        for batch in stream:
            if not batch.num_rows:
                continue
            held.append((batch, stream.emitted_through))
            if len(held) > given["held"]:
                output.write(*held.pop(0))
    for one in held:
        output.write(*one)


if __name__ == "__main__":
    main()
