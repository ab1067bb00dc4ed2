"""Aggregations: values over the tuples of a key or a session, and what they mean.

`sum`, `min`, `max`, `count`, `first`, `last`, `mean`, `var`, `std`, `count_distinct`, `median`, `quantile`,
`collect`, `arg_min` and `arg_max` make one; `bound_aggregations` binds several to a schema; `Accumulators`
is what the reference of every operator with aggregations computes with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.bound import BoundExpr, maximum, minimum
from ordstream.expressions.expr import Alias, Column, Expr
from ordstream.expressions.lowering import within_measure
from ordstream.ground.numbers import BEYOND_INT64, is_number
from ordstream.ground.types import (
    COUNTED_DIGITS,
    INT64_MAX,
    INT64_MIN,
    WIDE_DIGITS,
    column_index,
    is_fixed_number,
    is_temporal,
    physical_type,
)
from ordstream.operators.arguments import (
    column_name,
    columns_of,
    condition,
    given,
    nonempty,
    positive_int,
    where_text,
)
from ordstream.operators.gathered import (
    decides,
    element_of,
    gathered_type,
    gathered_value,
    is_apart,
    is_boolean,
    is_gathered,
)
from ordstream.operators.uncomputed import WITH_STATE, Uncomputed, instead_of, instead_of_type
from ordstream.reference.base import Row, true_of

MEAN_PLACES = 4  # that the mean of a decimal has more than the column, as in Spark
SUM_DIGITS = 10  # that its sum has more, as in Spark


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
    by : int or None
        Of `arg_min` and `arg_max`: the column that decides.
    parameter : int, float or None
        Of `collect`: how many; of `quantile`: which one.
    places : int
        Of the mean of a decimal: how many more it has than the column.
    digits : int
        Of the sum, or the mean, of a decimal: how many the sum may have where these are more than an int64
        counts; else 0.
    element, width
        As `element_of` says, where values are kept.
    """

    function: str
    column: int | None
    where: BoundExpr | None
    by: int | None = None
    parameter: int | float | None = None
    places: int = 0
    digits: int = 0
    element: str = "word"
    width: int = 0

    def gathered(self, text: bool) -> bool:
        """Whether it keeps values; `text`: they have their bytes apart."""
        return is_gathered(self.function, text)


