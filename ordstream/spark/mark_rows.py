"""Marks of the clocks as rows of a job: on their way from the nodes of one stage to those of the next.

A mark goes to each node of the next stage as a row at its tag, so Spark's sort puts it where it stands among
the node's rows. Node 0 of a stage, which hears all marks as each node does, sends on what it heard. Who
tells such rows from others is the job's affair: streams have a column for what is said
(`ordstream.spark.streaming.epoch_marks`), `apply` has `MARK`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.fragments.exchange import NODE
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.time_marks import (
    TimeMark,
    hears_marks,
    hears_reordered,
    marks_leave,
    moves_clock,
    placed_at,
)
from ordstream.ground.ordertags import places_and_rests, tags_of_places
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import REORDERED_MARKS, SOURCE_MARKS

#: True in a row that is a mark of a `reorder`, else null.
MARK = "__ordstream_mark"
# A tag in two columns, as `ordstream.spark.executor` has it.
PLACE, REST = "__ordstream_place", "__ordstream_rest"
#: Marks that are sent on in one batch, about.
TOGETHER = 1 << 14


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

    def tag(self, mark: TimeMark) -> bytes:
        """A mark's tag among the rows for the next stage."""
        return placed_at(mark.cause, mark.time, self.behind)

    @property
    def carries(self) -> bool:
        """Marks of a `reorder` are among the rows that leave."""
        return self.makes or REORDERED_MARKS in self.sends

    def left(self, tags: Sequence[bytes]) -> list[TimeMark]:
        """Marks that operators of the stage have made, by their tags (`FragmentNode.left_marks`)."""
        return [TimeMark.at(tag, REORDERED_MARKS) for tag in tags]

    def rows(self, schema: pa.Schema, marks: Sequence[TimeMark]) -> Iterator[pa.RecordBatch]:
        """Marks as rows of `apply`, for every node of the next stage; `schema`: of what leaves this one."""
        for start in range(0, len(marks), TOGETHER):
            tags = [self.tag(one) for one in marks[start : start + TOGETHER]]
            place, rest = places_and_rests(pa.array(tags, pa.binary()))
            for node in range(self.nodes):
                given = {PLACE: place, REST: rest, NODE: [node] * len(tags), MARK: [True] * len(tags)}
                yield with_nulls(schema, given)


def with_nulls(schema: pa.Schema, given: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows with these columns; the others are null."""
    count = len(next(iter(given.values())))
    columns = [
        pa.array(given[column.name], column.type) if column.name in given else pa.nulls(count, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def marked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | TimeMark]:
    """Rows of `apply` and the marks among them, in their order."""
    for batch in batches:
        if MARK not in batch.schema.names:
            yield batch
            continue
        start = 0
        for at in np.flatnonzero(batch.column(MARK).is_valid()).tolist():
            if start < at:
                yield batch.slice(start, at - start)
            start, one = at + 1, batch.slice(at, 1)
            tag = tags_of_places(one.column(PLACE), one.column(REST))[0].as_py()
            yield TimeMark.at(tag, REORDERED_MARKS)
        if start < batch.num_rows:
            yield batch.slice(start)
