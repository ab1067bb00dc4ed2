"""The output of many nodes in its order: partition i before partition i + 1, sorted inside.

Two ways lead there. Rows that have serials are sorted by them again behind the nodes; their tags have the
range of the order that each lies in (`ordstream.spark.numbering`). Where nobody asks for serials, rows of a
pipeline with one key need none: they are sorted in the nodes of their key, and their outputs by the same
columns (`ordstream.spark.sort_columns`). That spares a shuffle, a sort and two passes over the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ordstream.fragments.exchange import NODE, RangeRoute
from ordstream.ground.ordercheck import SortKey
from ordstream.ground.ordertags import SERIAL_BITS
from ordstream.plan.columns import passed_source_columns
from ordstream.spark.columns import CUT_BY, ROW, Carried, directed, sorted_inside, stays_sorted, user_names
from ordstream.spark.executor import ROW_BITS, ROW_MASK, SERIAL, RestoreFunction, carried_name
from ordstream.spark.in_files import has_own_places
from ordstream.spark.mark_rows import PLACE, REST
from ordstream.spark.nodes import Job, by_place, in_job
from ordstream.spark.numbering import numbered, range_count, steady_count
from ordstream.spark.sort_columns import BOUNDS, OUTPUT, SortColumns, sort_name
from ordstream.spark.source_serial import SerialOf

#: Of the source's rows so many are looked at; of these so many are drawn for each range, and in all at most.
SAMPLED, DRAWN, MOST_DRAWN = 0.05, 200, 1 << 18
#: Columns that only break ties, at most, which a row takes with it.
MOST_TIES = 8
#: What a sort column may be: values that Arrow takes to Python and back as they are.
_PLAIN = (BinaryType, BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType)
_WHOLE = (DateType, IntegralType, TimestampNTZType, TimestampType)


def in_order(
    job: Job, carried: Carried, presorted: bool, tags: bool, as_they_lie: bool
) -> tuple[DataFrame, SerialOf | None]:
    """The pipeline's output in its order: partition i before partition i + 1, sorted inside. And what finds
    the serial of a row that has none, where that is so.
    """
    alone = None if tags or as_they_lie or carried.in_files else job.by_first_key(carried, presorted)
    if alone is not None and (rows := _without_serials(alone, carried)) is not None:
        return rows, partial(_serial_of, alone, carried)
    return _by_serials(job, carried, presorted, tags, as_they_lie), None


def _by_serials(job: Job, carried: Carried, presorted: bool, tags: bool, as_they_lie: bool) -> DataFrame:
    """As `in_order`, of rows that have serials."""
    last, spark = job.fragments[-1], carried.frame.sparkSession
    stays = not (job.moves or as_they_lie) or (last.nodes(job.layout.nodes) == 1 and last.key is not None)
    only_at_end = any(fragment.only_at_end for fragment in job.fragments)
    ranges = 1 if stays or (only_at_end and not tags) else range_count(spark)
    count = steady_count(carried) if tags else None
    if job.marks is None:
        rows = numbered(carried, presorted, ranges, count, as_they_lie=as_they_lie)
    else:  # the nodes have to know which range a mark lies in
        job.marks = job.marks.in_ranges(ranges)
        rows = numbered(carried, presorted, ranges, F.lit(job.marks.rows))
    if stays:
        rows = job.through(rows, len(job.fragments), leaves="place" if tags else "rows")
    elif tags or not job.emits_at_end:
        # with tags, what the end causes is counted on behind the outputs of the last row, in their partition
        rows = job.through(rows, len(job.fragments), leaves="place")
        to = F.least(F.shiftright(PLACE, SERIAL_BITS), F.lit(ranges - 1))  # which leaves NULL out
        rows = rows.repartitionById(ranges, to.cast("int"))
        rows = stays_sorted(sorted_inside(rows, by_place(rows), LongType()))
    else:
        rows = _end_in_order(job, rows, 0 if only_at_end else ranges)
    if count is None:
        return rows if stays else user_names(rows, last.output.names)
    result = StructType([*job.result]).add("_serial", LongType()).add("_index", LongType())
    schema = to_arrow_schema(StructType(in_job(job.result)), timezone="UTC")
    restore = RestoreFunction(schema, tuple(result.names[:-2]))
    return rows.withColumn(SERIAL, count).mapInArrow(restore, result)


def _without_serials(job: Job, carried: Carried) -> DataFrame | None:
    """The same of rows that have no serials, in the nodes of their key; None: what they are sorted by can't
    go with them.
    """
    nodes, output = job.layout.nodes, job.fragments[-1].output.names
    if any(fragment.only_at_end for fragment in job.fragments):  # which has no place among the rows
        rows, by = carried.with_keys()
        rows = carried.sorted_inside(job.by_key(rows), by).select(*carried.columns)
        job = replace(job, sort=SortColumns((), 0, 1))
        rows = job.in_nodes(rows, 2, RangeRoute(1, 0, nodes), "place")
        return user_names(rows.repartitionById(nodes, F.col(NODE)).orderBy(REST), output)
    rows, keys = carried.with_sort()
    own = ROW in rows.columns and has_own_places(carried.frame)
    if own:  # no two rows are equal in these
        keys = keys[: carried.place_keys(rows)]
    kinds = [rows.schema[key.column].dataType for key in keys]
    cut_by = next((k for k, kind in enumerate(kinds) if not isinstance(kind, _WHOLE)), len(kinds))
    shown = _shown(job, keys, kinds)
    ties = [kind for k, kind in enumerate(kinds) if k >= len(carried.keys) and k not in shown]
    plain = len(keys) <= CUT_BY and all(isinstance(kind, _PLAIN) for kind in kinds)
    if not (_cuts_finely(kinds[:cut_by], len(carried.keys)) and plain and _are_light(ties)):
        return None
    sort = SortColumns(tuple(keys), cut_by, range_count(carried.frame.sparkSession))
    fields = [StructField(sort_name(k), kind) for k, kind in enumerate(kinds) if k not in shown]
    fields += [] if own and not job.widens else [StructField(OUTPUT, LongType())]
    behind = [replace(key, column=shown.get(k, sort_name(k))) for k, key in enumerate(keys)]
    behind += [SortKey(one.name) for one in fields if one.name == OUTPUT]
    job = replace(job, sort=sort, sort_fields=fields)
    here = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_MASK))
    bounds = F.when(here == F.lit(0), _bounds(rows, sort)).alias(BOUNDS)
    rows = carried.sorted_inside(job.by_key(rows), [directed(key) for key in keys])
    rows = rows.select(*dict.fromkeys([*carried.columns, *(key.column for key in keys)]), bounds)
    rows = job.in_nodes(rows, 2, None, "sorted")
    rows = rows.repartitionById(sort.ranges + nodes * job.emits_at_end, F.col(NODE))
    by = [directed(key) for key in behind]
    if not job.emits_at_end:
        return user_names(stays_sorted(sorted_inside(rows, by, kinds[0])), output)
    ordinary, at_end = _halves(rows, sort.ranges, [key.column for key in behind] + [REST])
    ordinary = stays_sorted(sorted_inside(ordinary, by, kinds[0]))
    return user_names(ordinary.union(at_end.orderBy(REST)), output)


def _cuts_finely(kinds: Sequence[DataType], asked: int) -> bool:
    """Whether ranges can be cut by columns of these types, the first ones of the sort, of which the user
    `asked` for so many: few rows are equal in a time, or in what breaks the ties of whole numbers.
    """
    return len(kinds) > asked or any(isinstance(kind, TimestampType | TimestampNTZType) for kind in kinds)


def _are_light(ties: Sequence[DataType]) -> bool:
    """Whether columns that break ties, and leave the nodes for that alone, cost less than a shuffle."""
    return len(ties) <= MOST_TIES and not any(isinstance(kind, BinaryType | StringType) for kind in ties)


def _shown(job: Job, keys: Sequence[SortKey], kinds: Sequence[DataType]) -> dict[int, str]:
    """Sort columns that each output has of the row that caused it: the number, and the output's column."""
    plan = job.fragments[-1].plan
    if not all(operator.passes_unread for operator in plan.operators):
        return {}
    there = {carried_name(index): out for out, index in passed_source_columns(plan).items()}
    outs = {k: there[key.column] for k, key in enumerate(keys) if key.column in there}
    return {k: carried_name(out) for k, out in outs.items() if job.result[out].dataType == kinds[k]}


