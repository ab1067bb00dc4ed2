"""Spark's types and a pipeline's: what a column of a frame can be read as, and the schema of the output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from ordstream.errors import SchemaError, shown
from ordstream.ground.packed_types import is_any_list
from ordstream.ground.spark_types import arrow_field, not_carried, parts
from ordstream.ground.types import is_binary, is_string, is_temporal
from ordstream.plan.columns import told_source_columns
from ordstream.plan.plan import Plan
from ordstream.spark.kinds import fits, not_read

_WIDER = {  # Arrow types that Spark has not, and what they become in the result
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"  # metadata of a text that is a char(n) or varchar(n)
DIGITS = 38  # of a decimal of Spark's, at most


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a pipeline's output, `schema`; unsigned integers and half floats
    become the next wider type, at any depth, and extension types what they are stored as.

    Raises
    ------
    SchemaError
        If it is no schema of pyarrow, or a column has a type that Spark has not.
    """
    given: Any = schema
    if not isinstance(given, pa.Schema):
        what = "spark_schema takes a pyarrow.Schema, such as pipeline.schema"
        raise SchemaError(f"{what}, got {shown(given)}")
    fields = []
    for column in schema:
        kind = _rebuilt(column.type, _in_spark, column)
        try:
            fields += from_arrow_schema(pa.schema([pa.field(column.name, kind, column.nullable)])).fields
        except Exception as error:  # pyspark raises several kinds of its own
            raise _not_in_spark(column) from error
    return StructType(fields)


def check_in_files(columns: Iterable[pa.Field], what: str) -> None:
    """Raise SchemaError for a column that Parquet files can't hold: of no type, or a struct without fields.
    `what`: which rows they are.
    """
    for column in columns:
        bare = next((one for one in _levels(column.type) if _is_bare(one)), None)
        if bare is not None:
            name = column.name
            text = "a part of no type" if pat.is_null(bare) else "a struct without fields in it"
            if bare is column.type:
                text = "no type" if pat.is_null(bare) else "no fields"
            raise SchemaError(
                f"{what}: column {name!r} has {text}, which Spark reads from no Parquet file; give it "
                "a type, or leave it out"
            )


def _is_bare(type_: pa.DataType) -> bool:
    return bool(pat.is_null(type_) or (pat.is_struct(type_) and not type_.num_fields))


def _levels(type_: pa.DataType) -> Iterator[pa.DataType]:
    """A type and all that lie in it."""
    yield type_
    if pat.is_nested(type_):
        for at in range(type_.num_fields):
            yield from _levels(type_.field(at).type)


def carrier(type_: pa.DataType, name: str) -> pa.DataType:
    """A type that Spark has, to and from which casts lose nothing: what a column of this type is between two
    fragments. Dates and times go as counts of their unit.

    Raises
    ------
    SchemaError
        There is none; names the column.
    """
    return _rebuilt(type_, _counted, pa.field(name, type_))


def _rebuilt(
    type_: pa.DataType, plain: Callable[[pa.DataType], pa.DataType], column: pa.Field
) -> pa.DataType:
    """A column's type, or one inside it, with `plain` of all that has no parts."""

    def inside(field: pa.Field) -> pa.Field:
        return pa.field(field.name, _rebuilt(field.type, plain, column), field.nullable)

    if pat.is_dictionary(type_):
        return _rebuilt(type_.value_type, plain, column)
    if isinstance(type_, pa.BaseExtensionType):
        return _rebuilt(type_.storage_type, plain, column)
    if pat.is_struct(type_):
        names = [field.name for field in type_]
        if len(set(names)) < len(names):
            raise _not_in_spark(column, ": it has two fields of one name in a struct")
        return pa.struct([inside(field) for field in type_])
    if pat.is_map(type_):
        return pa.map_(inside(type_.key_field), inside(type_.item_field))
    if is_any_list(type_) or pat.is_fixed_size_list(type_):
        return pa.list_(inside(type_.value_field))
    odd = pat.is_decimal(type_) and not (0 <= type_.scale <= type_.precision <= DIGITS)
    if odd or pat.is_interval(type_):
        raise _not_in_spark(column)
    return plain(type_)


def _in_spark(type_: pa.DataType) -> pa.DataType:
    return _WIDER.get(type_, type_)


def _counted(type_: pa.DataType) -> pa.DataType:
    if is_temporal(type_):
        return pa.int64() if type_.bit_width == 64 else pa.int32()
    if is_string(type_):
        return pa.string()
    if is_binary(type_) or pat.is_fixed_size_binary(type_):
        return pa.binary()
    return _in_spark(type_)


def _not_in_spark(column: pa.Field, why: str = "") -> SchemaError:
    kind = f"{column.type!s:.200}"
    return SchemaError(f"column {column.name!r} has type {kind}, which Spark can't carry{why}")


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
    """Whether there is a string, or one inside, of which Spark compares other things than its bytes."""
    return _collation(kind) is not None


def _collation(kind: DataType) -> str | None:
    texts = (part for _, part in parts(kind) if isinstance(part, StringType))
    return next((one.collation for one in texts if not one.isUTF8BinaryCollation()), None)


