"""The source's rows get their place in the order before anything moves.

A row's serial is its position in the order, from 0 here, dense. Spark cuts the order into ranges, by a
sample of the rows, and sorts each of them; what a range's first serial is needs the number of rows in front
of it, so they are counted (`zipWithIndex`). They are counted as they arrive in the range and sorted behind
that, once: the difference of a row's index and its position on arrival is the range's first serial, whatever
order they arrive in. It is one physical plan, so both passes see the same ranges.

The number of the range stands in the bits above the serial's (`ordstream.ground.ordertags`): where the
output is brought back into order, a row's partition is known from its tag. Nobody has to sample the output,
which would run the nodes twice.

Where no order of the output is asked for, a place need only be comparable: (partition, position) then, for
which nothing is counted.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.ground.ordertags import MOST_RANGES, SERIAL_BITS
from ordstream.spark.columns import Carried
from ordstream.spark.executor import ROW_MASK, SERIAL
from ordstream.spark.in_files import TOTAL, numbered_in_files

Order = Literal["total", "by_key", "none"]
ORDERS = ("total", "by_key", "none")
#: How the output of several nodes lies, as `explain` says it.
ORDER_TEXTS = {
    "total": "        the output is put in order, over as many partitions as Spark sorts by",
    "by_key": "        the output stays in the last nodes, in the order of each",
    "none": "        the output stays in the last nodes, in any order",
}
PLACE = "__ordstream_lies"  # partition and position of a row that lies in order
FIRST = "__ordstream_first"  # position on arrival, then the first serial of the range


def check_order(order: str) -> None:
    """Raise PlanError for what is no order of a result."""
    if not is_one_of(order, ORDERS):
        raise PlanError(f"order is one of {', '.join(map(repr, ORDERS))}, got {order!r}")


def range_count(spark: SparkSession) -> int:
    """Into how many ranges Spark cuts an order, at most; it joins small ones."""
    initial = spark.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None) or 0
    asked = int(initial) or int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    return max(1, min(asked, MOST_RANGES - 1))


def row_count(carried: Carried) -> Column:
    """The number of rows, by a query of its own over no column; computed with the job."""
    return carried.frame.agg(F.count(F.lit(1))).scalar()


def steady_count(carried: Carried) -> Column:
    """`row_count`, for serials behind the last row's.

    Raises
    ------
    PlanError
        The frame has other rows each time it is read, as far as Spark knows.
    """
    if _rows_vary(carried.frame):
        raise PlanError(
            "tags=True counts the rows in a query of their own, and this frame gives other rows each time "
            "it is read (a condition that is not deterministic): write it down first, or cache it; or run "
            "in one node"
        )
    return row_count(carried)


def _rows_vary(frame: DataFrame) -> bool:
    """Whether something that is not deterministic may decide which rows there are: no column on top."""
    try:
        plan = frame._jdf.queryExecution().withCachedData()
        while plan.getClass().getSimpleName() in ("Project", "SubqueryAlias"):
            plan = plan.child()
        return not plan.deterministic()
    except Exception:  # Spark Connect, or another version of Spark: it can't be asked
        return False


def placed(carried: Carried, presorted: bool) -> DataFrame:
    """The carried rows in order, with what only compares as their serials do."""
    rows = carried.as_it_is if presorted else carried.sorted(everywhere=True)
    return rows.withColumn(SERIAL, F.monotonically_increasing_id())


def numbered(
    carried: Carried, presorted: bool, ranges: int, count: Column | None = None, *, as_they_lie: bool = False
) -> DataFrame:
    """The carried rows in order, with their serials.

    Parameters
    ----------
    presorted : bool
        They are in order as they lie.
    ranges : int
        Number of ranges of the order; 1: none are told apart.
    count : Column, optional
        Number of rows. Ranges are of equal length then; else they are those by which Spark sorts.
    as_they_lie : bool
        They are all rows of files, in order, and get their serials where they are, over partitions in any
        order.
    """
    rows, by = (carried.frame, []) if presorted else carried.with_keys()
    if not (as_they_lie or by) and _rows_vary(carried.frame):
        # The count of the rows in front is a reading of its own: serials would come twice. So the rows are
        # written once, into the files of a shuffle by their place; Spark's sample only says where to cut.
        rows = carried.as_it_is.withColumn(PLACE, F.monotonically_increasing_id())
        by = cuts = [F.col(PLACE)]
    elif by:
        cuts = carried.cuts(rows, by)
    if as_they_lie:
        rows = numbered_in_files(carried.frame, carried.columns, carried.keys, carried.texts)
        count = F.col(TOTAL) if count is None else count
    elif not by:
        rows = carried.as_it_is.zipWithIndex(SERIAL)
        count = row_count(carried) if count is None else count
    else:
        here = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_MASK))
        rows = rows.repartitionByRange(*cuts).withColumn(FIRST, here).zipWithIndex(SERIAL)
        rows = carried.sorted_inside(rows.withColumn(FIRST, F.col(SERIAL) - F.col(FIRST)).drop(SERIAL), by)
        rows = rows.select(*carried.columns, (F.col(FIRST) + here).alias(SERIAL))
    if ranges == 1:
        return rows.drop(TOTAL)
    # so that the last row lies in the last range
    behind = F.col(SERIAL) * F.lit(ranges) + F.lit(ranges - 1)
    number = F.spark_partition_id() if count is None else F.floor(behind / F.greatest(count, F.lit(1)))
    last = F.lit(ranges - 1)
    place = F.shiftleft(F.least(number, last).cast("long"), SERIAL_BITS).bitwiseOR(F.col(SERIAL))
    return rows.withColumn(SERIAL, place).drop(TOTAL)
