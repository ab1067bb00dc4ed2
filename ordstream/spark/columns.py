"""The user's columns inside a Spark job: under names of ours, in the types that the pipeline reads, in the
order of the rows.

Names. Spark takes a column's name apart (dots, backticks), and by default holds `A` and `a` for one
(`names.py` says which column a name means). So a frame's columns are renamed by position before anything
else happens, and are called by their place from then on: d0, d1, ... those of the frame; c0, c1, ... those
of a pipeline's or a fragment's source; o0, o1, ... those of `order_by` that are no c. Columns of ours
(serial, tag, node) begin with ``__ordstream_``, which none of these does. The user's names come back with
the output.

Times. A TIMESTAMP is an instant, a TIMESTAMP_NTZ the reading of a wall clock, a DATE a day of the calendar;
a pipeline has the first as a timestamp with a zone, the second as one without. Where the frame has the one
and the pipeline reads the other, Spark itself casts, by `spark.sql.session.timeZone`, before the rows leave
it.

Texts. A node compares texts by their bytes. What it only carries it gets as the plain text, whatever the
collation.

Order. A frame that is in order has it by (partition, position in the partition). Spark brings partitions
together in any order, so rows are numbered first where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from ordstream.errors import PlanError
from ordstream.ground.ordercheck import SortKey
from ordstream.ground.spark_types import parts
from ordstream.pipeline.keyed_pipeline import KeyedPipeline
from ordstream.pipeline.pipeline import Pipeline
from ordstream.spark.executor import SERIAL, carried_name
from ordstream.spark.file_key import PATH, file_key, with_row
from ordstream.spark.names import find_column, is_case_sensitive
from ordstream.spark.order import OrderKey, order_keys
from ordstream.spark.quiet import unlogged
from ordstream.spark.schemas import check_compared, check_reads, is_collated, without_collations

FILE, ROW = "__ordstream_file", "__ordstream_row"
CUT_BY = 32  # columns, at most, by which rows are cut into ranges

# Plans over one of these alone have partitions that all lie on certain hosts, or none: `coalesce` leaves
# them in their order.
_SETTLED_LEAVES = frozenset(("Range", "LocalRelation", "LogicalRelation", "OneRowRelation"))


def check_pipeline(given: Any, call: str, place: str = "first, then what it reads") -> None:
    """Raise PlanError for what is no pipeline, which `call` takes in this place."""
    if isinstance(given, KeyedPipeline):
        raise PlanError(
            f"{call} takes a pipeline, and this one ends with key_by: say what is kept by key, such as "
            "key_by(...).count()"
        )
    if not isinstance(given, Pipeline):
        raise PlanError(f"{call} takes a pipeline {place}; got {type(given).__name__}")


def check_frame(df: Any) -> None:
    """Raise PlanError for what is no DataFrame, or a streaming one."""
    if hasattr(type(df), "to_spark"):  # a frame of Spark Connect has any attribute: a column of that name
        raise PlanError("a Spark DataFrame is needed, got one of pandas on Spark: give df.to_spark()")
    if not hasattr(df, "sparkSession"):
        raise PlanError(
            f"a Spark DataFrame is needed, got {type(df).__name__}: make one with session.createDataFrame, "
            "or run the pipeline here "
            "with pipeline.run(data)"
        )
    if df.isStreaming:
        raise PlanError(
            "a streaming DataFrame runs with od.spark.stream(pipeline, df, ...), which keeps states from "
            "one micro-batch to the next; od.spark.apply is for one that is whole, such as what has arrived "
            "(spark.read). In foreachBatch apply would start anew with each batch"
        )


@dataclass(frozen=True)
class Carried:
    """What of a user's frame a job takes along.

    Attributes
    ----------
    frame : DataFrame
        All the user's columns, renamed: d0, d1, ...
    columns : dict
        What reaches the nodes: name inside the job -> expression over `frame`.
    keys : tuple of SortKey
        The columns of `order_by` among them, with their directions.
    texts : tuple of str
        The same as the user knows them.
    places : list of int
        Of the source's columns in the user's frame.
    ties : tuple of str
        What orders rows equal in `ordering` where Spark knows no place in the source: the columns of the
        pipeline's source, in its order, as they are carried, or those of `frame` where they are not; up to
        the last one that the pipeline reads.
    zoned : tuple of str
        Columns of the pipeline's source that Spark casts by the session's time zone.
    in_files : "", "some" or "all"
        The order is that of the files and of the rows in each, some of these or all: `keys` are only to be
        checked.
    """

    frame: DataFrame
    columns: dict[str, Column]
    keys: tuple[SortKey, ...]
    texts: tuple[str, ...]
    ties: tuple[str, ...]
    places: list[int]
    zoned: tuple[str, ...] = ()
    in_files: Literal["", "some", "all"] = ""

    @property
    def ordering(self) -> tuple[str, ...]:
        """Names of the columns of `order_by`."""
        return tuple(key.column for key in self.keys)

    def of(self, some: DataFrame) -> DataFrame:
        """The carried columns of some rows of `frame`."""
        return some.select(*(column.alias(name) for name, column in self.columns.items()))

    @cached_property
    def as_it_is(self) -> DataFrame:
        """All rows in the order that they have, over the partitions that they are in."""
        return self.of(self.frame)

    def in_one_partition(self) -> DataFrame:
        """All rows in the order that they have, in one partition."""
        if self.in_files:
            return self.sorted()
        rows = self.as_it_is
        if _is_one_partition(rows):
            return rows
        if slots(rows.sparkSession) == 1 and _coalesces_in_order(rows):
            return rows.coalesce(1)
        # (partition, position), in one number: no second pass over the source, as zipWithIndex makes
        numbered = rows.withColumn(SERIAL, F.monotonically_increasing_id())
        return _together(numbered).sortWithinPartitions(SERIAL).drop(SERIAL)

    def with_keys(self, some: DataFrame | None = None) -> tuple[DataFrame, list[Column]]:
        """Rows of `frame`, as they lie, with all that they are sorted by, and the keys of that sort."""
        rows, keys = self.with_sort(some)
        found = (_sorted_by(key, rows.schema[key.column].dataType) for key in keys)
        return rows, [one for one in found if one is not None]

    def with_sort(self, some: DataFrame | None = None) -> tuple[DataFrame, list[SortKey]]:
        """Rows of `frame`, as they lie, with all that they are sorted by, and the names of these columns."""
        frame = self.frame if some is None else some
        place = place_in_source(frame)
        placed = _placed(frame, place)
        # of several frames some may know no place: these have ties of their own
        tied = list(self.columns) if place and ROW not in frame.columns else self.ties
        further = [name for name in tied if name not in self.columns]
        rows = frame.select(
            *(column.alias(name) for name, column in self.columns.items()),
            *(F.col(name) for name in further),
            *(column.alias(name) for name, column in placed.items()),
        )
        if self.in_files and place:  # a sample may know none
            return rows, [*map(SortKey, placed)]
        ties = [SortKey(name) for name in tied if name not in self.ordering]
        return rows, [*self.keys, *map(SortKey, placed), *ties]

    def sorted(self, some: DataFrame | None = None, *, everywhere: bool = False) -> DataFrame:
        """Rows of `frame` by `ordering`, then by place in the source or, where that is not known, by every
        column of the pipeline's source: in one partition, or over as many as Spark makes.

        Rows that share a place (a join or an explode made them of one row) are sorted by what is carried:
        those equal in that are the same to the pipeline.
        """
        rows, by = self.with_keys(some)
        if everywhere:
            rows = rows.repartitionByRange(*self.cuts(rows, by)) if by else rows
        else:
            rows = _together(rows)
        return self.sorted_inside(rows, by).select(*self.columns)

    def cuts(self, rows: DataFrame, by: list[Column]) -> list[Column]:
        """Those of the keys by which rows of `with_keys` are cut into ranges: where the place in the source
        is known, no others need be read for Spark's sample. The first few: at a thousand Spark's planner
        overflows Java's stack, and rows equal in these lie in one range, where they are sorted.
        """
        return by[: min(self.place_keys(rows), CUT_BY)] if ROW in rows.columns else by[:CUT_BY]

    def place_keys(self, rows: DataFrame) -> int:
        """How many keys of rows of `with_keys`, which know their place in the source, say where they are."""
        return len(self.keys) * (not self.in_files) + 1 + (FILE in rows.columns)

    def sorted_inside(self, rows: DataFrame, by: list[Column]) -> DataFrame:
        """Rows of `with_keys` sorted by its keys in each partition."""
        if not by:
            return rows
        first = [FILE] if self.in_files and FILE in rows.columns else self.ordering[:1]
        return sorted_inside(rows, by, rows.schema[first[0]].dataType if first else None)


def sorted_inside(rows: DataFrame, by: Sequence[Column], first: DataType | None) -> DataFrame:
    """Rows sorted in each partition; `first`: the type of the first key, where that is a plain column.

    Spark sorts by one number without comparing rows (a radix sort), by several keys with comparisons, which
    are few where the rows come sorted by the first key.
    """
    if len(by) > 1 and first is not None and _is_radix_sorted(first):
        rows = stays_sorted(rows.sortWithinPartitions(by[0]))
    return rows.sortWithinPartitions(*by)


def stays_sorted(rows: DataFrame) -> DataFrame:
    """Rows that were sorted in each partition, with a condition that keeps Spark from taking that sort for
    superfluous in front of another one: of ours, or the one by which a partitioned write groups its rows.
    """
    return rows.where(F.spark_partition_id() >= 0)


def carry(
    df: DataFrame,
    source: pa.Schema,
    read: Sequence[str],
    order_by: Sequence[str | OrderKey],
    compared: Collection[int] = (),
) -> Carried:
    """What a job takes of a user's frame.

    Parameters
    ----------
    df : DataFrame
    source : pyarrow.Schema
        Of the pipeline.
    read : sequence of str
        Columns of it that must reach the nodes. Those of `order_by` do as well, and one at least.
    order_by : sequence of str or OrderKey
    compared : collection of int
        Columns of the source that the pipeline compares (`plan.columns.compared_source_columns`).

    Raises
    ------
    SchemaError
        If a column is missing, or there are several of its name; if it is of a kind that the pipeline's
        column is not, or has a collation and is compared.
    PlanError
        If rows can't be ordered by a column.
    """
    names, case_sensitive, fields = list(df.columns), is_case_sensitive(df), df.schema.fields
    places = [find_column(name, names, case_sensitive, "the DataFrame") for name in source.names]
    keys = [one if isinstance(one, OrderKey) else order_keys(one, df)[0] for one in order_by]
    computed = [(k, key.computed) for k, key in enumerate(keys) if key.computed is not None]
    frame = df.select("*", *(column.alias(f"o{k}") for k, column in computed)) if computed else df
    frame = frame.toDF(*(f"d{number}" for number in range(len(names))), *(f"o{k}" for k, _ in computed))
    if any(is_collated(field.dataType) for field in fields):
        plain = [_plain(F.col(f"d{k}"), field.dataType).alias(f"d{k}") for k, field in enumerate(fields)]
        frame = frame.select(*plain, *(f"o{k}" for k, _ in computed))
    ordered = {key.place for key in keys}
    needed = {*read} or ({*source.names[:1]} if not keys else set())
    columns: dict[str, Column] = {}
    zoned: list[str] = []
    carried: dict[int, str] = {}  # place in the frame -> name in the job, where the values are the frame's
    for number, (place, column) in enumerate(zip(places, source, strict=True)):
        if column.name in needed or place in ordered:
            check_reads(fields[place], column)
            if number in compared:
                check_compared(fields[place])
            given, kind = F.col(f"d{place}"), _read_as(fields[place].dataType, column.type)
            columns[carried_name(number)] = given if kind is None else given.cast(kind)
            if kind is None:
                carried[place] = carried_name(number)
            elif not isinstance(fields[place].dataType, TimestampNTZType) or isinstance(kind, TimestampType):
                zoned.append(column.name)  # the day of a wall clock is the same everywhere
    for number, key in enumerate(keys):
        # rows are ordered by what the frame has, not by what the pipeline reads it as
        if key.place is None:
            columns[f"o{number}"] = F.col(f"o{number}")
        elif key.place not in carried:
            carried[key.place] = f"o{number}"
            columns[f"o{number}"] = F.col(f"d{key.place}")
    # rows equal in all columns up to the last one that is read are the same to the pipeline
    seen = max((k for k, one in enumerate(source) if one.name in needed or places[k] in ordered), default=0)
    ties = tuple(carried.get(place) or f"d{place}" for place in places[: seen + 1])
    sort = tuple(
        SortKey(f"o{k}" if key.place is None else carried[key.place], key.descending, key.nulls_last)
        for k, key in enumerate(keys)
    )
    return Carried(frame, columns, sort, tuple(map(str, keys)), ties, places, tuple(zoned))


def _plain(column: Column, kind: DataType) -> Column:
    """The column with texts that are compared by their bytes."""
    if isinstance(kind, StringType) and is_collated(kind):
        return F.collate(column, "UTF8_BINARY")
    return column.cast(without_collations(kind)) if is_collated(kind) else column


def _is_radix_sorted(kind: DataType) -> bool:
    """Whether Spark's sort by such a column alone compares no rows: a number of at most 8 bytes."""
    if isinstance(kind, DecimalType):
        return kind.precision <= 18
    return isinstance(kind, NumericType | DateType | TimestampType | TimestampNTZType)


