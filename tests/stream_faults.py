"""Faults of a stream, in whatever process imports this: its driver, and its Python workers, which import it
for the function of the pipeline. `Files` is replaced here; the package knows nothing of faults.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from ordstream.snapshots.files import Files

FOLDER = Path(os.environ.get("ORDSTREAM_STREAM_FAULTS", "/nonexistent"))
KINDS = {"state": "state", "output": "output", "waiting": "waiting", "commits": "commit"}
_FAULTS = [
    (number, json.loads(path.read_text()))
    for number, path in ((int(path.stem), path) for path in sorted(FOLDER.glob("*.json")))
]
_epoch = -1  # the one that this process writes files of


def java() -> int:
    """The Java process above a worker."""
    parent = os.getppid()  # the daemon that forked this worker
    status = Path(f"/proc/{parent}/status").read_text()
    return int(re.findall(r"PPid:\s+(\d+)", status)[0])


def reached(epoch: int, when: str, step: str) -> None:
    """A moment has come: do what is planned for it, once."""
    for number, (its_epoch, its_step, its_when, what) in _FAULTS:
        if (its_epoch, its_step, its_when) != (epoch, step, when):
            continue
        try:
            os.close(os.open(FOLDER / f"{number}.fired", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        print(f"planned: {what} {when} {step} of epoch {epoch}", file=sys.stderr, flush=True)
        act(what, epoch)


def act(what: str, epoch: int) -> None:
    """Do it to this process."""
    if what == "full":
        raise OSError(errno.ENOSPC, "No space left on device")
    if what == "zombie":
        linger(epoch)
        return
    os.kill(java() if what == "java" else os.getpid(), signal.SIGKILL)
    time.sleep(60)  # until Java is gone


def linger(epoch: int) -> None:
    """This attempt is given up by Spark, and goes on when its epoch was committed by another one."""
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    for path in list(Path("/proc/self/fd").iterdir()):  # Spark must hear that the attempt has ended
        try:
            socket.socket(fileno=os.dup(int(path.name))).close()  # OSError: it is none
            os.close(int(path.name))
        except OSError:
            continue
    commits = FOLDER.parent / "checkpoint" / "commits"
    until = time.monotonic() + 60
    while not (commits / f"{epoch:012d}.json").exists() and time.monotonic() < until:
        time.sleep(0.01)
    (FOLDER / "lingered").touch()


def seen(row: Any) -> Any:
    """The pipeline's function: a row was read."""
    if row.cents % 10 == 5:
        reached(_rows_epoch(row.ts), "after", "row read")
    return tuple(row)


def _rows_epoch(ts: int) -> int:
    """About the epoch of a row: three rows have one time (`kill_streams.rows`)."""
    return max(0, ts * 3 // 120)


def install() -> None:
    """From now on `reached` is called around each use of the disk of this process."""
    from snapshot_faults import DONE

    def around(self: Files, place: Any, *rest: Any, plain: Any, method: str) -> Any:
        global _epoch
        path = place if isinstance(place, Path) else Path(place.name)
        folder = path.name if method == "sync_folder" else path.parent.name
        number = re.match(r"\.?(\d{12})", path.name)
        if number:
            _epoch = int(number[1]) + (2 if method == "remove" and folder == "state" else 0)
        if folder not in KINDS:
            return plain(self, place, *rest)
        step = f"{folder} folder synced" if method == "sync_folder" else f"{KINDS[folder]} {DONE[method]}"
        reached(_epoch, "before", step)
        found = plain(self, place, *rest)
        reached(_epoch, "after", step)
        return found

    for method in DONE:
        plain = getattr(Files, method)
        new = functools.partialmethod(around, plain=plain, method=method)
        setattr(Files, method, new)


if FOLDER.is_dir():  # this process is one of a job
    install()
