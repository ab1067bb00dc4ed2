"""Files of a checkpoint: the steps in which they are written, and JSON that carries its checksum.

Checksums are CRC-32 (`zlib.crc32`): a flipped byte never passes, nor does any other damage of up to 32 bits
in a row; of larger damage, one in four thousand million does. It is in the standard library, runs without
the GIL and is far faster than a disk. It protects from accidents, not from someone who means harm.
"""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

BUFFER = 1 << 20  # bytes that go to the system at a time


class Files:
    """The steps of writing, one method each: a test replaces one of them by a failing one.

    Every method raises OSError.
    """

    def folder(self, path: Path) -> None:
        """Make a folder, and those above it, where it is not there."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:  # which reads as if a folder were in the way
            raise NotADirectoryError(
                errno.ENOTDIR, "it is no folder, but a file, or a link to what is not there", str(path)
            ) from error

    def create(self, path: Path) -> BinaryIO:
        """Open a new file for writing."""
        return path.open("xb", buffering=BUFFER)

    def write(self, file: BinaryIO, data: Any) -> None:
        """Append bytes, or what has the buffer protocol."""
        file.write(data)

    def sync(self, file: BinaryIO) -> None:
        """Bring all that was written to the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        """Bring a folder's names to the disk, where the system can do that by itself."""
        if os.name == "nt":  # a folder can't be opened there
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. FileExistsError where there is a file of that name: it is never
        replaced.
        """
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()


class Damaged(ValueError):
    """What is in a file is not what was written; the text says how that was seen."""


_TAIL = re.compile(rb',"crc32":"[0-9a-f]{8}"}\n')
_TAIL_BYTES = len(b',"crc32":"00000000"}\n')


def checked_json(content: Mapping[str, Any]) -> bytes:
    """A JSON object in one line, in ASCII, whose last member is the checksum of all bytes in front of it.

    Raises
    ------
    TypeError, ValueError
        Of `json.dumps`.
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)[:-1].encode("ascii")
    return text + _tail(text)


def read_json(data: bytes) -> dict[str, Any]:
    """What `checked_json` wrote.

    Raises
    ------
    Damaged
    """
    text, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    if not _TAIL.fullmatch(tail):
        raise Damaged("its end is missing")
    if tail != _tail(text):
        raise Damaged("its checksum does not match")
    content = json.loads(text + b"}")
    if not isinstance(content, dict):
        raise Damaged("it is no JSON object")
    return content


def _tail(text: bytes) -> bytes:
    return b',"crc32":"%08x"}\n' % zlib.crc32(text)