def _bounds(rows: DataFrame, sort: SortColumns) -> Column:
    """Where the ranges but the first begin, as a text of whole numbers: some rows of the source, all equally
    likely, say so. A query of its own, which runs with the job.

    A text, since Spark takes an array into every row's time, though it is in one only (80 us a row).
    """
    chance, drawn, count = "__ordstream_chance", "__ordstream_drawn", "__ordstream_count"
    keys = sort.keys[: sort.cut_by]
    numbers = F.array(*(number for key in keys for number in _numbers(rows, key)))
    some = rows.sample(SAMPLED, 0).select(numbers.alias(drawn), F.rand(0).alias(chance))
    some = some.orderBy(chance).limit(min(MOST_DRAWN, DRAWN * sort.ranges))
    found = some.agg(F.collect_list(drawn).alias(drawn), F.count(F.lit(1)).alias(count))

    def begins(_: Column, at: Column) -> Column:
        share = at.cast("long") * sort.ranges
        return (at > 0) & (F.floor(share / F.col(count)) > F.floor((share - sort.ranges) / F.col(count)))

    return found.select(F.to_json(F.filter(F.array_sort(drawn), begins))).scalar()


def _numbers(rows: DataFrame, key: SortKey) -> tuple[Column, Column]:
    """As `sort_columns.comparable` has them of a row."""
    column, kind = F.col(key.column), rows.schema[key.column].dataType
    if isinstance(kind, DateType):
        number = F.unix_date(column).cast("long")
    elif isinstance(kind, TimestampType):
        number = F.unix_micros(column)
    elif isinstance(kind, TimestampNTZType):  # to the second; a cast fails near the ends of the calendar
        days = F.try_multiply(F.unix_date(column.cast("date")).cast("long"), F.lit(86_400_000_000))
        seconds = F.hour(column) * 3600 + F.minute(column) * 60 + F.second(column)
        number = F.try_add(days, seconds.cast("long") * F.lit(1_000_000))
    else:
        number = column.cast("long")
    number = F.bitwise_not(number) if key.descending else number
    return F.when(number.isNull(), 1 if key.nulls_last else -1).otherwise(0).cast("long"), F.coalesce(
        number, F.lit(0)
    )


