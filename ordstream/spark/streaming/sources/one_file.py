"""One Parquet or Arrow file of a folder that is read as a stream: what it is known by, and its rows."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pyarrow.types as pat

from ordstream.errors import SourceError
from ordstream.ground.long_rows import of_groups, rows_at_once
from ordstream.ground.nested_cast import cast_column, typed
from ordstream.ground.packed_types import as_plain, is_any_list
from ordstream.spark.kinds import fits
from ordstream.spark.streaming.offset_column import OFFSET
from ordstream.spark.streaming.sources.offsets import numbered

SUFFIXES = (".parquet", ".arrow", ".feather")
TAIL = 1 << 16  # bytes at a file's end that its checksum covers: both formats keep their index there
ROWS = 1 << 16  # of a batch, at most: Java has each in its memory as a whole


class Known(NamedTuple):
    """What a file is known by.

    Attributes
    ----------
    name : str
    rows : int
    bytes : int
    crc : int
        CRC-32 of its last 64 KiB.
    """

    name: str
    rows: int
    bytes: int
    crc: int


class Part(NamedTuple):
    """Rows of a file that a task reads: [`first`, `last`) of it, numbered from `offset`."""

    file: Known
    first: int
    last: int
    offset: int


def look(folder: Path, name: str) -> Known:
    """What the file is known by, from its end and its index.

    Raises
    ------
    SourceError
        It is gone, or no whole file of its format.
    """
    path = folder / name
    try:
        size, crc = _tail(path)
        if name.endswith(".parquet"):
            with pq.ParquetFile(path) as parquet:
                rows = parquet.metadata.num_rows
        else:
            with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as arrow:
                rows = sum(arrow.get_batch(at).num_rows for at in range(arrow.num_record_batches))
    except FileNotFoundError as error:
        raise gone(path) from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{path}: no whole {path.suffix[1:]} file: {error}. A file must appear by a rename, when all of "
            "it is written"
        ) from error
    return Known(name, rows, size, crc)


def schema_of(folder: Path, name: str) -> pa.Schema:
    """The columns of a file."""
    look(folder, name)
    if name.endswith(".parquet"):
        return pq.read_schema(folder / name)
    with pa.memory_map(str(folder / name)) as mapped, pa.ipc.open_file(mapped) as arrow:
        return arrow.schema


def check(folder: Path, file: Known) -> None:
    """Raise SourceError unless the file is still what it was when the batch was planned."""
    path = folder / file.name
    try:
        size, crc = _tail(path)
    except FileNotFoundError as error:
        raise gone(path) from error
    if (size, crc) != (file.bytes, file.crc):
        raise SourceError(
            f"{path}: the file was changed since its rows were planned: it had {file.bytes} bytes and has "
            f"{size}, the checksum of its end was {file.crc:08x} and is {crc:08x}. Bring back the one that "
            "was there; new rows go into a new file behind it"
        )


def read(folder: Path, part: Part, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part as batches of exactly `schema`.

    Raises
    ------
    SourceError
        The file is another one now, lacks a column, or has a value that does not fit its type.
    """
    check(folder, part.file)
    path = folder / part.file.name
    at = part.first
    try:
        for batch in _batches(path, part, [name for name in schema.names if name != OFFSET]):
            yield _fitted(path, batch, schema, part.offset + at - part.first)
            at += batch.num_rows
    except FileNotFoundError as error:
        raise gone(path) from error
    except OSError as error:
        raise SourceError(f"{path}: the file can't be read: {error}") from error
    if at != part.last:
        raise SourceError(
            f"{path}: of the rows {part.first} to {part.last} the file has only those up to {at}"
        )


