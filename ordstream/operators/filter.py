"""filter: keep the tuples for which an expression or a function is true (not false, not null)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ordstream.errors import shown
from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.expressions.expr import Expr
from ordstream.operators.arguments import condition
from ordstream.operators.error_policy import tried_again
from ordstream.operators.functions import FunctionReference, RowFunctionText, python_only
from ordstream.operators.operator import Operator, Site
from ordstream.operators.row_clock import RowClock
from ordstream.reference.base import Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class Filter(Operator):
    """By an expression.

    Attributes
    ----------
    condition : BoundExpr
        Of type bool.
    """

    op: ClassVar[str] = "filter"
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    condition: BoundExpr

    @classmethod
    def bind(cls, site: Site, predicate: Expr) -> Self:
        """Raises SchemaError where the predicate is no boolean expression."""
        return cls(**site.fields(site.schema), condition=condition(predicate, site.schema, site.name))

    def kernel(self) -> Any:
        from ordstream._core.kernels.filter import FilterKernel

        return FilterKernel(self)

    def reference(self) -> SerialOperator:
        return FilterReference(self)

    def columns_read(self) -> set[int]:
        return set(self.condition.columns())

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"filter {self.condition.text}"

    def null_tests(self) -> BoundExpr | None:
        return self.condition if self.condition.tests_nulls_only() else None


class FilterReference(SerialOperator):
    """Keeps the rows for which the condition is True (not False, not null)."""

    def process(self, row: Row) -> list[Row]:
        return [row] if evaluate_row(self.operator.condition, row) is True else []


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterFunction(RowFunctionText):
    """By a Python function.

    Attributes
    ----------
    fn : callable
        fn(row) -> bool, or None for False.
    """

    op: ClassVar[str] = "python_filter"
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True
    is_python: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True
    may_reject: ClassVar[bool] = True
    may_retry: ClassVar[bool] = True

    fn: Callable[..., Any]

    @classmethod
    def bind(cls, site: Site, predicate: Any) -> Self:
        """Raises PlanError where the predicate is not callable, or compiled."""
        python_only(predicate, site.name, "")
        return cls(**site.fields(site.schema), fn=tried_again(predicate, site.retries, site.schema))

    def timing_rows(self, clock: RowClock) -> Self:
        return self.changed(fn=clock.timing(self.fn))

    def kernel(self) -> Any:
        from ordstream._core.kernels.python_functions import FilterKernel

        return FilterKernel(self)

    def reference(self) -> SerialOperator:
        return FilterFunctionReference(self)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()


class FilterFunctionReference(FunctionReference):
    """True keeps the row, False and None drop it."""

    def process(self, row: Row) -> list[Row]:
        answer = self.fn(self.python_row(row))
        if answer is not None and not isinstance(answer, bool | np.bool_):
            raise TypeError(f"expected a bool, got {type(answer).__name__} {shown(answer)}")
        return [row] if answer else []
