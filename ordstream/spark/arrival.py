"""What arrives in a Spark task, as the columns that a pipeline reads: record batches, or rows of an RDD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark import TaskContext

from ordstream.errors import SourceError, shown
from ordstream.ground.datetimes import UTC_ZONES
from ordstream.ground.nested_cast import cast_column
from ordstream.ground.packed_types import is_any_list
from ordstream.spark.kinds import fits, not_read

ROWS_PER_BATCH = 4_096  # rows of an RDD that are put into one record batch


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
            f"arriving rows don't fit the pipeline's source: column {column.name!r}, value "
            f"{_first_unfit(given, column.type)}: {error}; cast it in Spark, or give the pipeline another "
            f"type than {column.type}"
        ) from error


def _first_unfit(given: pa.Array, wanted: pa.DataType) -> str:
    """The first value that a cast refuses, where it refuses one, as a text."""
    first, behind = 0, len(given)
    while behind - first > 1:
        middle = (first + behind) // 2
        try:
            cast_column(given[first:middle], wanted)
            first = middle
        except pa.ArrowException:
            behind = middle
    try:
        return shown(given[first].as_py(), 80)
    except Exception:  # Python may have none for it
        return f"<{given.type}>"


def _mixes(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast would take an instant for a wall clock's reading, or a day, or the other way round:
    not in UTC, where they agree.
    """
    if is_any_list(given) and is_any_list(wanted):
        return _mixes(given.value_type, wanted.value_type)
    if pat.is_map(given) and pat.is_map(wanted):
        return _mixes(given.key_type, wanted.key_type) or _mixes(given.item_type, wanted.item_type)
    if pat.is_struct(given) and pat.is_struct(wanted):
        return any(_mixes(one.type, other.type) for one, other in zip(given, wanted, strict=False))
    if not pat.is_timestamp(given) and not pat.is_date(given):
        return False
    instant = pat.is_timestamp(wanted) and wanted.tz is not None
    if pat.is_timestamp(given) and given.tz is not None:
        return (
            not instant
            and (pat.is_timestamp(wanted) or pat.is_date(wanted) or pat.is_time(wanted))
            and given.tz not in UTC_ZONES
        )
    return instant and _session_zone() not in UTC_ZONES


def _session_zone() -> str | None:
    """`spark.sql.session.timeZone` of the job, where it is set."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty("spark.sql.session.timeZone")


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
    if kind is None or not _has_instants(kind):
        return pa.array(values, type=kind)
    return pa.array([_with_zone(value, kind) for value in values], type=kind)


def _has_instants(kind: pa.DataType) -> bool:
    if pat.is_map(kind):
        return _has_instants(kind.key_type) or _has_instants(kind.item_type)
    if pat.is_struct(kind):
        return any(_has_instants(field.type) for field in kind)
    if is_any_list(kind):
        return _has_instants(kind.value_type)
    return bool(pat.is_timestamp(kind) and kind.tz is not None)


def python_values(column: pa.Array) -> list[Any]:
    """A column for rows of Spark's: maps are dicts there."""
    values: list[Any] = column.to_pylist()
    return [_with_dicts(value, column.type) for value in values] if _has_maps(column.type) else values


def _has_maps(kind: pa.DataType) -> bool:
    if pat.is_struct(kind):
        return any(_has_maps(field.type) for field in kind)
    return bool(pat.is_map(kind) or (is_any_list(kind) and _has_maps(kind.value_type)))


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _has_maps(kind):
        return value
    if pat.is_map(kind):
        return {key: _with_dicts(item, kind.item_type) for key, item in value}
    if pat.is_struct(kind):
        return {field.name: _with_dicts(value[field.name], field.type) for field in kind}
    return [_with_dicts(one, kind.value_type) for one in value]


def _with_zone(value: Any, kind: pa.DataType) -> Any:
    """A value with the zone of this process at all instants inside that have none."""
    if value is None or not _has_instants(kind):
        return value
    if pat.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_with_zone(key, kind.key_type), _with_zone(item, kind.item_type)) for key, item in pairs]
    if pat.is_struct(kind):
        parts = [value[field.name] for field in kind] if isinstance(value, Mapping) else value
        return tuple(_with_zone(part, field.type) for part, field in zip(parts, kind, strict=True))
    if is_any_list(kind):
        return [_with_zone(one, kind.value_type) for one in value]
    return value.astimezone() if isinstance(value, datetime) and value.tzinfo is None else value


def _values(row: Any, names: list[str]) -> list[Any]:
    """The named values of a mapping or of a pyspark Row with field names, else the sequence's own."""
    if isinstance(row, Mapping) or getattr(row, "__fields__", None):
        return [row[name] for name in names]
    if len(row) != len(names):
        raise ValueError(f"a row has {len(row)} values for {len(names)} columns ({', '.join(names)})")
    return list(row)
