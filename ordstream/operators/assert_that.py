"""assert_that: tuples as they are, and an error at one for which a condition is not true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ordstream.errors import PlanError, shown
from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.expressions.expr import Expr
from ordstream.ground.choices import is_text
from ordstream.operators.arguments import condition
from ordstream.operators.operator import Operator, Site
from ordstream.reference.base import Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class AssertThat(Operator):
    """Output: input columns.

    Attributes
    ----------
    condition : BoundExpr
    message : str
    """

    op: ClassVar[str] = "assert_that"
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    condition: BoundExpr
    message: str

    @classmethod
    def bind(cls, site: Site, predicate: Expr, message: str | None) -> Self:
        """Raises SchemaError where the predicate is no boolean expression, PlanError for the message."""
        bound = condition(predicate, site.schema, site.name)
        if message is None:
            message = f"not true: {bound.text}"
        given: Any = message
        if not is_text(given) or not given:
            raise PlanError(f"{site.name}: message must be a non-empty str, got {shown(message)}")
        return cls(**site.fields(site.schema), condition=bound, message=message)

    def kernel(self) -> Any:
        from ordstream._core.kernels.assert_that import AssertKernel

        return AssertKernel(self)

    def reference(self) -> SerialOperator:
        return AssertThatReference(self)

    def columns_read(self) -> set[int]:
        return set(self.condition.columns())

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"assert_that {self.condition.text}"


class AssertThatReference(SerialOperator):
    """The row, or a ValueError where the condition is not True."""

    def process(self, row: Row) -> list[Row]:
        if evaluate_row(self.operator.condition, row) is not True:
            raise ValueError(self.operator.message)
        return [row]