@dataclass(frozen=True, repr=False)  # that of the base says how it is written
class Aggregation(Uncomputed):
    """A value over the tuples of a key, a window or a session; made by `sum`, `min` and the like.

    Attributes
    ----------
    function : str
        The name of the function that made it.
    column : str or None
        None only for `count()`: every row. Of an expression its text, until it is a column
        (`ordstream.operators.computed`).
    name : str or None
        Output name where it is not given as a keyword.
    where : Expr or None
        Only rows for which this is true (not false, not null) are looked at.
    by : str or None
        Of `arg_min` and `arg_max`, as `column`.
    expr, by_expr : Expr or None
        What `column` and `by` are the text of, where they are computed.
    """

    function: str
    column: str | None
    name: str | None = None
    where: Expr | None = field(default=None, compare=False)
    by: str | None = None
    parameter: int | float | None = None
    expr: Expr | None = field(default=None, compare=False)
    by_expr: Expr | None = field(default=None, compare=False)

    def alias(self, name: str) -> Aggregation:
        """The same aggregation under an output name (for names that can't be keywords, such as "name")."""
        return replace(self, name=nonempty(name, f"od.{self.function}(...).alias"))

    def bind(self, schema: pa.Schema, where: str) -> tuple[pa.DataType, BoundAggregation]:
        """Type of the value, and what it is in the plan.

        Raises
        ------
        SchemaError
            An unknown column, or one that the function is not defined for.
        """
        type_, index = self._bind_column(schema, where)
        program = None if self.where is None else condition(self.where, schema, where)
        if self.function == "count" and index is not None:
            name = schema.names[index]
            if physical_type(schema.field(index).type, name).vm is None:  # a list or a struct: only if it is
                there = Column(name).is_not_null()
                program = condition(there if self.where is None else there & self.where, schema, where)
                index = None
        by = None if self.by is None else column_index(schema, self.by, where)
        places = digits = 0
        given_type = None if index is None else schema.field(index).type
        if given_type is not None and self.function in ("sum", "mean") and pat.is_decimal(given_type):
            places = type_.scale - given_type.scale
            digits = sum_digits(given_type)
        kept = ("word", 0) if given_type is None else element_of(given_type)
        return type_, BoundAggregation(
            self.function, index, program, by, self.parameter, places, digits, *kept
        )

    def _bind_column(self, schema: pa.Schema, where: str) -> tuple[pa.DataType, int | None]:
        if self.column is None:
            return pa.int64(), None
        index = column_index(schema, self.column, where)
        type_ = schema.field(index).type
        if self.function == "count":
            return pa.int64(), index
        if is_gathered(self.function, is_apart(type_)) and not self._is_undefined(type_):
            by = None if self.by is None else schema.field(column_index(schema, self.by, where))
            return gathered_type(self.function, schema.field(index), by, where), index
        decimals = bool(pat.is_decimal128(type_))
        lengths = bool(pat.is_duration(type_)) and self.function in ("sum", "mean")
        numeric = decimals or lengths or (is_fixed_number(type_) and not is_temporal(type_))
        if self.function in ("first", "last", "min", "max"):
            numeric = is_fixed_number(type_) or is_boolean(type_)
        as_float = decimals and self.function in ("var", "std")
        if not numeric or as_float or self.function in ("median", "quantile"):
            column = repr(self.column) if self.expr is None else self.column
            text = f"{where}: {self.function}({column}) is not defined for {type_}"
            raise SchemaError(text + instead_of_type(self, type_))
        if lengths:
            return type_, index
        if self.function == "mean" and decimals:
            more = minimum(MEAN_PLACES, WIDE_DIGITS - type_.precision)
            return pa.decimal128(type_.precision + more, type_.scale + more), index
        if self.function in ("mean", "var", "std"):
            return pa.float64(), index
        if self.function == "sum" and decimals:
            return pa.decimal128(minimum(type_.precision + SUM_DIGITS, WIDE_DIGITS), type_.scale), index
        if self.function == "sum":
            return pa.int64() if pat.is_integer(type_) else pa.float64(), index
        return type_, index

    def _is_undefined(self, type_: pa.DataType) -> bool:
        """It keeps values, but is not defined for those of the type."""
        if pat.is_null(type_) and self.function in ("min", "max", "count_distinct"):
            return True
        plain = is_fixed_number(type_) and not is_temporal(type_) and not pat.is_decimal(type_)
        return self.function in ("median", "quantile") and not plain


def sum_digits(type_: pa.DataType) -> int:
    """How many digits the sum of a decimal may have; 0: it is an int64 count of the unit."""
    digits = minimum(type_.precision + SUM_DIGITS, WIDE_DIGITS)
    return 0 if digits <= COUNTED_DIGITS else int(digits)


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
            also = ""
            if isinstance(aggregation, Mapping):
                also = "; a mapping is written behind two stars, **{...}"
            elif isinstance(aggregation, list | tuple):
                also = "; a list is written behind a star, *[...]"
            elif callable(aggregation):
                also = f"; {WITH_STATE}"
            raise PlanError(
                f"{where}: a positional aggregation needs a name: od.sum('x').alias('total'){also}"
            )
        columns.append((aggregation.name, aggregation))
    fields, aggregates = [], []
    for column, aggregation in [*columns, *keywords.items()]:
        if not isinstance(aggregation, Aggregation):
            raise PlanError(
                f"{where}: {column} must be an aggregation (od.sum, ...), got {instead_of(aggregation)}"
            )
        type_, bound = aggregation.bind(schema, where)
        fields.append(pa.field(column, type_))
        aggregates.append(bound)
    return fields, aggregates


def _of(
    function: str,
    column: Any,
    where: Expr | None,
    parameter: int | float | None = None,
) -> Aggregation:
    name, expr = _argument(column, function)
    return Aggregation(function, name, where=where, parameter=parameter, expr=expr)


def _by(function: str, column: Any, where: Expr | None, by: Any) -> Aggregation:
    name, expr = _argument(by, f"{function}: by")
    return replace(_of(function, column, where), by=name, by_expr=expr)


