"""branch: rows leave by one of several ways, or by all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.expressions.expr import Expr
from ordstream.operators.arguments import condition
from ordstream.operators.operator import Operator, Site
from ordstream.reference.base import Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class Branch(Operator):
    """Output, on each way: input columns.

    Attributes
    ----------
    condition : BoundExpr or None
        Of type bool: true leads to the first of two ways, false and null to the second.
    by : int or None
        Without a condition: column of type int64, the number of the way. None: every row goes every way.
    ways : int
    lane, lanes, number : see `Operator.laid`
    """

    op: ClassVar[str] = "branch"
    takes_units: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    condition: BoundExpr | None = None
    by: int | None = None
    ways: int = 2
    lane: int = 0
    lanes: tuple[int, ...] = ()
    number: int = 0

    @classmethod
    def bind(cls, site: Site, predicate: Expr) -> Self:
        """Raises SchemaError where the predicate is no boolean expression."""
        return cls(**site.fields(site.schema), condition=condition(predicate, site.schema, site.name))

    @classmethod
    def copies(cls, site: Site, ways: int) -> Self:
        """Every row goes every way."""
        return cls(**site.fields(site.schema), ways=ways)

    @classmethod
    def numbered(cls, site: Site, by: int, ways: int) -> Self:
        """Each row goes the way that a column says."""
        return cls(**site.fields(site.schema), by=by, ways=ways)

    @property
    def ports(self) -> int:
        return self.ways

    def laid(self, lane: int, lanes: Sequence[int], point: int, keep: int) -> Self:
        return self.changed(lane=lane, lanes=tuple(lanes), number=point)

    def lanes_taken(self) -> tuple[int, ...]:
        return (self.lane,)

    def lanes_made(self) -> tuple[int, ...]:
        return tuple(lane for lane in self.lanes if lane >= 0)

    def kernel(self) -> Any:
        from ordstream._core.kernels.branch import BranchKernel

        return BranchKernel(self)

    def reference(self) -> SerialOperator:
        return BranchReference(self)

    def columns_read(self) -> set[int]:
        if self.condition is not None:
            return set(self.condition.columns())
        return set() if self.by is None else {self.by}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def own_notes(self) -> list[str]:
        unused = [f"nobody takes way {way}" for way, lane in enumerate(self.lanes, 1) if lane < 0]
        return ["copies no row: the ways share its columns", *unused]

    def describe(self) -> str:
        if self.condition is not None:
            return f"branch {self.condition.text}"
        if self.by is not None:
            return f"branch by {self.input.names[self.by]} to {self.ways} ways"
        return f"every row goes {self.ways} ways"


class BranchReference(SerialOperator):
    """The ways of a row."""

    def ports_of(self, row: Row) -> Sequence[int]:
        operator = self.operator
        if operator.condition is not None:
            return [0 if evaluate_row(operator.condition, row) is True else 1]
        return range(operator.ways) if operator.by is None else [row[operator.by]]