def _sorted_by(key: SortKey, kind: DataType) -> Column | None:
    """What Spark sorts by for a key; None: by nothing."""
    form = sorted_as(F.col(key.column), kind)
    return directed(key) if form is not None and sortable(kind) else form


def directed(key: SortKey) -> Column:
    """What Spark sorts by for a key that it sorts by as it is."""
    column = F.col(key.column)
    if key.descending:
        return column.desc_nulls_last() if key.nulls_last else column.desc_nulls_first()
    return column.asc_nulls_last() if key.nulls_last else column.asc_nulls_first()


def _read_as(given: DataType, wanted: pa.DataType) -> DataType | None:
    """The type to which Spark has to cast a column of times for a pipeline that reads it so; None: the
    values are the same.
    """
    if pat.is_dictionary(wanted):
        wanted = wanted.value_type
    if isinstance(wanted, pa.BaseExtensionType):
        return _read_as(given, wanted.storage_type)
    if isinstance(given, ArrayType):
        element = _read_as(given.elementType, wanted.value_type)
        return None if element is None else ArrayType(element, given.containsNull)
    if isinstance(given, MapType):
        key, value = _read_as(given.keyType, wanted.key_type), _read_as(given.valueType, wanted.item_type)
        if key is None and value is None:
            return None
        return MapType(key or given.keyType, value or given.valueType, given.valueContainsNull)
    if isinstance(given, StructType):
        read = [_read_as(one.dataType, part.type) for one, part in zip(given.fields, wanted, strict=True)]
        if not any(read):
            return None
        return StructType(
            [
                StructField(one.name, kind or one.dataType, one.nullable)
                for one, kind in zip(given.fields, read, strict=True)
            ]
        )
    is_instant = pat.is_timestamp(wanted) and wanted.tz is not None
    if isinstance(given, TimestampType):
        if pat.is_date(wanted):
            return DateType()
        return (
            TimestampNTZType()
            if pat.is_time(wanted) or (pat.is_timestamp(wanted) and not is_instant)
            else None
        )
    if isinstance(given, TimestampNTZType) and pat.is_date(wanted):
        return DateType()
    return TimestampType() if is_instant and isinstance(given, TimestampNTZType | DateType) else None