def _batches(path: Path, part: Part, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows [first, last) of a file, with those of the columns that it has."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as parquet:
            there = [name for name in columns if name in parquet.schema_arrow.names]
            row = 0
            for group in range(parquet.num_row_groups):
                count = parquet.metadata.row_group(group).num_rows
                if row < part.last and row + count > part.first:
                    most = of_groups(ROWS, parquet.metadata, range(group, group + 1), there)
                    yield from _cut(parquet.iter_batches(most, [group], there), row, part)
                row += count
        return
    with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as arrow:
        there = [name for name in columns if name in arrow.schema.names]
        stored = (arrow.get_batch(at).select(there) for at in range(arrow.num_record_batches))
        for batch in _cut(stored, 0, part):
            most = rows_at_once(ROWS, batch.num_rows, batch.nbytes)
            for first in range(0, batch.num_rows, most):
                yield batch.slice(first, most)


def _cut(batches: Iterator[pa.RecordBatch], row: int, part: Part) -> Iterator[pa.RecordBatch]:
    """Of batches that begin at `row` what lies in the part."""
    for batch in batches:
        if row >= part.last:
            return
        low, high = max(part.first - row, 0), min(part.last - row, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        row += batch.num_rows


def _fitted(path: Path, batch: pa.RecordBatch, schema: pa.Schema, offset: int) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name == OFFSET:
            columns.append(numbered(offset, batch.num_rows))
        elif batch.schema.get_field_index(field.name) < 0:
            raise SourceError(f"{path}: the file has no column {field.name!r}, or more than one")
        else:
            columns.append(_cast(path, batch.column(field.name), field, offset))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(path: Path, column: pa.Array, field: pa.Field, offset: int) -> pa.Array:
    column = as_plain(column)
    given, wanted = column.type, field.type
    zones = _zones_differ(given, wanted)
    if zones or not fits(given, wanted):
        raise SourceError(
            f"{path}: column {field.name!r} is {given}, the stream's is {wanted}: declare it as the file "
            f"has it{' (TIMESTAMP_NTZ is a time without zone)' if zones else ''}"
        )
    if column.null_count and not field.nullable:
        raise SourceError(f"{path}: column {field.name!r} has a null at {OFFSET} {offset} or behind")
    try:
        found = cast_column(typed(column, wanted), wanted)
        lost = _may_lose(given, wanted) and not _same(column, found)
    except pa.ArrowException as error:
        raise _no_place(path, column, field, offset, f": {error}") from error
    if lost:
        raise _no_place(path, column, field, offset, f" without loss: declare it as {given}")
    return found


def _no_place(path: Path, column: pa.Array, field: pa.Field, offset: int, why: str) -> SourceError:
    return SourceError(
        f"{path}: column {field.name!r}, at {OFFSET} {offset} or behind: a value of type {column.type} does "
        f"not fit {field.type}{why}"
    )


def _any_part(given: pa.DataType, wanted: pa.DataType, is_so: Callable[[Any, Any], bool]) -> bool:
    """Whether something is so of two types that fit, or of parts of them."""
    if pat.is_struct(given) and pat.is_struct(wanted):
        return any(_any_part(a.type, b.type, is_so) for a, b in zip(given, wanted, strict=False))
    if pat.is_map(given) and pat.is_map(wanted):
        return _any_part(given.key_type, wanted.key_type, is_so) or _any_part(
            given.item_type, wanted.item_type, is_so
        )
    if (is_any_list(given) or pat.is_fixed_size_list(given)) and is_any_list(wanted):
        return _any_part(given.value_type, wanted.value_type, is_so)
    return is_so(given, wanted)


def _zones_differ(given: pa.DataType, wanted: pa.DataType) -> bool:
    def differ(one: pa.DataType, other: pa.DataType) -> bool:
        both = pat.is_timestamp(one) and pat.is_timestamp(other)
        return bool(both and (one.tz is None) != (other.tz is None))

    return _any_part(given, wanted, differ)


def _may_lose(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow's cast gives the nearest value, without a word, where there is none that is equal."""

    def may(one: pa.DataType, other: pa.DataType) -> bool:
        if pat.is_floating(other):
            wider = pat.is_floating(one) and one.bit_width > other.bit_width
            return bool(wider or pat.is_decimal(one))
        if pat.is_decimal(other):
            return bool(pat.is_floating(one))
        return bool(pat.is_timestamp(one) and (pat.is_date(other) or pat.is_time(other)))

    return _any_part(given, wanted, may)


def _same(column: pa.Array, found: pa.Array) -> bool:
    """Whether each value is what it was."""
    back = cast_column(found, column.type)
    return bool(column.equals(back)) or repr(column.to_pylist()) == repr(back.to_pylist())  # NaN


def _tail(path: Path) -> tuple[int, int]:
    """Bytes of a file, and the checksum of the last of them."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        return size, zlib.crc32(file.read())


def gone(path: Path) -> SourceError:
    """The error for a file that is needed and not there."""
    return SourceError(f"{path}: the file is gone, and its rows are still needed: bring it back")
