"""Time punctuations that come with a source's rows: what a node of several takes in place of a clock. One by
one, or as many as stand among the rows of a batch: those of a day in minutes cost more than a node's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.plan.clock import SOURCE_MARKS


@dataclass(frozen=True)
class SourceMark:
    """A time punctuation between two batches.

    Attributes
    ----------
    time : int
        In the clock's storage units.
    clock : int
        Whose it is, as of `ordstream.plan.clock.marks_of`.
    """

    time: int
    clock: int = field(default=SOURCE_MARKS, kw_only=True)
    num_rows: ClassVar[int] = 0


@dataclass(frozen=True, eq=False)
class MarkedRows:
    """A batch, and the time punctuations of one clock among its rows.

    Attributes
    ----------
    rows : pyarrow.RecordBatch
        Maybe none.
    before : array of int64
        Row, from 0 to their number, that each mark is in front of; ascending.
    times : array of int64
        As `SourceMark.time`.
    clock : int
        As `SourceMark.clock`.
    """

    rows: pa.RecordBatch
    before: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]
    clock: int = field(default=SOURCE_MARKS, kw_only=True)

    def parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[MarkedRows | pa.RecordBatch]:
        """The same, with its rows as these batches have them."""
        start = taken = 0
        for rows in batches:
            start += rows.num_rows
            # those behind a batch's last row may as well go with it
            stop = int(np.searchsorted(self.before, start, side="right"))
            before = self.before[taken:stop] - (start - rows.num_rows)
            marked = MarkedRows(rows, before, self.times[taken:stop], clock=self.clock)
            yield marked if stop > taken else rows
            taken = stop
        if taken < len(self.before):
            none = self.rows.slice(0, 0)
            yield MarkedRows(none, self.before[taken:] - start, self.times[taken:], clock=self.clock)

    def pieces(self) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        """Rows, maybe none, and the time of the mark behind them; None: the batch ends with them."""
        start = 0
        for stop, time in zip(self.before.tolist(), self.times.tolist(), strict=True):
            yield self.rows.slice(start, stop - start), time
            start = stop
        yield self.rows.slice(start), None
