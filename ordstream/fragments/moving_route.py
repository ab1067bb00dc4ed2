"""Where rows go while keys change their node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words, key_words
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments.merging import END, Tags


class Step(NamedTuple):
    """Keys that change their node together: their words, ascending, and where each goes from and to."""

    words: Words
    source: Instances
    to: Instances

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """Source and destination of keys."""
        return frozenset(zip(self.source.tolist(), self.to.tolist(), strict=True))

    def behind(self, table: Assignment) -> Assignment:
        """The table that is in force behind it."""
        return table.moved(self.words, self.to)


def joined(steps: Sequence[Step]) -> Step:
    """Steps that follow each other as one."""
    words, source, to = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(words)
    return Step(words[order], source[order], to[order])


class MovingRoute:
    """Where rows go by a route table that changes at tags (`ordstream.fragments.exchange.Route`).

    Parameters
    ----------
    schema : pyarrow.Schema
    key : tuple of int
    table : Assignment
    """

    def __init__(self, schema: pa.Schema, key: tuple[int, ...], table: Assignment) -> None:
        self.schema, self.key = schema, key
        self._tables: list[tuple[bytes, Assignment]] = [(b"", table)]

    def of(self, schema: pa.Schema, key: tuple[int, ...]) -> MovingRoute:
        """The same for other rows that have the key."""
        return MovingRoute(schema, key, self._tables[-1][1])

    @property
    def table(self) -> Assignment:
        """By which rows go from the last switch on."""
        return self._tables[-1][1]

    def switch(self, tag: bytes, step: Step) -> None:
        """Rows from this tag on go by the table behind a step; b"": all from now on."""
        table = step.behind(self.table)
        self._tables = [*self._tables, (tag, table)] if tag else [(tag, table)]

    def words(self, batch: pa.RecordBatch) -> Words:
        """The keys of rows as words."""
        columns = tuple(batch.column(index) for index in self.key)
        return key_words(columns[0] if len(columns) == 1 else columns)

    def __call__(self, batch: pa.RecordBatch, tags: pa.Array | None = None) -> npt.NDArray[np.int32]:
        """The node of each row; `tags`: theirs, ascending. Without them the last table counts."""
        words = self.words(batch)
        if tags is None or len(self._tables) == 1:
            return self._tables[-1][1].route_words(words)
        nodes = np.empty(len(words), dtype=np.int32)
        start = 0
        ends = [tag for tag, _ in self._tables[1:]]
        for (_, table), end in zip(self._tables, [*ends, END], strict=True):
            stop = len(words) if end == END else bisect_left(Tags(tags), end)
            nodes[start:stop] = table.route_words(words[start:stop])
            start = stop
        while len(self._tables) > 1 and tags[0].as_py() >= self._tables[1][0]:
            del self._tables[0]
        return nodes


def changed_words(before: Assignment, after: Assignment) -> Words | None:
    """The keys that change their node between two tables; None where any key may: their rings differ."""
    rings = [(one.ring.members, one.ring.points, one.ring.seed) for one in (before, after)]
    if rings[0] != rings[1]:
        return None
    words: Words = np.union1d(before.table[0], after.table[0])
    moved: Words = words[before.route_words(words) != after.route_words(words)]
    return moved
