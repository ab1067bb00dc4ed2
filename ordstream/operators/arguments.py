"""What a user passes to the methods of a pipeline: list operators, aggregations, partition schemes, codecs,
punctuation.

Each is a small immutable description; it knows no schema until a method binds it to one.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Column, Expr
from ordstream.expressions.lowering import lower
from ordstream.ground.types import (
    INT64_MAX,
    INT64_MIN,
    column_index,
    is_fixed_number,
    is_list,
    is_temporal,
    key_type,
    physical_type,
    to_storage,
    unique_names,
)

# ------------------------------------------------------------------------------------------------ list operat


@dataclass(frozen=True)
class Pairs:
    """See `pairs`."""

    column: str
    left: str
    right: str
    carry: tuple[str, ...]
    anchor: Any = None

    def bind(self, schema: pa.Schema, where: str) -> tuple[pa.Schema, dict[str, Any]]:
        """Output schema and stage parameters on an input schema."""
        index, item = _list_column(schema, self.column, where)
        fields, carry = _carried(schema, self.carry, where)
        fields += [pa.field(self.left, item), pa.field(self.right, item)]
        unique_names([field.name for field in fields], where)
        try:
            anchor = to_storage(self.anchor, item, f"{self.column} (anchor)")
        except (TypeError, ValueError, OverflowError) as error:
            raise SchemaError(f"{where}: {error}") from error
        return pa.schema(fields), {"column": index, "carry": carry, "anchor": anchor}


@dataclass(frozen=True)
class Explode:
    """See `explode`."""

    column: str
    name: str
    carry: tuple[str, ...]

    def bind(self, schema: pa.Schema, where: str) -> tuple[pa.Schema, dict[str, Any]]:
        """Output schema and stage parameters on an input schema."""
        index, item = _list_column(schema, self.column, where)
        fields, carry = _carried(schema, self.carry, where)
        fields.append(pa.field(self.name, item))
        unique_names([field.name for field in fields], where)
        return pa.schema(fields), {"column": index, "carry": carry}


def pairs(
    column: str,
    left: str = "left",
    right: str = "right",
    carry: Sequence[str] = (),
    anchor: Any = None,
) -> Pairs:
    """For `flat_map`: all pairs of the distinct elements of a list column.

    With D the sorted distinct non-null elements, one output (*carry, D[i], D[j]) for each i < j, in
    lexicographic order. A null list, and one with fewer than two distinct elements, gives nothing. With an
    `anchor`: nothing unless D holds it, else (*carry, x, anchor) for each other x of D, ascending.

    Parameters
    ----------
    column : str
        A list column.
    left, right : str
        Names of the two output columns.
    carry : sequence of str
        Input columns to repeat in front of each pair.
    anchor : value of the list's element type, optional
        Only the pairs with this element.
    """
    return Pairs(column_name(column), left, right, column_names(carry), anchor)


def explode(column: str, name: str | None = None, carry: Sequence[str] = ()) -> Explode:
    """For `flat_map`: one output (*carry, element) per element of a list column, in order. A null list gives
    nothing.

    Parameters
    ----------
    column : str
        A list column.
    name : str, optional
        Name of the output column; default: that of the list column.
    carry : sequence of str
        Input columns to repeat in front of each element.
    """
    return Explode(column_name(column), name or column_name(column), column_names(carry))


def column_name(column: Any) -> str:
    """The name of a column given by its name or as `od.col(name)`."""
    name = column.name if isinstance(column, Column) else column
    if not isinstance(name, str):
        raise SchemaError(f"a column name is needed, got {column!r}")
    return name


def flat(columns: Sequence[Any]) -> Sequence[Any]:
    """The columns of `f("a", "b")`, also where they were given as one list, `f(["a", "b"])`."""
    return columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns


def column_names(columns: Any) -> tuple[str, ...]:
    """Names of columns given by their names or as expressions, one or several."""
    if isinstance(columns, str | Expr):
        return (column_name(columns),)
    if not isinstance(columns, Iterable):
        raise SchemaError(f"column names are needed, got {columns!r}")
    return tuple(map(column_name, columns))


def _list_column(schema: pa.Schema, column: str, where: str) -> tuple[int, pa.DataType]:
    index = column_index(schema, column, where)
    type_ = schema.field(index).type
    if not is_list(type_):
        raise SchemaError(f"{where}: column {column!r} must be a list, it is {type_}")
    return index, type_.value_type


def _carried(schema: pa.Schema, names: Sequence[str], where: str) -> tuple[list[pa.Field], list[int]]:
    carry = [column_index(schema, name, where) for name in names]
    return [schema.field(index) for index in carry], carry


# ------------------------------------------------------------------------------------------------ aggregation


class BoundAggregation(NamedTuple):
    """An aggregation of the plan.

    Attributes
    ----------
    function : str
        See `Aggregation`.
    column : int or None
        Of the input; None: every row counts.
    where : BoundExpr or None
        Only rows where it is True.
    """

    function: str
    column: int | None
    where: BoundExpr | None


@dataclass(frozen=True)
class Aggregation:
    """A value over the tuples of a key or a session; made by `sum`, `min`, `max`, `count`, `first`, `last`,
    `mean`.

    Attributes
    ----------
    function : str
        "sum", "min", "max", "count", "first", "last" or "mean".
    column : str or None
        None only for `count()`: every row.
    name : str or None
        Output name where it is not given as a keyword.
    where : Expr or None
        Only rows for which this is true (not false, not null) are looked at.
    """

    function: str
    column: str | None
    name: str | None = None
    where: Expr | None = field(default=None, compare=False)

    def alias(self, name: str) -> Aggregation:
        """The same aggregation under an output name (for names that can't be keywords, such as "name")."""
        return replace(self, name=name)

    def bind(self, schema: pa.Schema, where: str) -> tuple[pa.DataType, BoundAggregation]:
        """Type of the value, and what it is in the plan.

        Raises
        ------
        SchemaError
            An unknown column, or one that the function is not defined for.
        """
        type_, index = self._bind_column(schema, where)
        program = None if self.where is None else condition(self.where, schema, where)
        return type_, BoundAggregation(self.function, index, program)

    def _bind_column(self, schema: pa.Schema, where: str) -> tuple[pa.DataType, int | None]:
        if self.column is None:
            return pa.int64(), None
        index = column_index(schema, self.column, where)
        type_ = schema.field(index).type
        if self.function == "count":
            if physical_type(type_, self.column).vm is None:
                raise SchemaError(f"{where}: count({self.column!r}): {type_} is not supported; use count()")
            return pa.int64(), index
        numeric = is_fixed_number(type_) and (self.function in ("min", "max") or not is_temporal(type_))
        if self.function in ("first", "last"):
            numeric = is_fixed_number(type_) or pat.is_boolean(type_)
        if not numeric:
            raise SchemaError(f"{where}: {self.function}({self.column!r}) is not defined for {type_}")
        if self.function == "mean":
            return pa.float64(), index
        if self.function == "sum":
            return pa.int64() if pat.is_integer(type_) else pa.float64(), index
        return type_, index


def condition(expr: Any, schema: pa.Schema, where: str) -> BoundExpr:
    """A condition lowered on a schema.

    Raises
    ------
    SchemaError
        It is no boolean expression.
    """
    if not isinstance(expr, Expr):
        raise SchemaError(f"{where}: a boolean expression is needed, got {expr!r}")
    program = lower(expr, schema, where)
    if program.type != "bool":
        raise SchemaError(f"{where}: a boolean expression is needed, {expr!r} is {program.arrow}")
    return program


def bound_aggregations(
    named: Sequence[Aggregation], keywords: Mapping[str, Aggregation], schema: pa.Schema, where: str
) -> tuple[list[pa.Field], list[BoundAggregation]]:
    """Output fields and plan entries of aggregations given by position (with a name) and by keyword.

    Raises
    ------
    PlanError
        One that is no aggregation, or has no name.
    SchemaError
        As `Aggregation.bind`.
    """
    columns: list[tuple[str, Any]] = []
    aggregation: Any
    for aggregation in named:
        if not isinstance(aggregation, Aggregation) or not isinstance(aggregation.name, str):
            raise PlanError(f"{where}: a positional aggregation needs a name: od.sum('x').alias('total')")
        columns.append((aggregation.name, aggregation))
    fields, aggregates = [], []
    for column, aggregation in [*columns, *keywords.items()]:
        if not isinstance(aggregation, Aggregation):
            raise PlanError(f"{where}: {column} must be an aggregation (od.sum, ...), got {aggregation!r}")
        type_, bound = aggregation.bind(schema, where)
        fields.append(pa.field(column, type_))
        aggregates.append(bound)
    return fields, aggregates


def sum(column: str, *, where: Expr | None = None) -> Aggregation:
    """Sum of the non-null values so far; 0 of nothing.

    Integers add up as int64, and an overflow is an error at that row; floats add up in order, as float64.
    `where`, here and in the functions below: only rows for which this expression is true.
    """
    return Aggregation("sum", column_name(column), where=where)


def min(column: str, *, where: Expr | None = None) -> Aggregation:
    """Smallest non-null number, date or time so far; null of nothing. NaN loses against any number."""
    return Aggregation("min", column_name(column), where=where)


def max(column: str, *, where: Expr | None = None) -> Aggregation:
    """Largest non-null number, date or time so far; null of nothing. NaN loses against any number."""
    return Aggregation("max", column_name(column), where=where)


def count(column: str | None = None, *, where: Expr | None = None) -> Aggregation:
    """Number of rows so far, or of non-null values of a column."""
    return Aggregation("count", None if column is None else column_name(column), where=where)


def first(column: str, *, where: Expr | None = None) -> Aggregation:
    """First non-null value (number, bool, date or time); null of nothing."""
    return Aggregation("first", column_name(column), where=where)


def last(column: str, *, where: Expr | None = None) -> Aggregation:
    """Latest non-null value (number, bool, date or time); null of nothing."""
    return Aggregation("last", column_name(column), where=where)


def mean(column: str, *, where: Expr | None = None) -> Aggregation:
    """`sum(column)` as float64 divided by `count(column)` as float64; null of nothing."""
    return Aggregation("mean", column_name(column), where=where)


# ------------------------------------------------------------------------------------------------ partitionin


@dataclass(frozen=True)
class Ranges:
    """Buckets by key range: bucket i holds keys below `bounds[i]` and not below `bounds[i - 1]`. See
    `ranges`.
    """

    bounds: tuple[Any, ...]

    def bind(self, schema: pa.Schema, key: tuple[int, ...], where: str) -> Ranges:
        """The same with storage values of the key's type as bounds."""
        field = _range_key(schema, key, where)
        if not (is_fixed_number(field.type) or is_temporal(field.type)):
            raise PlanError(f"{where}: ranges needs a numeric or temporal key, {field.name!r} is {field.type}; leave partition='hash'")
        try:
            bounds = [to_storage(bound, field.type, field.name) for bound in self.bounds]
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"{where}: ranges: {error}") from error
        if not bounds or any(bound is None or bound != bound for bound in bounds):
            raise PlanError(f"{where}: ranges needs at least one bound, and no null or NaN")
        if any(not a < b for a, b in itertools.pairwise(bounds)):
            raise PlanError(f"{where}: the bounds of ranges must ascend, got {list(self.bounds)}")
        return Ranges(tuple(bounds))


