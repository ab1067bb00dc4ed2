"""Aggregations that keep values, and not a few numbers: what they mean, and what bounds their memory.

Per key, or per window, they keep: `count_distinct` each distinct value; `median` and `quantile` each value;
`collect(n)` the last n values; `arg_min`, `arg_max` one value and what decides; `first`, `last`, `min` and
`max` of strings, bytes and decimals of over 18 digits one value. In a window per row (`rolling`, `rows`)
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
from ordstream.ground.packed_types import is_packed
from ordstream.ground.types import (
    is_binary,
    is_fixed_number,
    is_string,
    is_temporal,
    is_wide,
    physical_type,
)
from ordstream.reference.base import sort_key

#: Always gathered.
GATHERED = frozenset({"count_distinct", "median", "quantile", "collect", "arg_min", "arg_max"})

#: Gathered where their values have their bytes apart.
OF_TEXT = frozenset({"first", "last", "min", "max"})

Item = tuple[Any, Any]


def is_apart(type_: pa.DataType | None) -> bool:
    """String, binary, decimal of over 18 digits, or packed type: a value has its bytes apart."""
    return type_ is not None and (is_string(type_) or is_binary(type_) or is_wide(type_) or is_packed(type_))


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
    type_, wrong = field.type, f"{where}: {function}({field.name!r}) is not defined for {field.type}"
    kept = function in ("first", "last", "arg_min", "arg_max") and is_packed(type_)
    for one in (*([] if kept else [field]), *([] if by is None else [by])):
        if physical_type(one.type, one.name).vm is None:
            raise SchemaError(f"{where}: {function}: {one.name!r} can't be compared, it is {one.type}")
    if function in ("median", "quantile"):
        if not is_fixed_number(type_) or is_temporal(type_) or pat.is_decimal(type_):
            raise SchemaError(wrong)
        return pa.float64()
    if function == "collect":
        if is_apart(type_) or pat.is_decimal(type_):
            raise SchemaError(f"{wrong}: numbers, booleans and times are; use od.last, or od.arg_max")
        return pa.list_(type_)
    return pa.int64() if function == "count_distinct" else type_


def gathered_value(function: str, parameter: Any, items: Sequence[Item]) -> Any:
    """What an aggregation shows of (value, what decides), in order of arrival, without nulls."""
    values = [value for value, _ in items]
    if function == "count_distinct":
        return len({sort_key((value,)) for value in values})
    if function == "collect":
        return values[-parameter:]
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
        value += (ordered[below + 1] - value) * (place - below)
    return value


def decides(row: Sequence[Any], column: int, by: int | None) -> Item | None:
    """What an aggregation looks at in a row: its value, and what decides; None where one is null."""
    value, other = row[column], True if by is None else row[by]
    return None if value is None or other is None else (value, other)


def is_boolean(type_: pa.DataType) -> bool:
    """Bool, which has an order: False before True."""
    return bool(pat.is_boolean(type_))
