"""What a move cost a run, measured: how many seconds' worth of rows did not go out while keys moved.

While no keys move, the caller sees how fast the source's rows go out, and the nodes tell how long the
fullest one worked for them. A move that took 2 s in which half as many rows went out as else cost 1 s; where
the fullest node was idle a third of the time before, 0.67 s of its work. That is the unit in which gains are
counted (`ordstream.balance.mixed.payback`). It holds on a machine with other load, too, and where the source
is slow.
"""

from __future__ import annotations

from collections.abc import Callable

#: Parts of an interval's pace in what is known of those before.
NEW = 0.5


class MovePace:
    """See the module. One writer.

    Parameters
    ----------
    time : callable
        Seconds, of a clock on the wall.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._from: tuple[int, float] | None = None  # the last report's marker, where no keys moved since
        self._span: tuple[int, float] | None = None  # rows and seconds of the interval that is reported
        self._row_s = 0.0  # seconds from one row to the next; 0: not known
        self._work = 1.0  # of which the fullest node worked
        self._move: tuple[int, float] | None = None

    def reports_at(self, serial: int) -> None:
        """A marker that has nodes report is behind this tuple."""
        now = self._time()
        before, self._from = self._from, (serial, now)
        self._span = None
        if before is not None and self._move is None:
            self._span = serial - before[0], now - before[1]

    def worked(self, seconds: float) -> None:
        """The fullest node did so much in the interval whose reports are here."""
        if self._span is None or self._move is not None:
            return
        rows, took = self._span
        self._span = None
        if rows < 1 or took <= 0:
            return
        part = NEW if self._row_s else 1.0
        self._row_s += part * (took / rows - self._row_s)
        self._work += part * (min(1.0, seconds / took) - self._work)

    def moves_at(self, serial: int) -> None:
        """The first step of a move is in the order behind this tuple."""
        if self._move is None:
            self._move = serial, self._time()

    def moved(self, serial: int) -> float | None:
        """The last step is done, and the source is here. Seconds of the fullest node's work that it cost;
        None: it is not known how fast rows go else.
        """
        began, self._move = self._move, None
        self._from = None  # an interval with a move in it tells nothing
        if began is None or not self._row_s:
            return None
        took = self._time() - began[1]
        return max(0.0, took - (serial - began[0]) * self._row_s) * self._work
