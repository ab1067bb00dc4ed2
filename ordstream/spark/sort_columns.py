"""What rows are sorted by goes with them, through the nodes too.

Rows that have no serials come to the nodes of their key sorted by `order_by` and what breaks ties. A node
holds these columns while outputs may still refer to a row, and gives each output those of the row that
caused it: Spark puts the output in order by what it put the rows in order by.

Ranges of that order are needed as well, or one task would have all rows. Some rows of the source say where
they begin, which comes with the first row of each node (`BOUNDS`). Any rows would do: they decide how evenly
the output lies, and nothing else. All nodes cut at the same ones.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.arrow_memory import POOL
from ordstream.ground.numbers import integers
from ordstream.ground.ordercheck import SortKey
from ordstream.ground.ordertags import places_and_rests
from ordstream.spark.mark_rows import REST

BOUNDS = "__ordstream_bounds"  # where the ranges but the first begin, ascending, in JSON
OUTPUT = "__ordstream_output"  # number of an output among those of its node

Int64s = npt.NDArray[np.int64]


def sort_name(number: int) -> str:
    """Name of a sort column in the nodes' output."""
    return f"__ordstream_s{number}"


@dataclass(frozen=True)
class SortColumns:
    """The sort columns of a job, as its nodes have to know them.

    Attributes
    ----------
    keys : tuple of SortKey
        The columns, under the names with which they arrive.
    cut_by : int
        So many of them, at the front, are whole numbers or times: the ranges are cut by these.
    ranges : int
    """

    keys: tuple[SortKey, ...]
    cut_by: int
    ranges: int


class _Arrived(NamedTuple):
    """The sort columns of a batch; `first`: position of its first row in the node, from 1."""

    first: int
    columns: list[pa.Array]


class SortedOutputs:
    """Gives the outputs of one node the sort columns of the rows that caused them, and their ranges.

    Not safe for threads: who reads the rows takes the outputs.

    Parameters
    ----------
    sort : SortColumns
    own : int
        Number of the node. What the end of the stream causes has no sort columns; it goes to the partition
        of this number behind the ranges.
    output : pyarrow.Schema
        What leaves: the fragment's columns, those sort columns that are not among them, `OUTPUT` and `REST`
        where it has them, and the partition.
    """

    def __init__(self, sort: SortColumns, own: int, output: pa.Schema) -> None:
        self._sort, self._own, self._output = sort, own, output
        self._arrived: deque[_Arrived] = deque()
        self._taken = 0  # rows that arrived
        self._given = 0  # outputs
        self._bounds: list[tuple[int, ...]] = []
        #: Gives a position through which all outputs have been given out.
        self.settled: Callable[[], int] = lambda: 0

    def remembered(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches that arrive, whose sort columns are kept."""
        for batch in batches:
            if batch.num_rows:
                if not self._taken:
                    self._bounds = [*map(tuple, json.loads(batch.column(BOUNDS)[0].as_py()))]
                self._forget(self.settled())
                columns = [batch.column(key.column) for key in self._sort.keys]
                self._arrived.append(_Arrived(self._taken + 1, columns))
                self._taken += batch.num_rows
            yield batch

    def _forget(self, position: int) -> None:
        """Drop what no output refers to any more: all outputs of rows up to this one are out."""
        while len(self._arrived) > 1 and self._arrived[1].first <= position + 1:
            self._arrived.popleft()

    def leaving(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the fragment's output and its tags, as it leaves."""
        positions, rests = places_and_rests(batch.column(batch.num_columns - 1))
        rows, ordinary = batch.num_rows, batch.num_rows - positions.null_count  # which come first
        sorts = self._sorts_of(positions.slice(0, ordinary).to_numpy())
        leave = [one for k, one in enumerate(sorts) if sort_name(k) in self._output.names]
        columns = [*batch.columns[:-1], *(_longer(one, rows) for one in leave)]
        if OUTPUT in self._output.names:
            columns.append(_longer(integers(np.arange(self._given, self._given + ordinary)), rows))
        if REST in self._output.names:
            nothing = pa.nulls(ordinary, pa.binary())
            columns.append(pa.concat_arrays([nothing, rests.slice(ordinary).cast(pa.binary())]))
        self._given += ordinary
        partition = np.full(rows, self._sort.ranges + self._own, dtype=np.int32)
        partition[:ordinary] = self._ranges_of(sorts, ordinary)
        return pa.RecordBatch.from_arrays([*columns, integers(partition)], names=self._output.names)

    def _sorts_of(self, positions: Int64s) -> list[pa.Array]:
        """The sort columns of the rows at these positions, which ascend."""
        if not len(positions):
            return [column.slice(0, 0) for column in self._arrived[-1].columns]
        first, last = int(positions[0]), int(positions[-1])
        self._forget(first - 1)
        used = [one for one in self._arrived if one.first <= last]
        parts = zip(*(one.columns for one in used), strict=True)
        columns = [part[0] if len(part) == 1 else pa.concat_arrays(part, memory_pool=POOL) for part in parts]
        start = first - used[0].first
        if last - first + 1 == len(positions) and (np.diff(positions) == 1).all():  # one output of each row
            return [column.slice(start, len(positions)) for column in columns]
        return [column.take(integers(positions - used[0].first)) for column in columns]

    def _ranges_of(self, sorts: list[pa.Array], rows: int) -> npt.NDArray[np.int32]:
        """The range that each of so many outputs lies in, by their sort columns."""
        if not rows:
            return np.zeros(0, dtype=np.int32)
        numbers = comparable(sorts, self._sort)

        def place(row: int) -> tuple[int, ...]:
            return tuple(int(one[row]) for one in numbers)

        low, high = (bisect_right(self._bounds, place(row)) for row in (0, rows - 1))
        found = np.full(rows, low, dtype=np.int32)
        for bound in range(low, high):
            found[bisect_left(range(rows), self._bounds[bound], key=place) :] = bound + 1
        return found


def comparable(columns: list[pa.Array], sort: SortColumns) -> list[Int64s]:
    """Numbers that ascend as the first sort columns do: two of each, since NULL is in front of, or behind,
    all others.
    """
    found: list[Int64s] = []
    for column, key in zip(columns, sort.keys[: sort.cut_by], strict=False):
        values = column.cast(pa.int32()) if pat.is_date32(column.type) else column
        empty = values.is_null().to_numpy(zero_copy_only=False)
        number = values.cast(pa.int64()).fill_null(0).to_numpy()
        number = np.where(empty, 0, ~number if key.descending else number)  # ~ never overflows, as - can
        found += [empty * np.int64(1 if key.nulls_last else -1), number]
    return found


def _longer(column: pa.Array, rows: int) -> pa.Array:
    """The column with nulls behind it, so many rows in all."""
    if len(column) == rows:
        return column
    return pa.concat_arrays([column, pa.nulls(rows - len(column), column.type)])
