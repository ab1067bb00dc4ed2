"""The moments of a snapshot at which a process is killed: before and after each use of the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ordstream.snapshots import checkpoint

#: (method of `Files`, what the path is) -> the step's name.
FILE_STEPS = {
    ("write", "state"): "state written",
    ("sync", "state"): "state synced",
    ("write", "manifest"): "manifest written",
    ("sync", "manifest"): "manifest synced",
    ("link", "manifest"): "manifest linked",
    ("sync_folder", "checkpoint"): "folder synced",
    ("unlink", "commit"): "collected",
}


def install(reached: Callable[[str, str], None]) -> None:
    class Faulty(checkpoint.Files):
        pass

    def wrap(name):
        plain = getattr(checkpoint.Files, name)
        def call(self, path, *rest):
            kind = Path(path).name.split("-")[0].split(".")[0]
            step = FILE_STEPS.get((name, kind))
            if step: reached("before", step)
            r = plain(self, path, *rest)
            if step: reached("after", step)
            return r
        setattr(Faulty, name, call)
    for name in ("write", "sync", "link", "sync_folder", "unlink"):
        wrap(name)
    checkpoint.Files = Faulty
