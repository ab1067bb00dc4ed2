"""The error of a checkpoint whose folder goes while it is in use: whatever met it first says less."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path

from ordstream.errors import CheckpointError


@contextlib.contextmanager
def told_if_moved(folder: Path, *inside: Path) -> Iterator[None]:
    """Say of a failure inside that the folder was moved or removed, where one of the folders in it is not
    there. Any thread.

    Raises
    ------
    CheckpointError
        One is not there; else what the block raises.
    """
    try:
        yield
    except (CheckpointError, OSError) as error:
        if all(map(_is_there, inside)):
            raise
        raise CheckpointError(
            f"{folder}: the folder of the checkpoint, or what is in it, was moved or removed while it is in "
            "use: no snapshot is here now, and none can be made. Bring it back, or begin anew in a folder "
            "that stays where it is"
        ) from error


def _is_there(folder: Path) -> bool:
    """Also where this process may not look."""
    try:
        return stat.S_ISDIR(folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
