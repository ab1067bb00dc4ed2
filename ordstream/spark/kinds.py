"""Which Arrow types are of a kind: a column of the one is read as the other, its values checked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.packed_types import is_any_list
from ordstream.ground.types import is_binary, is_string, is_temporal


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are read as another. Not texts as numbers: Arrow would make the number 1 of
    the text "01" without a word. Of structs the fields have the same names, in the same order.
    """
    given, wanted = _bare(given), _bare(wanted)
    if pat.is_null(given):
        return True
    if pat.is_struct(given) and pat.is_struct(wanted):
        same = [one.name for one in given] == [one.name for one in wanted]
        return same and all(fits(a.type, b.type) for a, b in zip(given, wanted, strict=True))
    if pat.is_map(given) and pat.is_map(wanted):
        return fits(given.key_type, wanted.key_type) and fits(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return fits(given.value_type, wanted.value_type)
    return bool(not pat.is_nested(given) and not pat.is_nested(wanted) and _kind(given) == _kind(wanted))


def _bare(type_: pa.DataType) -> pa.DataType:
    """What values of a type are: without a dictionary, or the name that an extension gives them."""
    if pat.is_dictionary(type_):
        return _bare(type_.value_type)
    return _bare(type_.storage_type) if isinstance(type_, pa.BaseExtensionType) else type_


def _is_list(type_: pa.DataType) -> bool:
    return is_any_list(type_) or bool(pat.is_fixed_size_list(type_))


def _kind(type_: pa.DataType) -> str:
    if is_string(type_) or is_binary(type_) or pat.is_fixed_size_binary(type_):
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
