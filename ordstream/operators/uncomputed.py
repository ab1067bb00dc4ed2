"""What an aggregation can't do that a column of other systems can. To compute with its result takes an
operator behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, shown
from ordstream.expressions.expr import Expr
from ordstream.ground.packed_types import is_packed
from ordstream.ground.type_names import in_source
from ordstream.ground.types import INT64_MAX, is_temporal

#: For those who give a function in place of an aggregation.
WITH_STATE = "a function with a state goes to process(function, schema=..., state=...)"

#: Method of an aggregation elsewhere -> what to write.
_WORDS = {
    "over": (
        "a running value is key_by(...).scan(name={0}), one of the last n rows "
        "key_by(...).window(od.rows(n)).aggregate(name={0})"
    ),
    "filter": "of some rows it is {}, with where=condition",
    "drop_nulls": "nulls are passed over; {}",
}


#: Functions that make an aggregation.
_FUNCTIONS = (
    *("sum", "min", "max", "count", "first", "last", "mean", "var", "std", "count_distinct", "median"),
    *("quantile", "collect", "arg_min", "arg_max"),
)


def instead_of(given: object) -> str:
    """Something that is no aggregation, and what to write for it."""
    if isinstance(given, Expr):
        return f"{shown(given)}: say which value of many, such as od.last({shown(given)})"
    name = getattr(given, "__name__", given)
    if isinstance(name, str) and name in _FUNCTIONS:
        return f"{shown(given)}: write od.{name}(column)"
    if callable(given) and not isinstance(given, type):
        return f"{shown(given)}; {WITH_STATE}"
    return shown(given)


def instead_of_type(aggregation: Uncomputed, type_: pa.DataType) -> str:
    """What to do where an aggregation is not defined for a column's type, with a separator in front; empty:
    there is nothing.

    Parameters
    ----------
    aggregation : Uncomputed
    type_ : pyarrow.DataType
    """
    function, computed = aggregation.function, aggregation.expr is not None
    column = f"od.col({aggregation.column!r})"
    if pat.is_null(type_):
        return f", nothing but nulls: cast it, od.{function}({column}.cast(pa.float64()))"
    rounds = function in ("var", "std", "median", "quantile")
    if is_packed(type_):
        return "" if pat.is_fixed_size_binary(type_) else in_source(type_, rounds=rounds)
    if rounds and pat.is_decimal(type_):
        if computed:
            return ", which it would round: cast the expression, (...).cast(pa.float64())"
        return (
            ", which it would round: give it a float64 column, "
            f"with_columns(as_float={column}.cast(pa.float64()))"
        )
    if pat.is_boolean(type_) and function == "sum":
        return f": rows where it is true counts od.count(where={'...' if computed else column})"
    if not (pat.is_boolean(type_) or is_temporal(type_)):
        return ""
    if computed:
        return ": cast the expression to a number, such as (...).cast(pa.int64())"
    return f": give it a number, such as with_columns(as_number={column}.cast(pa.int64()))"


class Uncomputed:
    """Base of `Aggregation`."""

    function: str
    column: str | None
    name: str | None
    where: Expr | None
    by: str | None
    parameter: int | float | None
    expr: Expr | None
    by_expr: Expr | None

    def __repr__(self) -> str:
        """As it is written; of an expression its text."""
        columns = ((self.column, self.expr), (self.by, self.by_expr))
        arguments = [repr(name) if expr is None else name for name, expr in columns if name is not None]
        if self.parameter not in (None, INT64_MAX):
            arguments.append(f"{'n=' if self.function == 'collect' else ''}{self.parameter}")
        if self.where is not None:
            arguments.append(f"where={self.where!r}")
        named = "" if self.name is None else f".alias({self.name!r})"
        return f"od.{self.function}({', '.join(arguments)}){named}"

    def _no_operand(self, *_: Any) -> NoReturn:
        raise PlanError(
            f"od.{self.function}(...) can't be computed with: give each aggregation a name and compute "
            "behind them, .aggregate(total=od.sum('x'), n=od.count()).with_columns(ratio=od.col('total') / "
            "od.col('n')); what is computed of each row goes inside, od.sum(od.col('x') * 2)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_operand
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _no_operand
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = _no_operand
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_operand
    __matmul__ = __rmatmul__ = __divmod__ = __rdivmod__ = _no_operand

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            where = ""
            if attribute[0] != "_":
                behind = "compute with its result, .aggregate(name={}).with_columns(name=od.col('name')...)"
                where = f": {_WORDS.get(attribute, behind).format(f'od.{self.function}(...)')}"
            raise AttributeError(f"an aggregation has no {attribute!r}{where}", name=attribute, obj=self)
