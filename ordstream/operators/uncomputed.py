"""What an aggregation can't do that a column of other systems can: it is computed with behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ordstream.errors import PlanError, shown
from ordstream.expressions.expr import Expr

#: Method of an aggregation elsewhere -> what to write.
_WORDS = {
    "over": "so far it is key_by(...).scan(name={}), of the last rows key_by(...).window(od.rows(n))",
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
                behind = (
                    "it is computed with behind it, .aggregate(name={}).with_columns(name=od.col('name')...)"
                )
                where = f": {_WORDS.get(attribute, behind).format(f'od.{self.function}(...)')}"
            raise AttributeError(f"an aggregation has no {attribute!r}{where}", name=attribute, obj=self)
