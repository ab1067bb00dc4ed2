"""Spark's types and a pipeline's: what a column of a frame can be read as, and the schema of the output."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, NullType, StringType, StructField, StructType

from ordstream.errors import SchemaError
from ordstream.ground.spark_types import arrow_field, not_carried
from ordstream.plan.columns import passed_source_columns
from ordstream.plan.plan import Plan
from ordstream.spark.kinds import fits, not_read

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


# ------------------------------------------------------------------------------- what comes in


def check_reads(given: StructField, column: pa.Field) -> None:
    """Raise SchemaError where a frame's column is of a kind (number, time, text, ...) that the pipeline's is
    not, or of none.
    """
    if isinstance(given.dataType, NullType):
        return
    try:
        kind = arrow_field(given, "UTC").type
    except SchemaError as error:
        raise SchemaError(not_carried(given)) from error
    if not fits(kind, column.type):
        raise SchemaError(not_read(column, given.dataType.simpleString(), in_frame=True))


# ------------------------------------------------------------------------------- collations


def is_collated(kind: DataType) -> bool:
    """A string of which Spark compares other things than its bytes."""
    return isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()


def check_compared(given: StructField) -> None:
    """Raise SchemaError for a string with a collation, which a node would compare by its bytes."""
    if is_collated(given.dataType):
        name, collation = given.name, given.dataType.collation  # type: ignore[attr-defined]
        raise SchemaError(
            f"column {name!r} has the collation {collation}, and the pipeline compares texts by their "
            f"bytes: decide in Spark what is equal, with df.withColumn('{name}', F.collate('{name}', "
            f"'UTF8_BINARY')), or F.lower(...) of that"
        )


def with_collations(frame: DataFrame, kinds: Sequence[DataType], plan: Plan) -> DataFrame:
    """A result whose columns have the collations of those of the source that they are.

    Parameters
    ----------
    frame : DataFrame
        Its first columns are the plan's output.
    kinds : sequence of DataType
        Of the source's columns, as the user has them.
    plan : Plan
    """
    if not any(map(is_collated, kinds)):
        return frame
    passed = {out: kinds[column] for out, column in passed_source_columns(plan).items()}
    columns = frame.columns
    names = [f"d{number}" for number in range(len(columns))]
    collated = [
        F.collate(F.col(name), passed[number].collation)  # type: ignore[attr-defined]
        if is_collated(passed.get(number, StringType()))
        else F.col(name)
        for number, name in enumerate(names)
    ]
    return frame.toDF(*names).select(*collated).toDF(*columns)