@dataclass(frozen=True)
class EqualRanges:
    """Buckets by key range, of equal width between `low` and `high`. See `equal_ranges`."""

    low: Any
    high: Any

    def bind(self, schema: pa.Schema, key: tuple[int, ...], where: str) -> EqualRanges:
        """The same with storage values of the key's type as ends."""
        field = _range_key(schema, key, where)
        if not is_fixed_number(field.type):
            raise PlanError(f"{where}: equal_ranges needs a numeric key, {field.name!r} is {field.type}")
        try:
            low, high = (to_storage(end, field.type, field.name) for end in (self.low, self.high))
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"{where}: equal_ranges: {error}") from error
        if low is None or high is None or not low < high:
            raise PlanError(f"{where}: equal_ranges needs low < high, got {self.low!r}, {self.high!r}")
        return EqualRanges(low, high)


def ranges(bounds: Sequence[Any]) -> Ranges:
    """Partition scheme for `key_by`: ascending bounds; a key equal to a bound lies above it. Nulls are
    lowest.
    """
    return Ranges(tuple(bounds))


def equal_ranges(low: Any, high: Any) -> EqualRanges:
    """Partition scheme for `key_by`: as many ranges of equal width in [low, high) as there are buckets.

    Keys outside lie in the first or last.
    """
    return EqualRanges(low, high)


