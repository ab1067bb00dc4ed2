"""The moments of a snapshot at which a process is killed: inside the copy of a bucket's state, when the
reader meets its marker, and before and after each use of the disk.

`Files` (ordstream/snapshots/files.py) has one method for each. Here its methods are replaced in the process
that is to be killed, and so are its kernels' exports; the package itself knows nothing of faults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ordstream._core.lab.testing_exports import watch_exports
from ordstream.node.snapshotting import Snapshotting
from ordstream.snapshots.files import Files

#: Method of `Files` -> what was done.
DONE = {
    "create": "created",
    "write": "written",
    "sync": "synced",
    "link": "linked",
    "sync_folder": "synced",
    "remove": "removed",
}


def step_of(method: str, place: Any) -> str:
    """Name of a step: "state written", "commit linked", "state folder synced"."""
    path = place if isinstance(place, Path) else Path(place.name)
    if method == "sync_folder":
        return f"{path.name if path.name in ('state', 'commits') else 'top'} folder synced"
    kind = {"state": "state", "commits": "commit"}.get(path.parent.name, "top")
    return f"{kind} {DONE[method]}"


def watch_copies(told: Callable[[str], None]) -> None:
    """From now on `told` is called, by a worker, with "before" in front of the first rows of a bucket that a
    marker copies, and with "after" where some of its rows were copied and others are left.
    """
    begin = Snapshotting.install

    def install(self: Snapshotting, core: Any, operators: Any, *sheds: Any) -> None:
        begin(self, core, operators, *sheds)
        watch_exports(core, told)

    Snapshotting.install = functools.wraps(begin)(install)


def install(reached: Callable[[str, str], None]) -> None:
    """From now on `reached("before" or "after", step)` is called around each step of this process."""
    watch_copies(lambda when: reached(when, "state copied"))
    met = Snapshotting.passed

    def passed(self: Snapshotting, *given: Any) -> None:
        reached("before", "marker met")  # all outputs in front of it were read
        met(self, *given)
        reached("after", "marker met")  # the writer has it

    Snapshotting.passed = functools.wraps(met)(passed)
    for method in DONE:
        plain = getattr(Files, method)

        def around(self: Files, place: Any, *rest: Any, plain: Any = plain, method: str = method) -> Any:
            step = step_of(method, place)
            reached("before", step)
            found = plain(self, place, *rest)
            reached("after", step)
            return found

        setattr(Files, method, functools.wraps(plain)(around))