def _argument(given: Any, where: str) -> tuple[str, Expr | None]:
    """A column's name, or an expression's text and the expression."""
    if isinstance(given, Alias):
        raise SchemaError(
            f"{where}: the expression {given!r} can't have a name in an aggregation: give it to that, "
            f"od.{where.partition(':')[0]}(...).alias({given.name!r})"
        )
    if isinstance(given, Column) or not isinstance(given, Expr):
        return column_name(given, where), None
    try:
        within_measure(given, where)
        return repr(given), given
    except RecursionError:
        raise SchemaError(
            f"{where}: an expression is nested too deeply; compute it in several columns in front"
        ) from None


def sum(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Sum of the non-null values so far; 0 of nothing.

    Integers add up as int64, and decimals exactly: a sum has ten digits more than the column, 38 at most, as
    in Spark. An overflow is an error at that row. Floats add up in order, as float64. The sum of
    durations is a duration.
    `where`, here and in the functions below: only rows for which this expression is true. `column`: a name,
    or an expression, `od.sum(od.col("price") * od.col("n"))`, which is computed of every row, also of those
    that `where` leaves out.
    """
    return _of("sum", column, where)


def min(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Smallest non-null value of `column` so far; null of nothing. NaN loses against any number, False is
    before True, strings compare by their UTF-8 bytes. `where`: see `sum`.
    """
    return _of("min", column, where)


def max(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Largest non-null value of `column` so far; null of nothing. See `min`, and `sum` for `where`."""
    return _of("max", column, where)


def count(column: str | Expr | None = None, *, where: Expr | None = None) -> Aggregation:
    """Number of rows so far, or of non-null values of `column`. `where`: see `sum`."""
    return Aggregation("count", None, where=where) if column is None else _of("count", column, where)


def first(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """First non-null value of `column`, of any type; null of nothing. `where`: see `sum`."""
    return _of("first", column, where)


def last(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Latest non-null value of `column`, of any type; null of nothing. `where`: see `sum`."""
    return _of("last", column, where)


def mean(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """`sum(column)` as float64 divided by `count(column)` as float64; null of nothing. `where`: see `sum`.

    Of a decimal the exact mean as a decimal with four more places, half a unit rounded away from zero; with
    fewer more where the whole would have over 38 digits. Of durations the exact mean as a duration, half a
    unit rounded away from zero.
    """
    return _of("mean", column, where)


def var(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Sample variance (divided by n - 1) of the non-null values of `column` so far; null of fewer than two.

    Computed as float64 by Welford's recurrence (Technometrics 4, 1962), in the order of the rows; inf where
    the squared distances sum to more than a float64 holds. `where`: see `sum`.
    """
    return _of("var", column, where)


def std(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Square root of `var(column, where=where)`."""
    return _of("std", column, where)


def count_distinct(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Number of distinct non-null values of `column`, exactly; -0.0 equals 0.0, and NaN itself.

    Keeps each distinct value: in `scan` and `aggregate` memory grows with them. `where`: see `sum`.
    """
    return _of("count_distinct", column, where)


def median(column: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """`quantile(column, 0.5, where=where)`."""
    return _of("median", column, where)


def quantile(column: str | Expr, q: float, *, where: Expr | None = None) -> Aggregation:
    """Quantile of the non-null numbers, exactly, as float64, by linear interpolation; null of nothing.

    It is the value at place (n - 1)·q of the sorted values, as in NumPy, Polars ("linear") and DuckDB
    (quantile_cont). NaN sorts last. Keeps all values: in `scan` and `aggregate` memory grows with the
    stream, in windows with the window. Where each row shows it, a row costs a copy of up to all of them.

    Parameters
    ----------
    column, where : see `sum`
    q : float
        From 0 to 1.
    """
    given: Any = q
    if not is_number(given) or not 0 <= q <= 1:
        raise PlanError(f"quantile: q must be a number from 0 to 1, got {q!r}")
    return _of("quantile", column, where, parameter=float(q))


def collect(column: str | Expr, n: int | None = None, *, where: Expr | None = None) -> Aggregation:
    """List of the last `n` non-null values of `column`, oldest first; empty of none. Without `n` of all of
    them: the window bounds these, or nothing in `scan` and `aggregate`, where each row's list is a longer
    one. `where`: see `sum`.
    """
    most = INT64_MAX if n is None else positive_int(n, "collect: n")
    return _of("collect", column, where, parameter=most)


def arg_min(column: str | Expr, by: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Value of `column` in the first row with the smallest `by`; rows where one of them is null are not
    looked at. Null of nothing. `column` is of any type, `by` of one that can be compared, as in `min`.
    `where`: see `sum`.
    """
    return _by("arg_min", column, where, by)


def arg_max(column: str | Expr, by: str | Expr, *, where: Expr | None = None) -> Aggregation:
    """Value of `column` in the first row with the largest `by`. See `arg_min`, and `sum` for `where`."""
    return _by("arg_max", column, where, by)


# ------------------------------------------------------------------------------- what operators ask


def columns_of_aggregates(aggregates: Iterable[BoundAggregation]) -> set[int]:
    """Input columns that the aggregations and their conditions read."""
    read: set[int] = set()
    for aggregate in aggregates:
        read |= columns_of(aggregate.where)
        read |= given(aggregate.column, aggregate.by)
    return read


def calls(names: Sequence[str], aggregates: Iterable[BoundAggregation]) -> str:
    """ "sum(x) where y > 0, count()", for `describe`; `names`: of the input columns."""
    return ", ".join(f"{a.function}({arguments_of(a, names)}{where_text(a.where)})" for a in aggregates)


def arguments_of(aggregate: BoundAggregation, names: Sequence[str]) -> str:
    """ "x", "x, by y" or "x, 3"; nothing where every row counts."""
    texts = [names[index] for index in (aggregate.column,) if index is not None]
    texts += [f"by {names[index]}" for index in (aggregate.by,) if index is not None]
    return ", ".join([*texts, *(str(p) for p in (aggregate.parameter,) if p not in (None, INT64_MAX))])


def overflow_of_sums(
    message: str, aggregates: Iterable[BoundAggregation], schema: pa.Schema, row: Row
) -> str | None:
    """Which sums a row may have taken out of range, and what to do; None: none, or the kernel's message is
    of something else.
    """
    sums = [
        (a, schema.field(a.column).type)
        for a in aggregates
        if a.column is not None and a.function in ("sum", "mean") and row[a.column] is not None
    ]
    exact = {a: type_ for a, type_ in sums if not pat.is_floating(type_)}
    if not exact or "out of range" not in message:
        return None
    text = f"overflow in {' or '.join(calls(schema.names, [a]) for a in exact)}: the sum does not fit into "
    fits = {f"a decimal of {a.digits} digits" if a.digits else "int64" for a in exact}
    coarser = "; cast the column to a coarser unit in front, or sum fewer rows"
    other = "; cast the column to pa.float64() in front, or sum fewer rows"
    if any(map(pat.is_uint64, exact.values())):  # a cast in the pipeline takes what fits into int64 only
        other = f"; {BEYOND_INT64}"
    return text + " or ".join(sorted(fits)) + (coarser if any(map(is_temporal, exact.values())) else other)


# ------------------------------------------------------------------------------------------------ meaning


class Accumulators:
    """What aggregations mean; a state is one accumulator per aggregation.

    Parameters
    ----------
    aggregates : sequence of BoundAggregation
    schema : pyarrow.Schema
        Of the tuples.
    """

    def __init__(self, aggregates: Sequence[BoundAggregation], schema: pa.Schema) -> None:
        self.aggregates = aggregates
        self.types = [None if a.column is None else schema.field(a.column).type for a in aggregates]
        self.gathered = [
            a.gathered(is_apart(type_)) for a, type_ in zip(aggregates, self.types, strict=True)
        ]

    def start(self) -> list[Any]:
        """Of no tuple."""
        return [
            () if gathered else _start(a.function, type_)
            for a, type_, gathered in zip(self.aggregates, self.types, self.gathered, strict=True)
        ]

    def chosen(self, row: Row) -> list[bool]:
        """For each aggregation whether it looks at the row. Raises what its condition raises."""
        return [true_of(a.where, row) for a in self.aggregates]

    def advance(self, before: list[Any], row: Row, chosen: list[bool]) -> list[Any]:
        """The state after one more row. Raises OverflowError."""
        after = []
        for aggregate, accumulator, looks, gathered in zip(
            self.aggregates, before, chosen, self.gathered, strict=True
        ):
            if gathered:
                assert aggregate.column is not None
                item = decides(row, aggregate.column, aggregate.by) if looks else None
                after.append(accumulator if item is None else (*accumulator, item))
                continue
            value = True if aggregate.column is None else row[aggregate.column]
            skips = value is None or not looks
            if not skips:
                accumulator = advance(aggregate.function, accumulator, value, aggregate.digits)
            after.append(accumulator)
        return after

    def values(self, state: list[Any]) -> list[Any]:
        """What a state shows in the output."""
        return [
            gathered_value(a.function, a.parameter, x, type_)
            if gathered
            else decimal_mean(x, a.places)
            if a.function == "mean" and type_ is not None and has_unit(type_)
            else running_value(a.function, x)
            for a, x, gathered, type_ in zip(self.aggregates, state, self.gathered, self.types, strict=True)
        ]


def _start(function: str, type_: pa.DataType | None) -> Any:
    if type_ is not None and function in ("sum", "mean"):
        zero = 0 if pat.is_integer(type_) or has_unit(type_) else 0.0
        return zero if function == "sum" else (zero, 0)
    if function in ("var", "std"):
        return (0.0, 0.0, 0)
    return 0 if function == "count" else None


def has_unit(type_: pa.DataType) -> bool:
    """A decimal or a duration: a mean is a whole number of units, too."""
    return bool(pat.is_decimal(type_) or pat.is_duration(type_))


def advance(function: str, accumulator: Any, value: Any, digits: int = 0) -> Any:
    """The accumulator after one more non-null value; `digits`: as of BoundAggregation."""
    if function == "sum":
        return checked_sum(accumulator, value, digits)
    if function == "mean":
        return checked_sum(accumulator[0], value, digits), accumulator[1] + 1
    if function == "count":
        return accumulator + 1
    if function in ("var", "std"):
        return spread(accumulator, float(value))
    if accumulator is None or function == "last":
        return value
    if function == "first":
        return accumulator
    return minimum(accumulator, value) if function == "min" else maximum(accumulator, value)


def running_value(function: str, accumulator: Any) -> Any:
    """What an accumulator shows in the output."""
    if function == "mean":
        total, n = accumulator
        return float(total) / float(n) if n else None
    if function in ("var", "std"):
        _, squares, n = accumulator
        variance = squares / float(n - 1) if n > 1 else None
        return math.sqrt(variance) if variance is not None and function == "std" else variance
    return accumulator


def decimal_mean(accumulator: tuple[int, int], places: int) -> int | None:
    """The mean of counts of a decimal's unit, as a count of one that is smaller by so many places."""
    total, n = accumulator
    if not n:
        return None
    numerator: int = abs(total) * 10**places
    units = (2 * numerator + n) // (2 * n)
    return units if total >= 0 else -units


def spread(accumulator: tuple[float, float, int], value: float) -> tuple[float, float, int]:
    """(mean, sum of squared distances from it, n) with one more value."""
    mean, squares, n = accumulator
    delta = value - mean
    mean += delta / float(n + 1)
    squares += delta * (value - mean)
    if math.isinf(squares):  # only of finite values, which float64 has no squares of: it stays so
        return 0.0, math.inf, n + 1
    return mean, squares, n + 1


def checked_sum(a: Any, b: Any, digits: int = 0) -> Any:
    """a + b; an int result outside int64, or with more digits than `digits`, is an OverflowError."""
    total = a + b
    if digits:
        if abs(total) >= 10**digits:
            raise OverflowError(f"overflow in a sum of decimals: it has over {digits} digits")
    elif isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
        if b > INT64_MAX:  # a uint64
            raise OverflowError(f"{b} does not fit into int64, which sums are; {BEYOND_INT64}")
        raise OverflowError(f"int64 overflow in sum: {a} + {b}")
    return total