def user_names(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The first columns of a fragment's output under the user's names."""
    return rows.select(*(F.col(carried_name(number)).alias(name) for number, name in enumerate(names)))


def _together(rows: DataFrame) -> DataFrame:
    """All rows in one partition, in any order: by a shuffle, unless this Spark runs one task at a time,
    where it would only cost.
    """
    return rows.coalesce(1) if slots(rows.sparkSession) == 1 else rows.repartition(1)


def _is_one_partition(rows: DataFrame) -> bool:
    """Whether Spark plans one partition for these rows; False where it can't be asked."""
    try:
        plan = rows._jdf.queryExecution().executedPlan()
        if plan.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            plan = plan.initialPlan()
        return bool(plan.outputPartitioning().getClass().getSimpleName() == "SinglePartition$")
    except Exception:  # Spark Connect, or another version of Spark: slower, not wrong
        return False


def _coalesces_in_order(rows: DataFrame) -> bool:
    """Whether `coalesce(1)` surely leaves the partitions in their order: it takes one first that is
    cached on a host, others not.
    """
    try:
        leaves = rows._jdf.queryExecution().optimizedPlan().collectLeaves()
        kinds = [leaves.apply(number).getClass().getSimpleName() for number in range(leaves.size())]
    except Exception:  # as above
        return False
    return len(kinds) == 1 and kinds[0] in _SETTLED_LEAVES


def slots(spark: SparkSession) -> int | None:
    """Tasks that run at a time, by Spark's own count; None where it can't be asked (Spark Connect)."""
    try:
        context = spark.sparkContext._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().resourceProfileFromId(0)))
    except Exception:  # no JVM behind this session, or another version of Spark: slower, not wrong
        return None


