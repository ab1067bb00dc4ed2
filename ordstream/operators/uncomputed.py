"""What an aggregation can't do that a column of other systems can. To compute with its result takes an
operator behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ordstream.errors import PlanError, shown
from ordstream.expressions.expr import Expr
from ordstream.ground.types import INT64_MAX

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
    return shown(given)


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

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, attribute: str) -> NoReturn:
            where = ""
            if attribute[0] != "_":
                behind = "compute with its result, .aggregate(name={}).with_columns(name=od.col('name')...)"
                where = f": {_WORDS.get(attribute, behind).format(f'od.{self.function}(...)')}"
            raise AttributeError(f"an aggregation has no {attribute!r}{where}", name=attribute, obj=self)
