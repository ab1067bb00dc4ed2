"""Tables and data frames of other libraries, taken over by Arrow's interface, and what is said where Arrow
refuses one: a column of a type that only its library knows, such as Polars' Int128.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ordstream.errors import OrdstreamError, SchemaError
from ordstream.ground.frames import check_polars, readable

#: What to do with what `is_lazy`.
COLLECT = "a lazy frame must be collected first"
#: What Arrow raises for a column; the last for an integer of over 64 bits among pandas' objects.
_OF_ARROW = (pa.ArrowException, OverflowError)
_REFUSALS = (*_OF_ARROW, ValueError, TypeError)


def imported(data: Any, where: str, error: type[OrdstreamError]) -> pa.RecordBatchReader:
    """What gives the data's batches.

    Raises
    ------
    OrdstreamError
        Of the kind `error`: Arrow refuses the data. What else fails in making them is raised as it is.
    """
    data = readable(data, f"{where}{type(data).__name__}: ", error)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except _OF_ARROW as failure:
        raise error(f"{where}{_refused(data, failure)}") from failure


def has_schema(data: Any) -> bool:
    """Whether it tells of its columns in Arrow's way: a table, a data frame, a dataset, a reader."""
    exports = hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")
    return exports or (not is_lazy(data) and isinstance(getattr(data, "schema", None), pa.Schema))


def is_lazy(data: Any) -> bool:
    """Whether it is a frame that is not computed yet, and none of Spark's, which are for `od.spark`."""
    known = hasattr(data, "__arrow_c_stream__") or hasattr(data, "sparkSession")
    return hasattr(data, "collect") and not known


def instead_of(given: Any) -> str:
    """What has columns in place of something that tells of none, with a separator in front; else empty."""
    if is_lazy(given):
        return f": {COLLECT}"
    if advice := _of_rows(given):
        return f"; {advice}"
    if isinstance(given, str | os.PathLike):
        return "; files of Parquet are od.ParquetSource(paths)"
    if getattr(getattr(given, "dtype", None), "names", None):
        return "; a record array becomes a table by pyarrow.Table.from_pandas(pandas.DataFrame(array))"
    return "; a column becomes a table by .to_frame()" if hasattr(given, "to_frame") else ""


#: What makes a table of rows, by what a row is.
_ROWS = (
    (Mapping, "rows in dicts become a table by pyarrow.Table.from_pylist(rows)"),
    (
        tuple | list,
        "rows in tuples become a table by "
        "pyarrow.Table.from_pylist([dict(zip(names, row)) for row in rows])",
    ),
)


def rows_advice(row: Any) -> str:
    """How rows become a table, if what is given is one; else empty."""
    return next((advice for kind, advice in _ROWS if isinstance(row, kind)), "")


def _of_rows(given: Any) -> str:
    """The same of a list of rows. It is looked at where columns are wanted, which may be given as pairs."""
    return rows_advice(given[0]) if isinstance(given, list | tuple) and given else ""


def schema_alone(given: Any, where: str) -> pa.Schema:
    """Of what has columns and no rows, such as a schema of Polars'.

    Raises
    ------
    SchemaError
        A column of Python's objects.
    pyarrow.ArrowException
        Arrow refuses a type.
    """
    check_polars(given, f"{where}: ", SchemaError)
    return pa.schema(given)


def schema_of_data(data: Any, where: str) -> pa.Schema:
    """Of a table or data frame: what it says itself, or what its export has; a stream is not read.

    Raises
    ------
    SchemaError
        It has no columns, or Arrow refuses them.
    """
    own = getattr(data, "schema", None)
    says = hasattr(own, "__arrow_c_schema__")
    if not says and not hasattr(data, "__arrow_c_stream__"):
        raise SchemaError(f"{where}, got {type(data).__name__}, which has no columns")
    data = readable(data, f"{where}, got {type(data).__name__}: ", SchemaError)
    try:
        return pa.schema(own) if says else pa.RecordBatchReader.from_stream(data).schema
    except _REFUSALS as failure:
        raise SchemaError(f"{where}, got {_refused(data, failure)}") from failure


def _refused(data: Any, failure: Exception) -> str:
    """What Arrow refuses, with the column if it can be found, and what to do."""
    text = f"{type(data).__name__}, which Arrow refuses: {failure}"
    name = None if "column" in str(failure).lower() else _refused_column(data)
    return text if name is None else f"{text}: column {name!r}; cast it, or leave it out"


def _refused_column(data: Any) -> str | None:
    """The first column of a data frame that is refused by itself."""
    for name in getattr(data, "columns", ()):
        try:
            pa.RecordBatchReader.from_stream(data[[name]])
        except _OF_ARROW:
            return str(name)
        except Exception:
            return None
    return None
