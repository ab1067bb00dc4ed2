"""Aggregations that keep values, and not a few numbers: what they mean, and what bounds their memory.

Per key, or per window, they keep: `count_distinct` each distinct value; `median` and `quantile` each value;
`collect(n)` the last n values, or all; `arg_min`, `arg_max` one value and what decides; `first`, `last`,
`min` and `max` of strings, bytes, lists and the like one value. In a window per row (`rolling`, `rows`)
all of them keep the values of the window. They are exact; in `scan` and `aggregate`, which forget nothing,
`count_distinct` and quantiles grow with the stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.bound import maximum, minimum
from ordstream.ground.packed_types import carried, is_core_list, is_packed, packed_format
from ordstream.ground.type_names import in_source
from ordstream.ground.types import (
    is_binary,
    is_string,
    is_wide,
    physical_type,
    to_python,
)
from ordstream.reference.base import sort_key

#: Always gathered.
GATHERED = frozenset({"count_distinct", "median", "quantile", "collect", "arg_min", "arg_max"})

#: Gathered where their values have their bytes apart.
OF_TEXT = frozenset({"first", "last", "min", "max"})

Item = tuple[Any, Any]


def is_apart(type_: pa.DataType | None) -> bool:
    """String, binary, list, decimal of over 18 digits, or packed type: a value has its bytes apart."""
    if type_ is None:
        return False
    plain = is_string(type_) or is_binary(type_) or is_wide(type_)
    return plain or is_core_list(type_) or is_packed(type_)


def is_gathered(function: str, text: bool) -> bool:
    """Whether an aggregation keeps values; `text`: of values with their bytes apart."""
    return function in GATHERED or (text and function in OF_TEXT)


def gathered_type(function: str, field: pa.Field, by: pa.Field | None, where: str) -> pa.DataType:
    """Type of the value of a gathered aggregation.

    Raises
    ------
    SchemaError
        It is not defined for the column.
    """
    type_ = field.type
    kept = function in ("first", "last", "arg_min", "arg_max", "collect")
    for one in (*([] if kept else [field]), *([] if by is None else [by])):
        if physical_type(one.type, one.name).vm is None:
            text = f"{where}: {function}: {one.name!r} can't be compared, it is {one.type}"
            if pat.is_null(one.type):  # of what decides: the values' own nulls are refused before
                text += f", nothing but nulls: cast it, od.col({one.name!r}).cast(pa.float64())"
            elif not pat.is_nested(one.type):
                text += in_source(one.type, compared=True)
            raise SchemaError(text)
    if function in ("median", "quantile"):
        return pa.float64()
    if function == "collect":
        return list_of(field, where)
    return pa.int64() if function == "count_distinct" else type_


def list_of(field: pa.Field, where: str) -> pa.DataType:
    """The type of a list of a column's values.

    Raises
    ------
    SchemaError
        No such list passes.
    """
    made = carried(pa.list_(field.type))
    if not (is_core_list(made) or is_packed(made)):
        raise SchemaError(
            f"{where}: {field.name!r} can't be collected: no list of {field.type} passes; keep one value "
            "with od.last, or od.arg_max"
        )
    return made


def listed_values(values: list[Any], type_: pa.DataType) -> list[Any]:
    """The storage value of a list of storage values of a type."""
    return [to_python(one, type_) for one in values] if is_packed(carried(pa.list_(type_))) else values


def element_of(type_: pa.DataType) -> tuple[str, int]:
    """How the core keeps a value of a type: a key of `ELEMENTS` (`_core/state/listed_values.pyx`), and the
    bytes of an element of a list of numbers, or of a value of fixed width, else 0.
    """
    if is_core_list(type_):
        width = 1 if pat.is_boolean(type_.value_type) else type_.value_type.bit_width // 8
        return ("bools" if pat.is_boolean(type_.value_type) else "list"), width
    if is_wide(type_):
        return "wide", 16
    packed = packed_format(type_)
    if packed is not None:
        return ("fixed", int(packed[2:-1])) if packed[1] == "F" else ("packed", 0)
    if is_string(type_) or is_binary(type_):
        return "text", 0
    return ("count" if pat.is_decimal(type_) else "word"), 0


def gathered_value(
    function: str, parameter: Any, items: Sequence[Item], type_: pa.DataType | None = None
) -> Any:
    """What an aggregation shows of (value, what decides), in order of arrival, without nulls.
    `type_`: of the values.
    """
    values = [value for value, _ in items]
    if function == "count_distinct":
        return len({sort_key((value,)) for value in values})
    if function == "collect":
        assert type_ is not None
        return listed_values(values[-parameter:], type_)
    if not items:
        return None
    if function in ("median", "quantile"):
        return quantile_of(values, 0.5 if parameter is None else parameter)
    if function in ("first", "last"):
        return values[0 if function == "first" else -1]
    if function in ("min", "max"):
        return min(values) if function == "min" else max(values)
    best, decides = items[0]
    for value, by in items[1:]:
        chosen = minimum(decides, by) if function == "arg_min" else maximum(decides, by)
        if sort_key((chosen,)) != sort_key((decides,)):
            best, decides = value, by
    return best


def quantile_of(values: Sequence[Any], q: float) -> float:
    """The value at place (n - 1)·q of the sorted values, by linear interpolation (type 7 of Hyndman and Fan,
    The American Statistician 50, 1996). NaN sorts last, -0.0 before 0.0.
    """
    ordered = sorted(map(float, values), key=lambda v: (math.isnan(v), v, math.copysign(1.0, v)))
    place = float(len(ordered) - 1) * q
    below = math.floor(place)
    value = ordered[below]
    if place > below and ordered[below + 1] != value:
        after, part = ordered[below + 1], place - below
        if math.isinf(after - value):  # one is infinite, or they are further apart than a float64 can say
            return value * (1.0 - part) + after * part
        value += (after - value) * part
    return value


def decides(row: Sequence[Any], column: int, by: int | None) -> Item | None:
    """What an aggregation looks at in a row: its value, and what decides; None where one is null."""
    value, other = row[column], True if by is None else row[by]
    return None if value is None or other is None else (value, other)


def is_boolean(type_: pa.DataType) -> bool:
    """Bool, which has an order: False before True."""
    return bool(pat.is_boolean(type_))
