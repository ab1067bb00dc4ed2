"""What stands in data frames of pandas, Polars and Spark that their export to Arrow gets wrong. No library
is imported: a frame of one that is not loaded can't be here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ordstream.errors import OrdstreamError, SchemaError
from ordstream.ground.nested_cast import align
from ordstream.ground.spark_types import is_sparks, schema_of_spark


def readable(data: Any, where: str, error: type[OrdstreamError]) -> Any:
    """Data whose export to Arrow has its columns: the same object, but for frames of pandas with an index
    without a name, and of Spark.

    Parameters
    ----------
    data : Any
        Anything that can be exported to Arrow.
    where : str
        In front of error texts.
    error : class of OrdstreamError

    Raises
    ------
    OrdstreamError
        Of the kind `error`: a column whose values can't be had, or two of one name.
    """
    if is_spark_frame(data):
        return _of_spark(data, where, error)
    if _is_frame(data, "pandas"):
        if not data.columns.is_unique:
            repeated = [*dict.fromkeys(data.columns[data.columns.duplicated()])]
            raise error(f"{where}duplicate column name(s) {', '.join(map(repr, repeated))}")
        return _of_pandas(data)
    if _is_frame(data, "polars"):
        check_polars(data.schema, where, error)
    return data


def is_spark_frame(data: Any) -> bool:
    """Whether it is a DataFrame of PySpark, classic or Connect, that gives its rows as a table."""
    return is_sparks(data) and hasattr(type(data), "toArrow")


def check_polars(schema: Any, where: str, error: type[OrdstreamError]) -> None:
    """Raise `error` where a schema of Polars' has objects of Python's: what is exported is where they lie in
    memory.

    Parameters
    ----------
    schema : Any
        Another than one of Polars' is not looked at.
    where : str
        In front of the text.
    error : class of OrdstreamError
    """
    if type(schema).__module__.partition(".")[0] != "polars" or not hasattr(schema, "items"):
        return
    for name, kind in schema.items():
        # a type without parameters is also written as its class
        kinds = (part if isinstance(part, type) else type(part) for part in _parts(kind))
        if any(one.__name__ == "Object" for one in kinds):
            raise error(
                f"{where}column {name!r} is an Object of Polars, which has no values outside of it: make it "
                f"a column of a type (frame.with_columns(pl.Series({name!r}, values, dtype))), or leave it "
                f"out (frame.drop({name!r}))"
            )


def _parts(kind: Any) -> Iterator[Any]:
    """A type of Polars', and those inside of it."""
    yield kind
    inner = [getattr(kind, "inner", None), *(one.dtype for one in getattr(kind, "fields", None) or ())]
    for part in inner:
        if part is not None:
            yield from _parts(part)


def _is_frame(data: Any, library: str) -> bool:
    return any(
        one.__name__ == "DataFrame" and one.__module__.partition(".")[0] == library
        for one in type(data).__mro__
    )


def _of_pandas(frame: Any) -> Any:
    """Without the levels of the index that are labels of rows: those without a name, left by a filter, say,
    and those that a column is called as. An export makes columns `__index_level_0__` of them. Other levels
    are columns.
    """
    index = frame.index
    labels = [level for level, name in enumerate(index.names) if name is None or name in frame.columns]
    if type(index).__name__ == "RangeIndex":  # which is exported as a note beside the columns
        if index.name is None:
            return frame
    elif not labels:
        return frame
    kept = frame.copy(deep=False)
    if type(index).__name__ == "RangeIndex" and not labels:
        kept[index.name] = index.to_numpy()
    kept.index = index.droplevel(labels) if 0 < len(labels) < index.nlevels else range(len(frame))
    return kept


def _of_spark(frame: Any, where: str, error: type[OrdstreamError]) -> pa.Table:
    """All rows, in the types that `schema_of_spark` says: PySpark gives instants in UTC, not in the
    session's time zone, and its export as a stream fails at them.
    """
    if frame.isStreaming:
        raise error(f"{where}a streaming DataFrame of Spark goes to od.spark.stream(pipeline, df, ...)")
    try:
        schema = schema_of_spark(frame, where.rstrip(": "))
    except SchemaError as failure:
        raise error(f"{where}{failure}") from failure
    try:
        table: pa.Table = frame.toArrow()
    except pa.ArrowException:
        # of Spark Connect it ends in a cast that refuses null structs whose fields have no nulls
        if not hasattr(type(frame), "_to_table"):
            raise
        table = frame._to_table()[0]
    if table.schema.equals(schema):
        return table
    # not Arrow's own cast: it takes the null of a null struct for one of a field without nulls
    return pa.Table.from_batches([align(batch, schema) for batch in table.to_batches()], schema)
