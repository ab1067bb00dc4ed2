"""Files that are there whole or not at all: what was in a file before stays until all of the new content
is on the disk.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

ADVICE = "make room, or name another place"


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file: beside it first, flushed to the disk, then put in its place.

    A device or a pipe is written as it is. A link stays, and what it points to is replaced.

    Raises
    ------
    OSError
        One line with the file's name. An older file is then as it was, and nothing new was left.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                file.write(data)
            return
        _replace(path.resolve(), data)
    except OSError as error:
        raise OSError(f"{path} can't be written: {error.strerror or error}; {ADVICE}") from error


def check_place(path: Path) -> None:
    """Raise OSError where `write_whole` could not begin to write. What is there stays."""
    if path.exists() and not path.is_file():
        return  # the reader of a pipe may take the closing for the end
    if path.exists():
        path.open("a").close()
    target = path.resolve()
    descriptor, name = _beside(target)
    os.close(descriptor)
    Path(name).unlink()
    if not path.exists():  # a name that the system does not take
        target.open("a").close()
        target.unlink()


def _beside(path: Path) -> tuple[int, str]:
    return tempfile.mkstemp(dir=path.parent, prefix=".ordstream-", suffix=".part")


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = _beside(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(_mode(path))
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _mode(path: Path) -> int:
    """Permissions of the file that is replaced; of a new one, what the process gives."""
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
