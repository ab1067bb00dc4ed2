"""What a pipeline can be fed with: anything Arrow, as record batches of exactly the source schema.

Columns are matched by name. A dictionary column is decoded, a string or list column may come in any of
Arrow's layouts; every other difference of type is an error that names column, expected and got: nothing is
cast silently.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream._core.flow.reader import Reader
from ordstream.errors import SourceError
from ordstream.ground.batches import BATCH_ROWS
from ordstream.ground.by_identity import by_identity
from ordstream.ground.imported import COLLECT, imported, instead_of, is_lazy, rows_advice
from ordstream.ground.nested_cast import cast_advice, cast_column, same_values, typed
from ordstream.ground.packed_types import is_any_list, plain, spanned
from ordstream.ground.slices import joinable
from ordstream.node.file_sources import FileSource, HandsOn
from ordstream.node.gathering import gathered
from ordstream.node.source_marks import MarkedRows, SourceMark

# With BATCH_ROWS: bytes of one imported batch, which bounds what is pinned and converted at a time.
BATCH_BYTES = 32 << 20
LEAST_BYTES = 64 << 10  # a smaller bound is not asked for
# So many slices are mostly small enough together: their bytes are asked for once.
TOGETHER = 4
# How many of them a cap on what is in flight should hold at least.
INPUT_PART = 16

BatchBytes = Callable[[pa.RecordBatch], int]


def is_live(data: Any) -> bool:
    """Whether asking for the next batch may run user code or block (an iterator, a RecordBatchReader), so
    that a thread should do it. What speaks Arrow and has a length is a table, whose rows are there.
    """
    if isinstance(data, Reader):
        return True
    if isinstance(data, list | tuple):  # a reader may be among its batches
        return any(hasattr(one, "__arrow_c_stream__") and is_live(one) for one in data)
    if isinstance(data, pa.Table | pa.RecordBatch):
        return False
    return not (hasattr(data, "__arrow_c_stream__") and hasattr(data, "__len__"))


def most_bytes(cap: int) -> int:
    """Bytes of the largest batch that a run is fed with: small beside the cap on what is in flight, since
    some are fed ahead, and what is pinned is a whole one.
    """
    return min(max(cap // INPUT_PART, LEAST_BYTES), BATCH_BYTES)


def batches(
    data: Any,
    schema: pa.Schema,
    without_nulls: Sequence[int] = (),
    most: int = BATCH_BYTES,
    *,
    fitted: bool = False,
) -> Iterator[Any]:
    """Record batches of `schema` (core layout), at most BATCH_ROWS rows each, never empty; and marks that an
    iterator gives between them.

    Parameters
    ----------
    data : Arrow data, or iterable of record batches
    schema : pyarrow.Schema
    without_nulls : sequence of int
        Columns that are declared without nulls, and read.
    most : int
        Bytes of one batch; a row that takes more is a batch of its own.
    fitted : bool
        `data` is an iterator of batches that are so already.

    Raises
    ------
    SourceError
        For data of another kind, or a batch that does not fit the schema.
    """
    found = _batches(data, schema, without_nulls, most, fitted)
    if not isinstance(data, pa.Table | list | tuple) or is_live(data):
        return found
    return gathered(found, batch_bytes_of(schema), most)


def _batches(
    data: Any, schema: pa.Schema, without_nulls: Sequence[int], most: int, fitted: bool
) -> Iterator[Any]:
    before, bytes_of = 0, batch_bytes_of(schema)
    for batch in data if fitted else batches_of(data):
        if isinstance(batch, SourceMark):
            yield batch
            continue
        if isinstance(batch, MarkedRows):
            yield from batch.parts(_batches(iter((batch.rows,)), schema, without_nulls, most, fitted))
            continue
        fitting = iter((batch,)) if fitted else _fitting(batch, schema, most, bytes_of)
        while True:
            try:
                found = next(fitting, None)
            except SourceError as error:
                where = _where(data, before)
                raise (SourceError(f"{where}: {error}") if where else error) from error.__cause__
            if found is None:
                break
            for index in without_nulls:
                if found.column(index).null_count:
                    row = before + found.column(index).is_null().to_pylist().index(True) + 1
                    file = _where(data, 0)
                    raise SourceError(
                        f"{file}{file and ': '}column {schema.names[index]!r} is declared without nulls "
                        f"(nullable=False), but row {row} has one"
                    )
            before += found.num_rows
            yield found


def _where(data: Any, before: int) -> str:
    """Where a source stands: its file, if it reads files, and how many tuples came before."""
    source = data.source if isinstance(data, HandsOn) else data
    file = source.reading if isinstance(source, FileSource) else ""
    return ", ".join([*([file] if file else []), *([f"after {before} tuples"] if before else [])])


def _fitting(
    batch: pa.RecordBatch, schema: pa.Schema, most: int, bytes_of: BatchBytes
) -> Iterator[pa.RecordBatch]:
    """The batch's rows as batches of `schema` of at most BATCH_ROWS rows and `most` bytes; `bytes_of`: of a
    batch of `schema`.
    """
    if batch.schema.equals(schema):
        yield from parts(_joinable(batch, schema), BATCH_ROWS, most, bytes_of)
        return
    if not batch.num_rows:
        conform(batch, schema)  # its columns must fit as well
    for part in parts(batch, BATCH_ROWS, most):
        for fitted in _conformed(part, schema):
            # decoded, a dictionary's rows may be long
            yield from parts(_joinable(fitted, schema), BATCH_ROWS, most, bytes_of)


def _joinable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with columns that Arrow can put together: ground/slices.py."""
    for place in _nested(schema):
        if (made := joinable(column := batch.column(place))) is not column:
            batch = batch.set_column(place, batch.schema.field(place), made)
    return batch


