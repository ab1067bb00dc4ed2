"""`apply`: a pipeline over a whole DataFrame, in one total order, in one ordered node inside a Spark
executor.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from ordstream.errors import SchemaError, unknown_column
from ordstream.pipeline import Pipeline
from ordstream.settings import make_settings
from ordstream.spark.executor import NodeFunction
from ordstream.spark.progress import LISTENER, Channel, OnProgress, OnReport
from ordstream.spark.session import PANDAS_NOTICE

FILE, ROW = "__ordstream_file", "__ordstream_row"

_WIDER = {  # Arrow types that Spark has not, and what they become in the result
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def apply(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: str | Sequence[str],
    workers: int | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    presorted: bool = False,
    **options: Any,
) -> DataFrame:
    """Run a pipeline over a DataFrame in a total order; the result's rows are in the pipeline's output order.

    The order is `order_by`, ascending with NULL first and NaN last. Rows equal in these columns follow their
    place in the source, (file, row index), where Spark knows it (Parquet), else the remaining columns of the
    pipeline's source, so that a task that is run again sees the same rows in the same order. Spark sorts;
    rows that are sorted already cost it one pass. The node checks the order of what arrives.

    Parameters
    ----------
    pipeline : Pipeline
        What to run; its source columns are found in `df` by name and cast.
    df : DataFrame
        The input. Nothing runs before an action on the result.
    order_by : str or sequence of str
        Columns of `df`, which need not be columns of the pipeline's source. Empty: source order only.
    workers : int, optional
        Threads of the node; default the processors of a Spark task.
    report : callable or Channel, optional
        Called in a driver thread with (task, the node's report as a dict) when a node has ended; or a channel
        that keeps them. Needs executors on the driver's host.
    progress : callable, optional
        Called in a driver thread with the number of rows processed, while the job runs. Needs the same.
    presorted : bool
        Leave out the sort: the rows of `df` come in order, one partition after the other. The node still
        checks `order_by`; ties are taken as they come.
    **options
        Further options of a run (``scheduler``, ``partitioning``, ``chunk_rows``, ...).

    Returns
    -------
    DataFrame
        One partition, in order: `collect()`, `toArrow()` and `toLocalIterator()` keep it.

    Raises
    ------
    SchemaError
        If a column is missing or has a type that Spark can't carry.
    PlanError
        If an option is unknown or out of range.
    """
    order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    function, schema = node_function(pipeline, order, workers, report, progress, **options)
    for name in (*function.source.names, *order):
        if name not in df.columns:
            raise unknown_column(name, df.columns, "the DataFrame")
    needed = list(dict.fromkeys([*function.source.names, *order]))
    ordered = _one_partition(df.select(*needed)) if presorted else _in_order(df, needed, order)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
        return ordered.mapInArrow(function, schema)


def node_function(
    pipeline: Pipeline,
    order_by: tuple[str, ...] = (),
    workers: int | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    **options: Any,
) -> tuple[NodeFunction, StructType]:
    """Return what runs in a task, for `DataFrame.mapInArrow` or `RDD.mapPartitions`, and the schema of its
    output.

    Each partition gets a node of its own, and its rows must already be in `order_by`. The arguments are those
    of `apply`.

    Raises
    ------
    SchemaError
        If an output column has a type that Spark can't carry.
    PlanError
        If an option is unknown or out of range.
    """
    make_settings(options | {"workers": workers})  # a wrong option is an error now, not in a task
    schema = spark_schema(pipeline.schema)
    channel = report if isinstance(report, Channel) else None
    if channel is None and (report is not None or progress is not None):
        channel = Channel(on_report=None if isinstance(report, Channel) else report)
    if channel is not None and progress is not None:
        channel.on_progress = progress
    function = NodeFunction(
        pipeline=pipeline,
        source=pipeline.source_schema,
        output=to_arrow_schema(schema, timezone="UTC"),
        order_by=order_by,
        workers=workers,
        options=options,
        door=None if channel is None else LISTENER.open(channel),
    )
    return function, schema


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a pipeline's output; unsigned integers become the next wider signed type.

    Raises
    ------
    SchemaError
        If a column has a type that Spark has not.
    """
    fields = []
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        kind = _WIDER.get(kind, kind)
        try:
            fields += from_arrow_schema(pa.schema([pa.field(column.name, kind, column.nullable)])).fields
        except Exception as error:  # pyspark raises several kinds of its own
            raise SchemaError(
                f"column {column.name!r} has type {column.type}, which Spark can't carry"
            ) from error
    return StructType(fields)


def _in_order(df: DataFrame, needed: list[str], order: tuple[str, ...]) -> DataFrame:
    """One partition of the needed columns, sorted by `order`, then by place in the source, then by all
    columns.
    """
    columns = [F.col(f"`{name}`") for name in needed]
    place = _place_in_source(df)
    source = df.select(*columns, *(F.col(at).alias(name) for name, at in place.items()))
    others = [name for name in needed if name not in order and _sortable(df.schema[name].dataType)]
    keys = [F.col(f"`{name}`").asc_nulls_first() for name in (*order, *place, *others)]
    ordered = _one_partition(source)
    return (ordered.sortWithinPartitions(*keys) if keys else ordered).select(*columns)


def _one_partition(df: DataFrame) -> DataFrame:
    """Bring all rows to one task: by a shuffle, unless this Spark runs one task at a time, where it would
    only cost.
    """
    return df.coalesce(1) if _slots(df.sparkSession) == 1 else df.repartition(1)


def _slots(spark: SparkSession) -> int | None:
    """Tasks that run at a time, by Spark's own count; None where it can't be asked (Spark Connect)."""
    try:
        context = spark.sparkContext._jsc.sc()
        return int(context.maxNumConcurrentTasks(context.resourceProfileManager().resourceProfileFromId(0)))
    except Exception:  # no JVM behind this session, or another version of Spark: slower, not wrong
        return None


def _place_in_source(df: DataFrame) -> dict[str, str]:
    """Names for, and expressions of, the file and the row within it, where the source has them."""
    place = {FILE: "_metadata.file_path", ROW: "_metadata.row_index"}
    if "_metadata" in df.columns:
        return {}  # a column of the user's
    with _unlogged():
        try:
            df.select(*place.values()).schema  # noqa: B018, asking for the schema makes Spark look them up
        except AnalysisException:
            return {}
    return place


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is an answer here, Java trace and all."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _sortable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _sortable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_sortable(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | VariantType)