def _serial_of(job: Job, carried: Carried, node: int, position: int) -> int:
    """The serial in the source of the row at a position (from 1) in a node."""
    rows = job.by_key(numbered(carried, False, 1)).sortWithinPartitions(SERIAL)
    at = "__ordstream_at"
    rows = rows.select(SERIAL, F.monotonically_increasing_id().alias(at))
    (found,) = rows.where(F.col(at) == F.lit((node << ROW_BITS) + position - 1)).collect()
    return int(found[SERIAL]) + 1


def _end_in_order(job: Job, rows: DataFrame, ranges: int) -> DataFrame:
    """The output in order where the end of the stream may cause rows, which are in no range; `ranges`: 0
    where all are such rows.

    Those are brought together by node first, and Spark takes its sample from that shuffle's files: the nodes
    run once.
    """
    nodes = job.layout.nodes
    route = RangeRoute(max(ranges, 1), ranges, nodes)
    rows = job.through(rows, len(job.fragments), route, leaves="place")
    rows = rows.repartitionById(ranges + nodes, F.col(NODE))
    if ranges == 0:
        return rows.orderBy(REST)
    ordinary, at_end = _halves(rows, ranges, [PLACE, REST])
    by = by_place(rows) if job.widens else [F.col(PLACE)]
    return stays_sorted(sorted_inside(ordinary, by, LongType())).union(at_end.orderBy(REST))


def _halves(rows: DataFrame, ranges: int, read: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """What rows caused, and what the end of the stream did, of what was shuffled to partitions; `read`: the
    columns that either half is sorted by.
    """
    # A condition that Spark can't move in front of the shuffle, over all that either half needs of it: both
    # read the same files.
    needed = reduce(or_, (F.col(name).isNull() for name in read))
    partition = F.when(F.spark_partition_id() >= 0, F.col(NODE)).when(needed, F.col(NODE))
    return rows.where(partition < ranges), rows.where(partition >= ranges)