@by_identity
def _nested(schema: pa.Schema) -> list[int]:
    """Its columns with values in values."""
    return [place for place, type_ in enumerate(schema.types) if pat.is_nested(type_)]


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`conform`, in as many batches as it takes: the core's strings and lists have 32-bit offsets."""
    try:
        fitted = conform(batch, schema)
    except pa.ArrowInvalid:
        # A slice of an array with 64-bit offsets may begin behind what 32 bits can say: a copy begins at 0.
        columns = [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns]
        try:
            fitted = conform(pa.RecordBatch.from_arrays(columns, schema=batch.schema), schema)
        except pa.ArrowInvalid as error:
            if batch.num_rows == 1:
                raise SourceError(f"the next tuple does not fit into the core's types: {error}") from error
            yield from _halves(batch, lambda half: _conformed(half, schema))
            return
    yield fitted


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the batch's own rows. `RecordBatch.nbytes` has all buffers of views, and a whole dictionary,
    in every slice: rows of a large table of texts were cut into batches of one row.
    """
    return sum(map(_column_bytes, batch.columns))


@by_identity
def batch_bytes_of(schema: pa.Schema) -> BatchBytes:
    """`batch_bytes` of batches of one schema, which looks only at columns whose values are not all of one
    width: each small slice of a large table is asked.
    """
    width, others = 0, []
    for index, field in enumerate(schema):
        if pat.is_primitive(field.type) or pat.is_decimal(field.type):
            width += -(-field.type.bit_width // 8)
        else:
            of_column = _own_bytes if field.type.equals(plain(field.type)) else _column_bytes
            others.append((index, of_column))
    return lambda batch: (
        width * batch.num_rows + sum(of_column(batch.column(index)) for index, of_column in others)
    )


def parts(
    batch: pa.RecordBatch, rows: int, most: int, bytes_of: BatchBytes = batch_bytes
) -> Iterator[pa.RecordBatch]:
    """Slices of a batch, in order, of at most so many rows and bytes; a row that takes more is a slice
    of its own. Nothing is copied.
    """
    if batch.num_rows > rows:
        for start in range(0, batch.num_rows, TOGETHER * rows):
            several = batch.slice(start, TOGETHER * rows)
            if several.get_total_buffer_size() <= most or bytes_of(several) <= most:
                yield from [several.slice(begin, rows) for begin in range(0, several.num_rows, rows)]
                continue
            for begin in range(0, several.num_rows, rows):
                yield from parts(several.slice(begin, rows), rows, most, bytes_of)
    # of a slice the first figure is that of all its buffers; it is quick, and mostly enough
    elif batch.num_rows > 1 and batch.get_total_buffer_size() > most and bytes_of(batch) > most:
        yield from _halves(batch, lambda half: parts(half, rows, most, bytes_of))
    elif batch.num_rows:
        yield batch


def _own_bytes(column: pa.Array) -> int:
    return int(column.nbytes)


def _column_bytes(column: pa.Array) -> int:
    """Where values share buffers, about what they take once they are plain."""
    type_, rows = column.type, len(column)
    if not rows or type_.equals(plain(type_)):
        return _own_bytes(column)
    if isinstance(column, pa.ExtensionArray):
        return _column_bytes(column.storage)
    if pat.is_string_view(type_) or pat.is_binary_view(type_):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + rows, 0]
        return 4 * rows + int(lengths.clip(0).sum(dtype=np.int64))  # of a null it may be anything
    if pat.is_dictionary(type_):
        values = column.dictionary
        return int(column.indices.nbytes) + rows * (_column_bytes(values) // max(1, len(values)))
    if pat.is_run_end_encoded(type_) or pat.is_map(type_):
        return 4 * rows  # the rest shows when it is plain
    if pat.is_struct(type_):
        return rows + sum(_column_bytes(column.field(place)) for place in range(type_.num_fields))
    if is_any_list(type_) or pat.is_fixed_size_list(type_):
        return 4 * rows + _column_bytes(spanned(column))
    return int(column.nbytes)


def _halves(
    batch: pa.RecordBatch, each: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    middle = batch.num_rows // 2
    yield from each(batch.slice(0, middle))
    yield from each(batch.slice(middle))


def batches_of(data: Any) -> Iterator[Any]:
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches() or [_no_rows(data.schema)]
    elif isinstance(data, Reader):  # as it is: by Arrow's interface its errors would come as text
        yield _no_rows(data.schema)
        yield from data
    elif hasattr(data, "__arrow_c_stream__"):
        reader = imported(data, "cannot read ", SourceError)
        yield _no_rows(reader.schema)
        yield from reader
    elif hasattr(data, "__arrow_c_array__"):
        yield pa.record_batch(data)
    elif isinstance(data, str | bytes | os.PathLike | Mapping):
        raise SourceError(f"cannot read {type(data).__name__}: {_advice(data)}")
    elif hasattr(type(data), "to_batches"):  # pyarrow datasets and scanners, in the order of their files
        yield from data.to_batches()
    elif isinstance(data, Iterable):
        for place, item in enumerate(data, start=1):
            if item is data:
                raise SourceError("the source yields itself")
            if isinstance(item, SourceMark | MarkedRows):
                yield item
                continue
            if not hasattr(item, "__arrow_c_array__") and not hasattr(item, "__arrow_c_stream__"):
                kind = type(item).__name__
                text = f"item {place}: the source must yield Arrow record batches, it gave {kind}"
                advice = rows_advice(item)
                raise SourceError(f"{text}; {advice}" if advice else text + instead_of(data))
            yield from batches_of(item)
    else:
        raise SourceError(f"cannot read {type(data).__name__}: {_advice(data)}")


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch that only tells a schema: what has no rows must fit as well."""
    # not from_pylist: it makes no dictionary of views, as Polars' categories are, and no union; and Arrow's
    # nulls of what has runs inside are no valid arrays
    columns = [pa.nulls(0, plain(type_) if _has_parts(type_) else type_) for type_ in schema.types]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _has_parts(type_: pa.DataType) -> bool:
    return bool(pat.is_nested(type_) or (pat.is_dictionary(type_) and pat.is_nested(type_.value_type)))


