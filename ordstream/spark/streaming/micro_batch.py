"""A micro-batch as an epoch takes it: as a frame that Spark has sorted, or as rows that were fetched and
sorted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    DataType,
    DayTimeIntervalType,
    StringType,
    VariantType,
    YearMonthIntervalType,
)

from ordstream.ground.batches import BATCH_ROWS
from ordstream.spark.executor import ROW_MASK
from ordstream.spark.streaming.row_order import in_order

#: A batch that is fetched is read by at most so many tasks: each may hand over as many rows as all together
#: may have, and one more.
FETCHING_TASKS = 4


class Rows(Protocol):
    """The rows of an epoch."""

    def in_order(self) -> DataFrame:
        """In one partition, in order."""

    def fetched(self, most: int) -> list[pa.RecordBatch] | None:
        """In order, on the driver; None: they are more than `most`."""


@dataclass(frozen=True)
class InOrder:
    """Rows that lie in one partition, in order."""

    frame: DataFrame

    def in_order(self) -> DataFrame:
        """The frame."""
        return self.frame

    def fetched(self, most: int) -> list[pa.RecordBatch] | None:
        """Of too many rows no more were fetched."""
        batches = _collected(self.frame.limit(most + 1))
        return batches if sum(batch.num_rows for batch in batches) <= most else None


@dataclass(frozen=True)
class Sorting:
    """What a stream's micro-batches are sorted by.

    Attributes
    ----------
    keys : tuple of str
        Columns, all ascending with null first.
    columns : tuple of str
        Those that an epoch takes.
    one_slot : bool
        This Spark runs one task at a time.
    alike : bool
        Arrow sorts by these columns as Spark does.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    one_slot: bool
    alike: bool

    @classmethod
    def of(cls, frame: DataFrame, keys: Sequence[str], columns: Sequence[str], one_slot: bool) -> Sorting:
        """For the micro-batches of a streaming frame."""
        alike = all(_sorts_alike(frame.schema[name].dataType) for name in keys)
        return cls(tuple(keys), tuple(columns), one_slot, alike)

    # made once, since each column takes ten calls into Java

    @cached_property
    def by(self) -> list[Column]:
        """The keys as Spark sorts by them."""
        return [F.col(one).asc_nulls_first() for one in self.keys]

    @cached_property
    def taken(self) -> list[Column]:
        """The columns that an epoch takes."""
        return [F.col(one) for one in self.columns]

    @cached_property
    def fetched(self) -> list[Column]:
        """These and the keys."""
        return [F.col(one) for one in dict.fromkeys((*self.columns, *self.keys))]

    @cached_property
    def row_of_partition(self) -> Column:
        """From 0."""
        return F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_MASK))


@dataclass(frozen=True)
class MicroBatch:
    """The frame that `foreachBatch` got, its rows in any order."""

    frame: DataFrame
    sorting: Sorting

    def in_order(self) -> DataFrame:
        """In one partition, sorted. A shuffle is made only where several tasks read the rows at a time."""
        sorting = self.sorting
        if sorting.one_slot:
            rows = self.frame.coalesce(1)
        else:
            rows = self.frame if _partitions(self.frame) == 1 else self.frame.repartition(1)
        return (rows.sortWithinPartitions(*sorting.by) if sorting.by else rows).select(*sorting.taken)

    def fetched(self, most: int) -> list[pa.RecordBatch] | None:
        """Sorted by Spark where they lie in one partition. Else here, where Arrow's order is Spark's: their
        keys have to be fetched too, but the rows are there after one stage, without a shuffle. Of too many
        rows at most `FETCHING_TASKS` times `most` were fetched.
        """
        sorting = self.sorting
        parts = _partitions(self.frame)
        if parts == 1 or not sorting.alike:
            return InOrder(self.in_order()).fetched(most)
        tasks = 1 if sorting.one_slot else FETCHING_TASKS
        rows = self.frame if 0 < parts <= tasks else self.frame.coalesce(tasks)
        rows = rows.where(sorting.row_of_partition <= most).select(*sorting.fetched)
        batches = _collected(rows)
        if sum(batch.num_rows for batch in batches) > most:
            return None
        if not batches:
            return []
        table = in_order(pa.Table.from_batches(batches), sorting.keys).select(list(sorting.columns))
        return cast(list[pa.RecordBatch], table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS))


def _collected(rows: DataFrame) -> list[pa.RecordBatch]:
    """In the types that a task gets: `toArrow` gives times another time zone than tasks see."""
    return cast(list[pa.RecordBatch], cast(Any, rows)._collect_as_arrow())


def _sorts_alike(kind: DataType) -> bool:
    """Whether Arrow puts values of a type into the order of Spark's: numbers (NaN last, -0.0 as 0.0), times,
    bools, and texts and bytes byte by byte. Not text with a collation, lists and intervals.
    """
    if isinstance(kind, StringType):
        return kind.isUTF8BinaryCollation()
    return isinstance(kind, AtomicType) and not isinstance(
        kind, DayTimeIntervalType | YearMonthIntervalType | VariantType
    )


def _partitions(batch: DataFrame) -> int:
    """Of a micro-batch, which Spark hands over as rows that lie in partitions; 0: not known. Nothing is
    planned for it, as `toRdd` of the query would be.
    """
    try:
        return int(cast(Any, batch)._jdf.queryExecution().logical().rdd().getNumPartitions())
    except Exception:  # another version of Spark
        return 0
