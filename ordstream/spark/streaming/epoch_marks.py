"""What travels among the rows of an epoch over nodes: results for the driver, and marks of the clocks.

The task that gives serials looks at the source's clock. A mark goes to each node of the next stage as a row
at its tag, so Spark's sort puts it where it stands among the node's rows; node 0 of a stage, which gets all
marks as each node does, sends them on. Marks of a `reorder` come from its one node in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordstream.fragments.exchange import NODE
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.time_marks import (
    TimeMark,
    hears_marks,
    hears_reordered,
    mark_tag,
    marks_leave,
    moves_clock,
    placed_at,
    source_clock,
)
from ordstream.ground.ordertags import TAG
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import REORDERED_MARKS, SOURCE_MARKS
from ordstream.plan.plan import Plan

#: The column of the job that rows leave empty.
RESULT = "__ordstream_result"
#: What it says at a mark, by the mark's clock; a result is JSON.
_CLOCKS = {b"source": SOURCE_MARKS, b"reorder": REORDERED_MARKS}
_WORDS = {clock: word for word, clock in _CLOCKS.items()}
#: Marks that are sent on in one batch, about.
_TOGETHER = 1 << 14


def apart(batches: Iterator[pa.RecordBatch], results: list[bytes]) -> Iterator[pa.RecordBatch | TimeMark]:
    """Rows and marks in their order, without the results among them, which are put aside. Results have the
    smallest tag.
    """
    for batch in batches:
        found, start = batch.column(RESULT), 0
        there = np.flatnonzero(found.is_valid()) if found.null_count < batch.num_rows else ()
        for at in map(int, there):
            if start < at:
                yield batch.slice(start, at - start)
            start, said = at + 1, found[at].as_py()
            if said in _CLOCKS:
                yield TimeMark.at(batch.column(TAG)[at].as_py(), _CLOCKS[said])
            else:
                results.append(said)
        if start < batch.num_rows:
            yield batch.slice(start)


def said_among(schema: pa.Schema, said: Sequence[bytes], tags: Sequence[bytes], node: int) -> pa.RecordBatch:
    """Rows that say something to a node, at these tags."""
    given = {RESULT: said, TAG: tags, NODE: [node] * len(said)}
    columns = [
        pa.array(given[column.name], column.type)
        if column.name in given
        else pa.nulls(len(said), column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True)
class MarksOf:
    """Which marks a stage takes, and which it sends on.

    Attributes
    ----------
    hears : frozenset of int
        Clocks (`ordstream.plan.clock`) that an operator of the stage goes by.
    sends : frozenset of int
        Those that stages behind go by, as far as this one passes them on.
    makes : bool
        Stages behind go by a clock that leaves this one.
    behind : int
        Position of the first operator of the next stage.
    nodes : int
        Of the next stage.
    """

    hears: frozenset[int] = frozenset()
    sends: frozenset[int] = frozenset()
    makes: bool = False
    behind: int = 0
    nodes: int = 0

    @classmethod
    def between(
        cls, fragment: Fragment, behind: Sequence[Fragment], nodes: int, punctuate: Every | None
    ) -> MarksOf:
        """Of a stage, those behind it, and the number of nodes of the next one."""
        sends = {SOURCE_MARKS} if any(hears_marks(one, punctuate) for one in behind) else set[int]()
        for one in () if moves_clock(fragment) else behind:
            if hears_reordered(one):
                sends.add(REORDERED_MARKS)
            if moves_clock(one):  # behind it there is another one
                break
        hears = {SOURCE_MARKS} if hears_marks(fragment, punctuate) else set[int]()
        hears |= {REORDERED_MARKS} if hears_reordered(fragment) else set()
        first = behind[0].first if behind else 0
        return cls(frozenset(hears), frozenset(sends), marks_leave(fragment), first, nodes)

    def heard(
        self, rows: Iterator[pa.RecordBatch | TimeMark], onward: list[TimeMark]
    ) -> Iterator[pa.RecordBatch | TimeMark]:
        """The rows, and the marks that operators hear; all marks go into `onward`."""
        for one in rows:
            if isinstance(one, TimeMark):
                if one.clock in self.sends:
                    onward.append(one)
                if one.clock not in self.hears:
                    continue
            yield one

    def rows(self, schema: pa.Schema, marks: Sequence[TimeMark]) -> Iterator[pa.RecordBatch]:
        """Marks as rows for every node of the next stage; `schema`: of what leaves this one."""
        for start in range(0, len(marks), _TOGETHER):
            some = marks[start : start + _TOGETHER]
            words = [_WORDS[one.clock] for one in some]
            tags = [placed_at(one.cause, one.time, self.behind) for one in some]
            for node in range(self.nodes):
                yield said_among(schema, words, tags, node)

    def left(self, tags: Sequence[bytes]) -> list[TimeMark]:
        """Marks that operators of the stage have made, by their tags (`FragmentNode.left_marks`)."""
        return [TimeMark.at(tag, REORDERED_MARKS) for tag in tags]


@dataclass(frozen=True)
class EpochClock:
    """The clock that a stream's source moves.

    Attributes
    ----------
    plan : Plan
        Of the whole pipeline.
    punctuate : Every or None
        As of the run.
    latest : int or None
        The time behind the epoch in front.
    """

    plan: Plan
    punctuate: Every | None
    latest: int | None

    def watch(
        self, serial: int, batches: Iterator[pa.RecordBatch], marks: list[TimeMark], latest: list[int | None]
    ) -> Iterator[pa.RecordBatch]:
        """The source's rows as they pass, of which the first one has this serial; `marks` and `latest` get
        the marks that they show, and the time behind them.

        Raises
        ------
        SourceError
            The clock runs backwards; the rows in front have passed.
        """
        clock = source_clock(self.plan, self.punctuate, self.latest)
        assert clock is not None
        for batch in batches:
            shown, failed = clock.take(serial, batch)
            marks += [TimeMark.at(mark_tag(at, time, 0)) for at, time in shown]
            latest[:] = [clock.latest]
            if failed is not None:
                yield batch.slice(0, failed[0])
                raise failed[1]
            yield batch
            serial += batch.num_rows
