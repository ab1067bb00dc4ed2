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

OF_A_JOB = "ORDSTREAM_STREAM_FAULTS" in os.environ
FOLDER = Path(os.environ.get("ORDSTREAM_STREAM_FAULTS", os.devnull))
KINDS = {"state": "state", "output": "output", "waiting": "waiting", "late": "late", "commits": "commit"}
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
        late = step == "moved state read" and epoch > its_epoch
        if (its_epoch, its_step, its_when) != (its_epoch if late else epoch, step, when):
            continue
        if (FOLDER / "enough").exists():
            return
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
    if what == "all":  # in the driver
        os.kill(int(os.environ["ORDSTREAM_STREAM_JAVA"]), signal.SIGKILL)
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


def is_seen(row: Any) -> bool:
    """The same as a filter, behind which the clock's column is still the source's."""
    seen(row)
    return True


def passed(row: Any) -> Any:
    """The function of a keyed operator: its worker imports this module, so that faults are there."""
    return tuple(row)


def _rows_epoch(ts: int) -> int:
    """About the epoch of a row: three rows have one time (`kill_streams.rows`)."""
    return max(0, ts * 3 // 120)


def install() -> None:
    """From now on `reached` is called around each use of this process's disk, inside of copies of states,
    and around the steps of moves.
    """
    from snapshot_faults import DONE, watch_copies

    install_moves()
    watch_copies(lambda when: reached(_epoch, when, "state copied"))

    def around(self: Files, place: Any, *rest: Any, plain: Any, method: str) -> Any:
        global _epoch
        path = place if isinstance(place, Path) else Path(place.name)
        folder = path.name if method == "sync_folder" else path.parent.name
        number = re.match(r"\.?(\d{12})", path.name)
        if number:
            _epoch = int(number[1]) + (2 if method == "remove" and folder == "state" else 0)
        if folder not in KINDS:
            return plain(self, place, *rest)
        kind = "known" if path.suffix == ".known" else KINDS[folder]
        step = f"{folder} folder synced" if method == "sync_folder" else f"{kind} {DONE[method]}"
        reached(_epoch, "before", step)
        found = plain(self, place, *rest)
        reached(_epoch, "after", step)
        return found

    for method in DONE:
        plain = getattr(Files, method)
        new = functools.partialmethod(around, plain=plain, method=method)
        setattr(Files, method, new)


def install_moves() -> None:
    """The steps of a move: a node tells of its keys, the driver plans, a node reads what comes to it. What
    each attempt moves is written down.
    """
    from ordstream.spark.streaming.balancing import FragmentBalance
    from ordstream.spark.streaming.epoch_functions import FragmentPart, WholeFunction
    from ordstream.spark.streaming.key_costs import KeyCosts
    from ordstream.spark.streaming.moving import MovedShare

    whole, begun, of = WholeFunction._run, FragmentPart._begun, MovedShare.of
    told, said = KeyCosts.said, FragmentBalance.said

    def whole_and_noted(self: Any, *given: Any) -> Any:
        global _epoch
        _epoch = self.begin.number
        return whole(self, *given)

    def begun_and_noted(self: Any, node: int, moved: bool) -> Any:
        global _epoch
        _epoch = self.begin.number
        if self.moves is not None:
            move = [one.tolist() for one in (self.moves.words, self.moves.source, self.moves.destination)]
            name = f"move-{_epoch}-{self.number}-{node}-{os.getpid()}-{time.monotonic_ns()}"
            (FOLDER / name).write_text(json.dumps(move))
        return begun(self, node, moved)

    def read(self: Any, batch: Any, file_node: int) -> Any:
        if file_node == self.node:
            return of(self, batch, file_node)
        reached(_epoch, "before", "moved state read")
        found = of(self, batch, file_node)
        if found.num_rows:
            reached(_epoch, "after", "moved state read")
        return found

    def telling(self: Any, node: int, epoch: int, *rest: Any) -> Any:
        reached(epoch, "before", "keys told")
        found = told(self, node, epoch, *rest)
        reached(epoch, "after", "keys told")
        return found

    def planning(self: Any, begin: Any, *rest: Any) -> Any:
        reached(begin.number, "before", "keys planned")
        found = said(self, begin, *rest)
        reached(begin.number, "after", "keys planned")
        return found

    WholeFunction._run = whole_and_noted  # type: ignore[method-assign]
    FragmentPart._begun = begun_and_noted  # type: ignore[method-assign]
    MovedShare.of = read  # type: ignore[method-assign]
    KeyCosts.said = telling  # type: ignore[method-assign]
    FragmentBalance.said = planning  # type: ignore[method-assign]


if OF_A_JOB:  # this process is one of a job
    install()
