"""A Spark DataFrame's or StructType's schema as Arrow's. PySpark is asked only about objects of its own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError

CARRIED = (
    "a pipeline carries numbers, decimals, booleans, texts, bytes, dates, times, and arrays of these but "
    "texts, bytes and decimals"
)


def is_sparks(given: Any) -> bool:
    """Whether an object is one of PySpark's, or of a class derived from one."""
    return any(one.__module__.partition(".")[0] == "pyspark" for one in type(given).__mro__)


def schema_of_spark(given: Any, where: str) -> pa.Schema:
    """The columns of a Spark DataFrame, or of its schema, in the types in which Spark hands them over.

    Parameters
    ----------
    given : pyspark.sql.DataFrame or StructType
        A timestamp of Spark's is an instant: it gets the time zone of the frame's session, which is that in
        which Spark's functions read it; with a StructType that of the active session, UTC without one.
    where : str
        For error texts.

    Raises
    ------
    SchemaError
        For another object of PySpark's, or a column that no pipeline carries; says which and what to do.
    """
    from pyspark.sql.types import StructType

    session = getattr(given, "sparkSession", None)
    struct = given if session is None else given.schema
    if not isinstance(struct, StructType):
        raise SchemaError(
            f"{where}: expected a schema, a Spark DataFrame or its schema, got {type(given).__name__}"
        )
    zone = _zone(session)
    return pa.schema([arrow_field(field, zone) for field in struct.fields])


def arrow_field(field: Any, zone: str) -> pa.Field:
    """A StructField as an Arrow field, timestamps in this zone.

    Raises
    ------
    SchemaError
        No pipeline carries it.
    """
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import CharType, StringType, VarcharType

    given = StringType() if isinstance(field.dataType, CharType | VarcharType) else field.dataType
    try:
        kind = to_arrow_type(given, timezone=zone)
    except Exception as error:  # PySpark raises several kinds of its own
        raise SchemaError(not_carried(field)) from error
    element = kind.value_type if pat.is_list(kind) else kind
    if pat.is_nested(element) or pat.is_null(element) or (kind is not element and not _in_lists(element)):
        raise SchemaError(not_carried(field))
    return pa.field(field.name, kind, field.nullable)


def not_carried(field: Any) -> str:
    """What to say of a column that no pipeline carries: what it is, and what to do."""
    name, kind = field.name, field.dataType.typeName()
    take_apart = {
        "struct": f"; take it apart (df.select('*', '{name}.*')) or",
        "array": f"; take it apart (F.explode('{name}')), write it as text (F.to_json('{name}')) or",
        "map": f"; take it apart (F.explode('{name}')), write it as text (F.to_json('{name}')) or",
        "void": f"; give it a type (F.col('{name}').cast('string')) or",
    }.get(kind, ";")
    return (
        f"column {name!r} is {field.dataType.simpleString():.80} in Spark, and {CARRIED}{take_apart} leave "
        f"it out (df.drop('{name}'))"
    )


def _in_lists(element: pa.DataType) -> bool:
    return bool(pat.is_primitive(element) and not pat.is_decimal(element))


def _zone(session: Any) -> str:
    if session is None:
        from pyspark.sql import SparkSession

        try:
            session = SparkSession.getActiveSession()
        except Exception:  # Spark Connect's client alone
            session = None
    return "UTC" if session is None else str(session.conf.get("spark.sql.session.timeZone"))
