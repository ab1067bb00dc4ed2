"""Rows in the order of a stream, compared across micro-batches: column by column, null first, NaN last."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

Bools = npt.NDArray[np.bool_]


def precede(rows: pa.RecordBatch, row: pa.RecordBatch) -> Bools:
    """Which rows come before one: True per such row. Both have the columns that order, and no others."""
    less = np.zeros(rows.num_rows, dtype=np.bool_)
    equal = np.ones(rows.num_rows, dtype=np.bool_)
    for column, value in zip(rows.columns, row.columns, strict=True):
        before, same = _compared(column, value[0])
        less |= equal & before
        equal &= same
    return less


def _compared(column: pa.Array, value: pa.Scalar) -> tuple[Bools, Bools]:
    nulls, none = _bools(pc.is_null(column)), np.zeros(len(column), dtype=np.bool_)
    if not value.is_valid:
        return none, nulls
    nans = _bools(pc.is_nan(column)) if pat.is_floating(column.type) else none
    if pat.is_floating(value.type) and np.isnan(value.as_py()):
        return ~nans, nans
    if _alike(column.type, value.type):
        return nulls | _bools(pc.less(column, value)), _bools(pc.equal(column, value))
    # Arrow takes both to one type, which may not hold them: an error, or another order
    wanted, before, same = _exact(value.as_py()), nulls.copy(), np.zeros_like(nulls)
    plain = ~(nulls | nans)
    numbers = [_exact(number) for number in column.filter(pa.array(plain)).to_pylist()]
    before[plain] = [number < wanted for number in numbers]
    same[plain] = [number == wanted for number in numbers]
    return before, same


def _alike(a: pa.DataType, b: pa.DataType) -> bool:
    """Arrow compares values of these types by what they are."""
    if a == b or kind(a) != "number":
        return True
    return any(is_one(a) and is_one(b) for is_one in (pat.is_signed_integer, pat.is_floating))


def _exact(number: int | float | Decimal) -> int | Decimal:
    """A number as Python compares it with any other, whatever a decimal context traps."""
    return Decimal.from_float(number) if isinstance(number, float) else number


def _bools(found: pa.Array) -> Bools:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows by these columns, ascending; rows that are equal in them stay as they stand."""
    keys: list[tuple[str, str]] = []
    more: dict[str, Any] = {}
    for number, name in enumerate(names):
        column = rows.column(name)
        if column.null_count:  # Arrow puts null last, and NaN beside it
            more[f"valid{number}"] = pc.is_valid(column)
            keys.append((f"valid{number}", "ascending"))
        more[f"key{number}"] = column
        keys.append((f"key{number}", "ascending"))
    if not keys or not rows.num_rows:
        return rows
    return rows.take(pc.sort_indices(pa.table(more), sort_keys=keys))


def kind(type_: pa.DataType) -> str:
    """What values of a type can be compared with: numbers with numbers, instants with instants."""
    if pat.is_integer(type_) or pat.is_floating(type_) or pat.is_decimal(type_):
        return "number"
    if pat.is_timestamp(type_):  # in Spark all have microseconds
        return "wall clock" if type_.tz is None else "instant"
    for name in ("string", "binary"):
        if str(type_).removeprefix("large_").removesuffix("_view") == name:
            return name
    return str(type_)


def packed(row: pa.RecordBatch) -> str:
    """One row as text, for a manifest."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, row.schema) as writer:
        writer.write_batch(row)
    return base64.b64encode(out.getvalue().to_pybytes()).decode("ascii")


def unpacked(text: str) -> pa.RecordBatch:
    """The row that `packed` was given."""
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_next_batch()