def _range_key(schema: pa.Schema, key: tuple[int, ...], where: str) -> pa.Field:
    if len(key) != 1:
        raise PlanError(f"{where}: partitioning by ranges needs exactly one key column, got {len(key)}")
    field = schema.field(key[0])
    key_type(field.type, field.name)
    if pat.is_boolean(field.type):
        raise PlanError(f"{where}: a bool key ({field.name!r}) can't be partitioned by ranges")
    return field


# ------------------------------------------------------------------------------------------------ state, punc


@dataclass(frozen=True)
class Codec:
    """State as bytes, for snapshots: see `codec`."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    init: Callable[[], Any]


def codec(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], init: Callable[[], Any]) -> Codec:
    """State of any Python kind for `process` that can still be snapshotted and migrated.

    Parameters
    ----------
    encode : callable
        state -> bytes.
    decode : callable
        bytes -> state; `decode(encode(s))` must behave as `s`.
    init : callable
        () -> the state of a new key.
    """
    for name, function in (("encode", encode), ("decode", decode), ("init", init)):
        if not callable(function):
            raise PlanError(f"codec: {name} must be callable, got {function!r}")
    return Codec(encode, decode, init)


@dataclass(frozen=True)
class Every:
    """Time punctuation: see `every`."""

    column: str
    period: int | datetime.timedelta

    def bind(self, schema: pa.Schema) -> tuple[int, int]:
        """Index of the time column in the source schema, and the period in its unit."""
        index = column_index(schema, self.column, "every")
        period = time_span(self.period, schema.field(index), "every: the period")
        if period < 1:
            raise PlanError(f"every: the period must be at least 1, got {self.period!r}")
        return index, period


def every(column: str, period: int | datetime.timedelta) -> Every:
    """A time punctuation each time that a column of the source enters a new multiple of a period.

    Before a tuple whose `value // period` is greater than that of the one before, the time `value // period * period` passes through
    all operators in order. Nulls are not looked at. The column must ascend: a tuple earlier than the one before it is a SourceError.

    Parameters
    ----------
    column : str
        A column of the source: integer, timestamp or date.
    period : int or timedelta
        In the column's unit, or a time span for a timestamp or date.
    """
    return Every(column_name(column), period)


_UNITS = {"s": 10**6, "ms": 10**3, "us": 1}


def time_span(value: int | datetime.timedelta, field: pa.Field, what: str) -> int:
    """A span of time in the unit of a time column (integer, timestamp or date).

    Raises
    ------
    SchemaError
        The column can't hold time.
    PlanError
        The value is no span, or not a whole number of units.
    """
    type_ = field.type
    is_clock = pat.is_timestamp(type_) or pat.is_date(type_)
    if not is_clock and (not pat.is_integer(type_) or pat.is_uint64(type_)):
        text = "an integer (int64 or narrower), a timestamp or a date"
        raise SchemaError(f"the time column {field.name!r} must be {text}, it is {type_}")
    if isinstance(value, int) and not isinstance(value, bool):
        return _fits(value, value, what)
    if not isinstance(value, datetime.timedelta) or not is_clock:
        kinds = "an int or a timedelta" if is_clock else "an int"
        raise PlanError(f"{what} must be {kinds} for {field.name!r} ({type_}), got {value!r}")
    micros = value // datetime.timedelta(microseconds=1)
    if pat.is_timestamp(type_) and type_.unit == "ns":
        return _fits(micros * 1000, value, what)
    if pat.is_timestamp(type_):
        unit = _UNITS[type_.unit]
    else:
        unit = 86_400 * 10**6 if pat.is_date32(type_) else _UNITS["ms"]
    if micros % unit:
        raise PlanError(f"{what}: {value!r} is not a whole number of units of {field.name!r} ({type_})")
    return micros // unit


def _fits(units: int, value: Any, what: str) -> int:
    if not INT64_MIN <= units <= INT64_MAX:
        raise PlanError(f"{what} must fit into int64, got {value!r}")
    return units
