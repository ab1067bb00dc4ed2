"""Which Arrow types are of a kind: a column of the one is read as the other, its values checked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.types import is_binary, is_list, is_string, is_temporal


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are read as another. Not texts as numbers: Arrow would make the number 1 of
    the text "01" without a word.
    """
    given, wanted = (one.value_type if pat.is_dictionary(one) else one for one in (given, wanted))
    if is_list(given) or is_list(wanted):
        return is_list(given) and is_list(wanted) and fits(given.value_type, wanted.value_type)
    return bool(pat.is_null(given) or _kind(given) == _kind(wanted))


def _kind(type_: pa.DataType) -> str:
    if is_string(type_) or is_binary(type_) or pat.is_binary_view(type_):
        return "bytes"
    # a time may be read as the count of its unit, and a count as a time
    if is_temporal(type_) or pat.is_integer(type_) or pat.is_floating(type_) or pat.is_decimal(type_):
        return "number"
    return str(type_)


def not_read(column: pa.Field, given: str, *, in_frame: bool = False) -> str:
    """What to say where a column can't be read as the pipeline's."""
    name, where = column.name, "is" if in_frame else "arrives as"
    return (
        f"column {name!r} {where} {given}, and the pipeline reads {column.type}: cast it in Spark first "
        f"(df.withColumn({name!r}, F.col({name!r}).cast(...))), or give the pipeline the frame's types "
        "(od.Pipeline(df))"
    )