def place_in_source(frame: DataFrame) -> dict[str, str]:
    """Names for, and expressions of, the file and the row within it, where the source has them. Rows that
    are cached have none: who asks for it reads the source again, which may be gone, or give other rows.
    """
    if ROW in frame.columns:  # of several frames, each has told its own
        return {FILE: FILE, ROW: ROW}
    if _is_cached(frame):
        return {}
    place = {FILE: PATH, ROW: "_metadata.row_index"}
    with unlogged():
        try:
            # asking for the schema makes Spark look them up
            frame.select(*place.values()).schema  # noqa: B018
        except AnalysisException:
            return {}
    return place


def _is_cached(frame: DataFrame) -> bool:
    """Whether Spark takes rows of the frame, or of what it is made of, from its cache."""
    if frame.isStreaming:
        return False
    try:
        leaves = frame._jdf.queryExecution().withCachedData().collectLeaves()
        kinds = (leaves.apply(number).getClass().getSimpleName() for number in range(leaves.size()))
        return "InMemoryRelation" in kinds
    except Exception:  # Spark Connect: what it shows of the plan
        shown: Any = frame
        return "InMemoryTableScan" in shown._explain_string()


def _placed(frame: DataFrame, place: dict[str, str]) -> dict[str, Column]:
    """What `place_in_source` names, in a sort of the frame's rows among each other: in one number, if it
    fits.
    """
    if place.get(FILE) != PATH:
        return {name: F.col(at) for name, at in place.items()}
    (file, is_small), row = file_key(frame), F.col(place[ROW])
    return {ROW: with_row(file, row)} if is_small else {FILE: file, ROW: row}


