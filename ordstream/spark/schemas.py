"""Spark's schema of a pipeline's output."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ordstream.errors import SchemaError

_WIDER = {  # Arrow types that Spark has not, and what they become in the result
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


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
