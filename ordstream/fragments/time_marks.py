"""Marks of the clock between nodes. The caller looks at the source's times where it gives serials; each mark
goes to every node, through every node in front of it, and stands in the order: behind the rows that it made
operators in front emit, and in front of the tuple that shows it.

A mark stands at a tag: `ordertags.in_front` of the tuple, then the position of the receiving fragment's
first operator in 2 bytes, then its time in 8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.errors import PlanError, SourceError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.merging import Tags
from ordstream.ground.ordercheck import runs_backwards
from ordstream.ground.ordertags import MARK, ORDINARY, in_front, tags_of
from ordstream.ground.types import storage_array
from ordstream.node.source_marks import SourceMark
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import clock_needed_by, clock_of, takes_marks
from ordstream.plan.plan import Plan

#: Of each mark in a node (`_core/flow/ingress.pxd`, mark_serials).
MARK_SERIALS = 1 << 32
HEAD = len(in_front(1))
#: Bytes in front of the time.
PLACE = HEAD + 2


@dataclass(frozen=True)
class TimeMark(SourceMark):
    """A mark on its way into a node.

    Attributes
    ----------
    place : bytes
        Its tag among the rows that arrive, without its time: nothing that it makes operators emit is less.
    """

    place: bytes

    @classmethod
    def at(cls, tag: bytes) -> TimeMark:
        """The mark that stands at a tag."""
        return cls(int.from_bytes(tag[PLACE : PLACE + 8], "big", signed=True), tag[:PLACE])


def mark_tag(serial: int, time: int, position: int, range_: int = 0) -> bytes:
    """Where the mark stands that a tuple shows, among the rows for the fragment whose first operator is at
    `position`; `range_`: as of `in_front`.
    """
    return in_front(serial, range_) + position.to_bytes(2, "big") + time.to_bytes(8, "big", signed=True)


def moved(tag: bytes, position: int) -> bytes:
    """The same mark among the rows for another fragment."""
    return tag[:HEAD] + position.to_bytes(2, "big") + tag[PLACE:]


def of_mark(tag: bytes) -> bool:
    """Whether a mark, or what it made an operator emit, has this tag."""
    return tag[:1] == ORDINARY and tag[9:HEAD] == MARK


def source_clock(plan: Plan, punctuate: Every | None, latest: int | None) -> SourceClock | None:
    """The clock of a run; None: it has none. `latest`: as of `SourceClock`."""
    return None if clock_of(plan, punctuate) is None else SourceClock(plan, punctuate, latest)


def among(rows: Iterator[pa.RecordBatch], tags: Iterable[bytes]) -> Iterator[pa.RecordBatch | TimeMark]:
    """Rows with their tags, in order, and marks among them.

    Parameters
    ----------
    rows : iterator of pyarrow.RecordBatch
        Their tags are last.
    tags : iterable of bytes
        Of the marks, ascending.
    """
    left = iter(tags)
    mark = next(left, None)
    for batch in rows:
        own = Tags(tags_of(batch))
        start = 0
        while mark is not None and len(own) and mark < own[-1]:
            stop = bisect_left(own, mark, start)
            if stop > start:
                yield batch.slice(start, stop - start)
            yield TimeMark.at(mark)
            start, mark = stop, next(left, None)
        yield batch.slice(start)
    while mark is not None:
        yield TimeMark.at(mark)
        mark = next(left, None)


def hears_marks(fragment: Fragment, punctuate: Every | None) -> bool:
    """Whether an operator of a fragment may do something at a mark."""
    return any(one.stateful and takes_marks(one, punctuate) for one in fragment.operators)


def refuse_moves(tables: Any, plan: Plan, punctuate: Every | None) -> None:
    """PlanError where keys would move between nodes that a clock's marks reach."""
    if tables and clock_of(plan, punctuate) is not None:
        raise PlanError(
            "balance= moves keys while their rows come, and a mark of the clock has to find all keys in "
            "their places: leave balance= out, or the windows and timers that a clock closes"
        )


class SourceClock:
    """Marks of a source's rows, block by block.

    Parameters
    ----------
    plan : Plan
    punctuate : Every, optional
        As of a run.
    latest : int, optional
        The time in front of the first row.

    Attributes
    ----------
    latest : int or None
        The largest time so far; None: there was none.
    """

    def __init__(self, plan: Plan, punctuate: Every | None, latest: int | None = None) -> None:
        told = clock_of(plan, punctuate)
        assert told is not None
        self._column, self._period = told
        self._field, self._needed_by = plan.source.field(told[0]), clock_needed_by(plan)
        self.latest = latest

    def take(
        self, first: int, rows: pa.RecordBatch
    ) -> tuple[list[tuple[int, int]], tuple[int, SourceError] | None]:
        """The next rows, of which the first one has the serial `first`.

        Returns
        -------
        list of (int, int)
            Serial of the tuple that shows a mark, and its time.
        (int, SourceError) or None
            A row, from 0, that is earlier than the one before it, and what is wrong with it: the clock has
            taken the rows in front of it.
        """
        column = rows.column(self._column)
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        times: npt.NDArray[np.int64] = (
            storage_array(column.drop_null()).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        if not len(times):
            return [], None
        began = self.latest is None
        before = np.concatenate([times[:1] if began else np.array([self.latest], np.int64), times[:-1]])
        falls, failed = np.flatnonzero(times < before), None
        if len(falls):
            at = int(falls[0])
            text = runs_backwards(self._field, int(times[at]), int(before[at]), self._needed_by)
            row = int(places[at])
            failed = row, SourceError(f"tuple {first + row} of the source: {text}")
            times, before = times[:at], before[:at]
        now = times // self._period
        shown = np.flatnonzero(now != before // self._period)
        if len(times):
            self.latest = int(times[-1])
        return [(first + int(places[k]), int(now[k]) * self._period) for k in shown], failed
