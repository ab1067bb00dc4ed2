"""Sort more rows than memory should hold: spread them over files by time of day, then take one file at a
time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

SPAN = 86_400  # seconds that the slices share


class Spill:
    """Rows of whole numbers on disk, in slices of the day.

    Memory holds what one `add` brings, or one slice. The files go when the block is left.

    Parameters
    ----------
    slices : int
        Slices that the day is cut into, evenly.
    folder : path, optional
        Where to put the files; default the system's folder for temporary files.

    Raises
    ------
    OSError
        If the disk is full or can't be written.
    """

    def __init__(self, slices: int, folder: Path | None = None) -> None:
        self._slices = min(max(slices, 1), SPAN)
        self._folder = tempfile.TemporaryDirectory(prefix=".spill-", dir=folder)
        self._files = [Path(self._folder.name) / str(at) for at in range(self._slices)]
        self._columns = 0

    def __enter__(self) -> Self:
        """Return the spill."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def add(self, time: Ints, columns: Sequence[Ints]) -> None:
        """Take rows; values must fit 32 bits.

        Parameters
        ----------
        time : array
            Second of the day of each row.
        columns : sequence of arrays
            As many in every call. Rows of one second keep their order from call to call.
        """
        self._columns = len(columns)
        rows = np.column_stack(columns).astype(np.int32)
        place = time * self._slices // SPAN
        order = np.argsort(place, kind="stable")
        rows, place = rows[order], place[order]
        cuts = np.flatnonzero(np.diff(place)) + 1
        for part, begin in zip(np.split(rows, cuts), [0, *cuts.tolist()], strict=True):
            if len(part):
                with self._files[int(place[begin])].open("ab") as file:
                    file.write(part.tobytes())

    def slices(self) -> Iterator[list[Ints]]:
        """Yield the columns of each slice that has rows, in order of time; each can be read once."""
        for file in self._files:
            if file.exists():
                rows = np.fromfile(file, dtype=np.int32).reshape(-1, self._columns)
                file.unlink()
                yield [rows[:, i].astype(np.int64) for i in range(self._columns)]
