"""A Spark DataFrame's or StructType's schema as Arrow's. PySpark is asked only about objects of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ordstream.errors import SchemaError
from ordstream.ground.depth import DEEPEST

CARRIED = (
    "a pipeline carries all types of Spark's but variants, intervals of months, geometries, geographies and "
    f"structs with two fields of one name, to {DEEPEST} levels"
)

_TEXT = "write it as text (F.to_json('{name}'))"
_NUMBER = "write it as a number (F.col('{name}').cast('int'))"
# A zone that is so far from UTC. Arrow has none of seconds.
_OFFSET = re.compile(r"(UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(:?(?P<minutes>\d{1,2}))?(:?00)?")
# Java's short names, where they are no names of the time zone database.
_SHORT_ZONES = {
    "Z": "UTC", "UT": "UTC",
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
# What to do with a column of a type that does not pass.
_INSTEAD = {
    "variant": _TEXT,
    "interval": "write it as text (F.col('{name}').cast('string'))",
    "yearmonthinterval": _NUMBER,
    "geometry": "write it as bytes (F.st_asbinary('{name}'))",
    "geography": "write it as bytes (F.st_asbinary('{name}'))",
}


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

    if hasattr(type(given), "to_spark"):  # a frame of Spark Connect has any attribute: a column of that name
        raise SchemaError(f"{where}: for a frame of pandas on Spark give df.to_spark()")
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

    if _not_carried(field) is not None:
        raise SchemaError(not_carried(field))
    try:
        kind = to_arrow_type(_bare(field.dataType), timezone=zone)
    except Exception as error:  # PySpark raises several kinds of its own
        raise SchemaError(not_carried(field)) from error
    return pa.field(field.name, kind, field.nullable or _has_no_type(field.dataType))


def not_carried(field: Any) -> str:
    """What to say of a column that no pipeline carries: what it is, and what to do.

    Parameters
    ----------
    field : pyspark.sql.types.StructField

    Returns
    -------
    str
    """
    name, found = field.name, _not_carried(field)
    what, kind = ("", field.dataType) if found is None else found
    instead = ""
    if kind is field.dataType:
        instead = _INSTEAD.get(_kind_name(kind), "").format(name=name)
    elif _is_struct(field.dataType):
        instead = f"take it apart (df.select('*', '{name}.*'))"
    return (
        f"column {name!r} is {field.dataType.simpleString():.80} in Spark{what}; {CARRIED}: "
        f"{instead}{' or ' if instead else ''}leave it out (df.drop('{name}'))"
    )


def _is_struct(kind: Any) -> bool:
    return bool(kind.typeName() == "struct")


def _not_carried(field: Any) -> tuple[str, Any] | None:
    """Of a column the part that does not pass: what to say of it, and its type; None: all of it passes."""
    kind = field.dataType
    for depth, part in parts(kind):
        if depth > DEEPEST:
            return f", with more than {DEEPEST} levels", part
        if _kind_name(part) in _INSTEAD:
            return ("" if part is kind else f", with {part.simpleString()} inside"), part
        if part.typeName() == "map" and _has_no_type(part.keyType):
            return ", with keys of no type", part
        names = part.names if _is_struct(part) else []
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            return f", with two fields {twice!r} in one struct", part
    return None


def _kind_name(kind: Any) -> str:
    """Of a type of Spark's, one word that holds for all of its kind."""
    return str(kind.typeName() if type(kind).__name__ != "YearMonthIntervalType" else "yearmonthinterval")


def parts(kind: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """A type of Spark's and all that lie in it, from outside, with how deep each lies.

    Parameters
    ----------
    kind : pyspark.sql.types.DataType
    depth : int
        Of `kind` itself.

    Yields
    ------
    (int, pyspark.sql.types.DataType)
        What lies deeper than a pipeline's types may be is left out.
    """
    yield depth, kind
    if depth <= DEEPEST:
        further = 2 if kind.typeName() == "map" else 1
        for part in _inside(kind):
            yield from parts(part, depth + further)


def _inside(kind: Any) -> list[Any]:
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    if isinstance(kind, UserDefinedType):  # passes as what it is stored as
        return [kind.sqlType()]
    if isinstance(kind, ArrayType):
        return [kind.elementType]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return [field.dataType for field in kind.fields] if isinstance(kind, StructType) else []


def _bare(kind: Any) -> Any:
    """A type of Spark's without what Arrow's has no word for: lengths of texts, metadata of fields."""
    from pyspark.sql.types import (
        ArrayType,
        CharType,
        MapType,
        StringType,
        StructField,
        StructType,
        UserDefinedType,
        VarcharType,
    )

    if isinstance(kind, CharType | VarcharType):
        return StringType()
    if isinstance(kind, UserDefinedType):
        return _bare(kind.sqlType())
    if isinstance(kind, ArrayType):
        return ArrayType(_bare(kind.elementType), kind.containsNull or _has_no_type(kind.elementType))
    if isinstance(kind, MapType):
        with_nulls = kind.valueContainsNull or _has_no_type(kind.valueType)
        return MapType(_bare(kind.keyType), _bare(kind.valueType), with_nulls)
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(one.name, _bare(one.dataType), one.nullable or _has_no_type(one.dataType))
                for one in kind.fields
            ]
        )
    return kind


def _has_no_type(kind: Any) -> bool:
    """Whether there are nothing but nulls of it, so that Arrow lets nobody say that there are none."""
    return bool(kind.typeName() == "void")


def _zone(session: Any) -> str:
    if session is None:
        from pyspark.sql import SparkSession

        try:
            # not `getActiveSession`: of another thread, or behind Ctrl-C, that is none
            session = SparkSession.active()
        except Exception:  # there is none; Spark Connect's client alone
            return "UTC"
    return arrow_zone(str(session.conf.get("spark.sql.session.timeZone")))


def arrow_zone(zone: str) -> str:
    """The name that Arrow and Python have for a time zone that Spark takes (`java.time.ZoneId.of`, with
    `SHORT_IDS`); another is given back as it is.

    Parameters
    ----------
    zone : str
        Such as "-8", "GMT+8", "UTC+03:00" or "PST".
    """
    if zone in _SHORT_ZONES:
        return _SHORT_ZONES[zone]
    found = _OFFSET.fullmatch(zone)
    if found is None:
        return zone
    sign, hours, minutes = found["sign"], int(found["hours"]), int(found["minutes"] or 0)
    return f"{sign}{hours:02d}:{minutes:02d}" if hours or minutes else "UTC"
