"""The side table of `Expr.lookup`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.types import INT64_MAX


@dataclass(frozen=True, eq=False)
class DenseTable:
    """The side table of a lookup: int64 or float64 values, and which of them are valid (None: all)."""

    values: np.ndarray[Any, Any]
    valid: np.ndarray[Any, Any] | None


def dense_table(table: Any) -> DenseTable:
    """A copy of a table that a user gave. SchemaError where it is none of numbers."""
    valid: np.ndarray[Any, Any] | None = None
    if isinstance(table, Mapping):
        raise SchemaError(
            "lookup needs a one-dimensional table of integers or floats, got a mapping: its keys and values "
            "are two columns, pipeline.join_lookup(pa.table({'x': list(d), 'y': list(d.values())}), on='x')"
        )
    if isinstance(table, pa.ChunkedArray):
        table = table.combine_chunks()
    if isinstance(table, pa.Array):
        if not (pat.is_integer(table.type) or pat.is_floating(table.type)):
            raise SchemaError(f"lookup needs a table of integers or floats, got {table.type}")
        if table.null_count:
            valid = np.array(table.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
            table = table.fill_null(0)
        table = table.to_numpy(zero_copy_only=False)
    try:
        array = np.asarray(table)
    except (TypeError, ValueError) as error:  # rows of several lengths, columns of several types
        raise SchemaError(f"lookup needs a one-dimensional table of integers or floats: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        kind = f"{array.ndim}-dimensional, {array.dtype}"
        raise SchemaError(f"lookup needs a one-dimensional table of integers or floats, got {kind}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > INT64_MAX:
        raise SchemaError("lookup: a value of the table does not fit into int64")
    values = np.array(array, dtype=np.float64 if array.dtype.kind == "f" else np.int64)
    values.flags.writeable = False
    return DenseTable(values, valid)
