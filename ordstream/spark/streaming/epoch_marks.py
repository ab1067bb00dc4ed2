"""What travels among the rows of an epoch over nodes: results for the driver, and marks of the clocks
(`ordstream.spark.mark_rows`).

The task that gives serials looks at the source's clock. Marks of a `reorder` come from its one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ordstream.fragments.exchange import NODE
from ordstream.fragments.time_marks import (
    TimeMark,
    mark_tag,
    source_clock,
)
from ordstream.ground.ordertags import TAG
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import REORDERED_MARKS, SOURCE_MARKS
from ordstream.plan.plan import Plan
from ordstream.spark.mark_rows import TOGETHER, MarksOf, with_nulls

#: The column of the job that rows leave empty.
RESULT = "__ordstream_result"
#: What it says at a mark, by the mark's clock; a result is JSON.
_CLOCKS = {b"source": SOURCE_MARKS, b"reorder": REORDERED_MARKS}
_WORDS = {clock: word for word, clock in _CLOCKS.items()}


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
    return with_nulls(schema, given)


def rows_of(marks: MarksOf, schema: pa.Schema, some: Sequence[TimeMark]) -> Iterator[pa.RecordBatch]:
    """Marks as rows for every node of the next stage; `schema`: of what leaves this one."""
    for start in range(0, len(some), TOGETHER):
        words = [_WORDS[one.clock] for one in some[start : start + TOGETHER]]
        tags = [marks.tag(one) for one in some[start : start + TOGETHER]]
        for node in range(marks.nodes):
            yield said_among(schema, words, tags, node)


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