def check_compared(given: StructField) -> None:
    """Raise SchemaError for a string with a collation, which a node would compare by its bytes."""
    collation = _collation(given.dataType)
    if collation is not None:
        name, where = given.name, "" if isinstance(given.dataType, StringType) else "texts inside with "
        plain = (
            f"F.collate('{name}', 'UTF8_BINARY')), or F.lower(...) of that"
            if not where
            else f"F.col('{name}').cast('{without_collations(given.dataType).simpleString()}'))"
        )
        raise SchemaError(
            f"column {name!r} has {where}the collation {collation}, and the pipeline compares texts by "
            f"their bytes: decide in Spark what is equal, with df.withColumn('{name}', {plain}"
        )


def without_collations(kind: DataType) -> DataType:
    """The type whose texts, at any depth, are compared by their bytes."""
    return _with_parts(kind, lambda part: StringType() if isinstance(part, StringType) else part)


def _with_parts(kind: DataType, plain: Callable[[DataType], DataType]) -> DataType:
    """A type with `plain` of all in it that has no parts."""
    if isinstance(kind, ArrayType):
        return ArrayType(_with_parts(kind.elementType, plain), kind.containsNull)
    if isinstance(kind, MapType):
        key, value = _with_parts(kind.keyType, plain), _with_parts(kind.valueType, plain)
        return MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType(
            [StructField(one.name, _with_parts(one.dataType, plain), one.nullable) for one in kind.fields]
        )
    return plain(kind)


def _collated(column: Column, kind: DataType) -> Column:
    """A column whose texts get the collations of a type like its own, part by part: Spark casts none."""
    if not is_collated(kind):
        return column
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda one: _collated(one, kind.elementType))
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda one: F.struct(
                _collated(one["key"], kind.keyType).alias("key"),
                _collated(one["value"], kind.valueType).alias("value"),
            ),
        )
        return F.map_from_entries(entries)
    if isinstance(kind, StructType):
        fields = [_collated(column[one.name], one.dataType).alias(one.name) for one in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    return F.collate(column, kind.collation)  # type: ignore[attr-defined]


def with_collations(frame: DataFrame, given: Sequence[StructField], plan: Plan) -> DataFrame:
    """A result whose columns have the collations of those of the source that they are.

    Parameters
    ----------
    frame : DataFrame
        Its first columns are the plan's output.
    given : sequence of StructField
        The source's columns, as the user has them.
    plan : Plan
    """
    if not any(is_collated(one.dataType) for one in given):
        return frame
    passed = {out: given[column].dataType for out, column in told_source_columns(plan).items()}
    fields = frame.schema.fields
    names = [f"d{number}" for number in range(len(fields))]
    collated = [
        _collated(F.col(name), passed.get(number, StringType())).alias(name, metadata=one.metadata)
        for number, (name, one) in enumerate(zip(names, fields, strict=True))
    ]
    return frame.toDF(*names).select(*collated).toDF(*(one.name for one in fields))


# ------------------------------------------------------------------------------- what Spark knows


def as_in_source(own: StructType, given: Sequence[StructField], plan: Plan) -> StructType:
    """The schema of a result whose columns keep what Spark knows of those of the source that they are:
    metadata (of Spark ML: which numbers are categories), user-defined types, the unit of an interval.

    Parameters
    ----------
    own : StructType
        Its first columns are the plan's output.
    given, plan
        As for `with_collations`.
    """
    fields = list(own.fields)
    for out, column in told_source_columns(plan).items():
        one, source = fields[out], given[column]
        kind = _as_known(one.dataType, source.dataType)
        fields[out] = StructField(one.name, kind, one.nullable, _told_on(source.metadata))
    return StructType(fields)


def as_told(column: Column, name: str, own: DataType, given: StructField | None) -> Column:
    """A column of a result of this type, with what Spark knows of the one of the source that it is, if any;
    but for user-defined types, which no cast gives.
    """
    if given is None:
        return column.alias(name)
    kind = given.dataType
    kept = _collated(column, kind) if is_collated(kind) and not is_collated(own) else column
    return kept.alias(name, metadata=_told_on(given.metadata))


def _told_on(metadata: dict[str, Any]) -> dict[str, Any]:
    """What still holds of a column that has left its source; that it is a hidden one of a file does not."""
    return {key: value for key, value in metadata.items() if not key.startswith("__") or key == _LENGTH}


def _as_known(own: DataType, given: DataType) -> DataType:
    """The type of a result's column, or of a part of one, with what Spark has no Arrow type for."""
    if isinstance(given, UserDefinedType):
        same = own.simpleString() == without_collations(given.sqlType()).simpleString()
        return given if same else own
    if isinstance(given, ArrayType) and isinstance(own, ArrayType):
        return ArrayType(_as_known(own.elementType, given.elementType), own.containsNull)
    if isinstance(given, MapType) and isinstance(own, MapType):
        key, value = _as_known(own.keyType, given.keyType), _as_known(own.valueType, given.valueType)
        return MapType(key, value, own.valueContainsNull)
    if isinstance(given, StructType) and isinstance(own, StructType):
        fields = zip(own.fields, given.fields, strict=True)
        return StructType(
            [
                StructField(
                    one.name, _as_known(one.dataType, its.dataType), one.nullable, _told_on(its.metadata)
                )
                for one, its in fields
            ]
        )
    return given if isinstance(given, DayTimeIntervalType) and isinstance(own, DayTimeIntervalType) else own