def sorted_as(column: Column, kind: DataType) -> Column | None:
    """What tells apart, in an order, all values of a column that differ; None: Spark sorts by none."""
    if sortable(kind):
        return column
    if any(not sortable(part) for _, part in parts(kind) if not _holds(part)):
        return None
    return _entries(column, kind)


def _entries(column: Column, kind: DataType) -> Column:
    """The column with the maps in it as arrays of their entries: Spark sorts by no map."""
    if sortable(kind):
        return column
    if isinstance(kind, MapType):
        pair = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return _entries(F.map_entries(column), ArrayType(pair))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda one: _entries(one, kind.elementType))
    assert isinstance(kind, StructType)
    fields = [_entries(column[one.name], one.dataType).alias(f"f{k}") for k, one in enumerate(kind.fields)]
    return F.when(column.isNotNull(), F.struct(*fields))


def _holds(kind: DataType) -> bool:
    return isinstance(kind, ArrayType | MapType | StructType)


def sortable(kind: DataType) -> bool:
    """Whether Spark sorts by such a column."""
    if isinstance(kind, ArrayType):
        return sortable(kind.elementType)
    if isinstance(kind, StructType):
        return all(sortable(field.dataType) for field in kind.fields)
    odd = ("interval", "geometry", "geography")  # of months, days and microseconds, which no order has
    return not isinstance(kind, MapType | VariantType) and kind.typeName() not in odd
