"""What arrives in a Spark task, as the columns that a pipeline reads: record batches, or rows of an RDD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark import TaskContext

from ordstream.errors import SourceError
from ordstream.ground.types import is_list
from ordstream.spark.kinds import fits, not_read

ROWS_PER_BATCH = 4_096  # rows of an RDD that are put into one record batch

UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00", "Etc/GMT")


def cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as this type."""
    return column if column.type.equals(kind) else column.cast(kind)


def read_column(batch: pa.RecordBatch, name: str, column: pa.Field) -> pa.Array:
    """An arriving column as the pipeline's.

    Raises
    ------
    SourceError
        Its values don't fit, or it is an instant and the pipeline reads a wall clock, or the other way
        round.
    """
    given = batch.column(name)
    if _mixes(given.type, column.type):
        raise SourceError(
            f"column {column.name!r} arrives as {given.type} and the pipeline reads {column.type}: an "
            "instant is no "
            "reading of a wall clock without a time zone. Cast it in Spark first, as ordstream.spark.apply "
            "does: "
            "to TIMESTAMP_NTZ, TIMESTAMP or DATE, by spark.sql.session.timeZone"
        )
    if not fits(given.type, column.type):
        raise SourceError(not_read(column, str(given.type)))
    try:
        return cast_column(given, column.type)
    except pa.ArrowException as error:
        raise SourceError(
            f"arriving rows don't fit the pipeline's source: column {column.name!r}: {error}"
        ) from error


def _mixes(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast would take an instant for a wall clock's reading, or a day, or the other way round:
    not in UTC, where they agree.
    """
    if is_list(given) and is_list(wanted):
        return _mixes(given.value_type, wanted.value_type)
    if not pat.is_timestamp(given) and not pat.is_date(given):
        return False
    instant = pat.is_timestamp(wanted) and wanted.tz is not None
    if pat.is_timestamp(given) and given.tz is not None:
        return (
            not instant
            and (pat.is_timestamp(wanted) or pat.is_date(wanted) or pat.is_time(wanted))
            and given.tz not in UTC
        )
    return instant and _session_zone() not in UTC


def _session_zone() -> str | None:
    """`spark.sql.session.timeZone` of the job, where it is set."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.sql.session.timeZone")


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns by position, cast to the types of `schema`."""
    if batch.schema.equals(schema):
        return batch
    columns = [cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def batches_of_rows(
    rows: Iterator[Any], types: Mapping[str, pa.DataType | None]
) -> Iterator[pa.RecordBatch]:
    """Rows (mappings, or sequences in the order of `types`) as record batches.

    Raises
    ------
    SourceError
        If a row has other columns or a value of another type.
    """
    names = list(types)
    while block := list(islice(rows, ROWS_PER_BATCH)):
        try:
            columns = zip(*(_values(row, names) for row in block), strict=True)
            arrays = [_array(column, types[name]) for name, column in zip(names, columns, strict=True)]
        except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise SourceError(f"arriving rows don't fit the pipeline's source: {error}") from error
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _array(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """Values as an array. A datetime without zone is an instant in this process's zone, which is how
    PySpark's rows have a TIMESTAMP.
    """
    element = kind.value_type if kind is not None and is_list(kind) else kind
    if element is None or not pat.is_timestamp(element) or element.tz is None:
        return pa.array(values, type=kind)
    if element is kind:
        return pa.array([_instant(value) for value in values], type=kind)
    return pa.array(
        [value if value is None else [_instant(one) for one in value] for value in values], type=kind
    )


def _instant(value: Any) -> Any:
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value


def _values(row: Any, names: list[str]) -> list[Any]:
    """The named values of a mapping or of a pyspark Row with field names, else the sequence's own."""
    if isinstance(row, Mapping) or getattr(row, "__fields__", None):
        return [row[name] for name in names]
    if len(row) != len(names):
        raise ValueError(f"a row has {len(row)} values for {len(names)} columns ({', '.join(names)})")
    return list(row)