def _advice(data: Any) -> str:
    """What to give in place of data that can't be read."""
    if isinstance(data, str | bytes | os.PathLike):
        return (
            "a file is read by od.ParquetSource(path), od.IpcSource(path) or pyarrow.csv.open_csv(path); a "
            "folder with partitions by pyarrow.dataset.dataset(path)"
        )
    if isinstance(data, Mapping):
        return "columns in a dict become a table by pyarrow.table(data)"
    if hasattr(data, "sparkSession"):
        return "a Spark DataFrame goes to od.spark.apply(pipeline, df, order_by=...)"
    if is_lazy(data):
        return COLLECT
    if hasattr(data, "iter_batches"):
        return "its batches are .iter_batches()"
    return (
        "give a pyarrow Table or RecordBatch, anything with __arrow_c_stream__ (Polars, DuckDB, pandas), "
        "a pyarrow dataset, or an iterable of record batches"
    )


def unread_column(batch: pa.RecordBatch, names: Sequence[str], error: TypeError) -> SourceError:
    """The error for a column of a batch that the core does not read: what it has, and what to do. `names`:
    of the columns; `error`: what the core said, and the column's index.
    """
    what, index = error.args
    column = batch.column(index)
    if pat.is_decimal(column.type):
        what = "a decimal of more digits than its type says: cast the column to as many"
    return SourceError(f"column {names[index]!r} has {what}")


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`, by name."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            if batch.schema.names.count(field.name) > 1:
                raise SourceError(f"column {field.name!r} appears more than once in the source")
            raise SourceError(
                f"the source has no column {field.name!r}; it has "
                f"{', '.join(map(repr, batch.schema.names)) or 'none'}"
            )
        columns.append(_conform_column(batch.column(index), field))
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([pa.field(f.name, c.type) for f, c in zip(schema, columns, strict=True)])
    )


def _conform_column(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type.equals(field.type):
        return array
    array = typed(array, field.type)
    if not same_values(array.type, field.type):
        raise SourceError(
            f"column {field.name!r}: expected {field.type}, got {array.type}; "
            f"{cast_advice(array.type, field.type)}"
        )
    try:
        return cast_column(array, field.type)
    except pa.ArrowInvalid as error:
        if "declared without nulls" not in str(error):
            raise  # it may fit in smaller batches
        raise SourceError(f"column {field.name!r}: {error}") from error
