"""Which epochs a stream can go back to: those whose state, and rows that wait, are still there."""

from __future__ import annotations

import os
from pathlib import Path

from ordstream.errors import CheckpointError
from ordstream.snapshots.files import Damaged
from ordstream.spark.streaming.epoch_manifest import STATE, WAITING, EpochManifest, Said

COMMITS = "commits"
#: Epochs whose state stays: the last one, and the one to go back to.
KEPT = 2
#: So many epochs are looked at for one to go back to: only the last ones have their state.
_LOOKED_AT = 10


def manifest_path(folder: Path, number: int) -> Path:
    """The manifest's of an epoch."""
    return folder / COMMITS / f"{number:012d}.json"


def missing(folder: Path, manifest: EpochManifest) -> tuple[Path, str] | None:
    """A file that the next epoch would need and that is not as it was, and how; None: the stream can go back
    to this epoch.
    """
    states = [part for parts in manifest.states.values() for part in parts]
    states += manifest.beside()
    for place, what, files in (
        (STATE, "the state", states),
        (WAITING, "rows that wait", manifest.waiting),
    ):
        for file in files:
            path = folder / place / file["file"]
            seen = _seen(path, file)
            if seen:
                return path, f"{what} behind epoch {manifest.number} {seen}"
    return None


def _seen(path: Path, said: Said) -> str:
    try:
        length = path.stat().st_size
    except FileNotFoundError:
        return "is gone" if path.parent.name == STATE else "are gone"
    except OSError as error:
        return f"can't be read ({error.strerror or error})"
    return "" if length == said["bytes"] else f"can't be used ({length} bytes in place of {said['bytes']})"


def way_back(folder: str | os.PathLike[str], number: int, broken: Path) -> str:
    """What to do where a file of epoch `number` can't be used, for its error: an epoch before it is named
    only if the stream can go on from there.
    """
    path = Path(folder)
    for one in range(number - 1, max(number - 1 - _LOOKED_AT, -1), -1):
        if _goes_on(path, one, broken):
            return (
                f"The newest before it that can be used is epoch {one}: od.spark.rewind({str(path)!r}, "
                f"to={one})"
            )
    return (
        f"No epoch before it can be used (the last {KEPT} that ran keep their state): put the file back "
        "from a copy, or begin anew, with the rows that the source still has: "
        f"od.spark.rewind({str(path)!r}, to=-1)"
    )


def _goes_on(folder: Path, number: int, broken: Path) -> bool:
    try:
        manifest = EpochManifest.from_bytes(manifest_path(folder, number).read_bytes(), number)
        # A node without rows keeps its file, so two epochs may name the same one.
        return broken.name not in (name for _, name in manifest.names()) and not missing(folder, manifest)
    except (OSError, Damaged, CheckpointError, KeyError, TypeError, ValueError):
        return False
