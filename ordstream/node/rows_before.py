"""What a position remembers of the rows in front of it: a table's position is a number of rows, which the
rest of the data, or other data, has as well. Digests of the last rows tell them apart.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

#: So many rows in front of the position, of so many columns.
ROWS, COLUMNS = 4, 8
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def digests(batches: Sequence[pa.RecordBatch], count: int) -> dict[str, str]:
    """Column -> digest of its last values in the first `count` rows; of columns without parts, the first
    few. By value: neither the cut into batches nor an encoding changes it.
    """
    last = _last(batches, count)
    found: dict[str, str] = {}
    names = last[0].schema.names if last else []
    for index, name in enumerate(names):
        if len(found) == COLUMNS:
            break
        values: list[Any] = []
        try:
            for batch in last:
                values += _plain(batch.column(index))
        except (pa.ArrowException, ValueError, OverflowError):  # a type without a plain value
            continue
        if names.count(name) == 1:
            found[name] = f"{zlib.crc32(repr(values).encode()):08x}"
    return found


def other_column(told: Mapping[str, str], batches: Sequence[pa.RecordBatch], count: int) -> str | None:
    """A column that had other values in front of the position; None: as far as can be seen they are the
    same rows.
    """
    found = digests(batches, count)
    return next((name for name, one in told.items() if found.get(name, one) != one), None)


def _last(batches: Sequence[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """The last rows of the first `count`."""
    found: list[pa.RecordBatch] = []
    first, begin = 0, max(count - ROWS, 0)
    for batch in batches:
        behind = first + batch.num_rows
        if behind > begin and first < count:
            start = max(begin - first, 0)
            found.append(batch.slice(start, min(behind, count) - first - start))
        first = behind
    return found


def _plain(column: pa.Array) -> list[Any]:
    """Values whose `repr` is the same wherever they are read."""
    type_ = column.type
    if pat.is_dictionary(type_):
        return _plain(column.dictionary_decode())
    if pat.is_timestamp(type_) or pat.is_duration(type_) or pat.is_time(type_) or pat.is_date64(type_):
        unit = _NANOSECONDS[getattr(type_, "unit", "ms")]
        narrow = pa.int32() if pat.is_time32(type_) else pa.int64()
        return [None if value is None else value * unit for value in column.cast(narrow).to_pylist()]
    if pat.is_date32(type_):
        return list(column.cast(pa.int32()).to_pylist())
    if pat.is_string(type_) or pat.is_large_string(type_) or pat.is_string_view(type_):
        # as bytes: nothing says that they are text before the run looks at them
        return list(column.cast(pa.large_binary()).to_pylist())
    if pat.is_decimal(type_):
        return [None if value is None else str(value) for value in column.to_pylist()]
    if pat.is_integer(type_) or pat.is_floating(type_) or pat.is_boolean(type_) or pat.is_binary(type_):
        return list(column.to_pylist())
    if pat.is_large_binary(type_) or pat.is_binary_view(type_):
        return list(column.to_pylist())
    raise ValueError(type_)
