"""An operator as two halves: a part for every node, and a merge of the parts.

An operator without key sees all rows in one node. Where it is the last one and emits at the end only, most
of what it does can be done where the rows are: counts, sums of integers, minima and maxima do not depend on
the order of rows, so each node may send one row instead of all of its own. With a key, the same lets several
nodes share the rows of one key (`ordstream.spark.grouping`).

What does depend on the order is the row at which an integer sum overflows, which is an error. So a part
keeps the sum of the positive and that of the negative values apart. In whatever order the rows come, no sum
so far lies outside these two: where both, over all nodes, fit into int64, a sequential run does not
overflow, and its sum is theirs. Where one does not, the parts can't decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Column, Expr, col, if_else
from ordstream.expressions.lowering import lower
from ordstream.ground.types import is_counted, is_temporal
from ordstream.operators.aggregation import BoundAggregation
from ordstream.operators.operator import Operator
from ordstream.operators.project import Project

UNDECIDED = (
    "The answer is combined in each node first, where positive and negative values are added up apart. If "
    "one of these two sums does "
    "not fit into int64, the order of the rows decides whether the sum overflows, and at which row: run in "
    "one node, or with "
    "emit='updates'"
)
"""What to say, after the reason, where a half fails with an overflow and nothing else decides."""


@dataclass(frozen=True, eq=False)
class Halves:
    """An operator as two.

    Both halves have the operator's name. With the same rows they fail wherever the operator would, and
    perhaps elsewhere: see the module.

    Attributes
    ----------
    part : Operator
        Takes the operator's input in any node; gives one row (per key) at the end, or none where no row
        came.
    merge : tuple of Operator
        Take the parts' rows in any order; give the operator's output. With a key, the first one has it: the
        key columns lead the parts' rows.
    """

    part: Operator
    merge: tuple[Operator, ...]


def is_exact(aggregate: BoundAggregation, schema: pa.Schema) -> bool:
    """Whether parts of the aggregation give what the whole gives.

    Counts, sums and means of integers, minima and maxima of integers, dates and times do. Not: floats (their
    sums depend on the order, and so do the minima of 0.0 and -0.0), `first` and `last`.
    """
    if aggregate.function == "count":
        return True
    if aggregate.column is None:
        return False
    type_ = schema.field(aggregate.column).type
    if aggregate.function in ("sum", "mean"):
        return bool(pat.is_integer(type_))
    exact = pat.is_integer(type_) or is_temporal(type_) or is_counted(type_)
    return aggregate.function in ("min", "max") and bool(exact)


def combined(
    operator: Operator,
    aggregates: Sequence[BoundAggregation],
    aggregate: type[Any],
    above: int | None = None,
) -> Halves:
    """The halves of an operator whose output is its key columns and these aggregations, each exact.

    Parameters
    ----------
    operator : Operator
    aggregates : sequence of BoundAggregation
    aggregate : type
        `ordstream.operators.aggregate.Aggregate`, which both halves are.
    above : int, optional
        Only rows whose first value is more than this are given.
    """
    parts = _Parts(operator, aggregate)
    values = [parts.value(a) for a in aggregates]
    return parts.halves(values, None if above is None else values[0] > above)


class _Parts:
    """The columns between the halves of an operator, each once."""

    def __init__(self, operator: Operator, aggregate: type[Any]) -> None:
        self.operator = operator
        self.aggregate = aggregate
        self.keys = len(operator.key)
        self.fields: list[pa.Field] = list(operator.output)[: self.keys]
        self.part: list[BoundAggregation] = []
        self.merge: list[BoundAggregation] = []
        self._found: dict[Any, Expr] = {}

    def value(self, aggregate: BoundAggregation) -> Expr:
        """What the aggregation shows, as an expression over the merged columns."""
        function, column, where = aggregate[:3]
        if function == "count":
            return self._column("count", column, where, "sum", pa.int64())
        assert column is not None
        type_ = self.operator.input.field(column).type
        if function in ("min", "max"):
            return self._column(function, column, where, function, type_)
        total = self._sum(column, where, type_)
        if function == "sum":
            return total
        n = self._column("count", column, where, "sum", pa.int64())
        return if_else(n == 0, None, total / n)

    def _sum(self, column: int, where: BoundExpr | None, type_: pa.DataType) -> Expr:
        if pat.is_unsigned_integer(type_):
            return self._column("sum", column, where, "sum", pa.int64())
        x = col(self.operator.input.names[column])
        return self._column("sum", column, where, "sum", pa.int64(), x > 0) + self._column(
            "sum", column, where, "sum", pa.int64(), x < 0
        )

    def _column(
        self,
        function: str,
        column: int | None,
        where: BoundExpr | None,
        merged_by: str,
        type_: pa.DataType,
        sign: Expr | None = None,
    ) -> Expr:
        key = (function, column, id(where), repr(sign))
        if key not in self._found:
            index = len(self.fields)
            if sign is not None:
                where = _both(where, lower(sign, self.operator.input, self.operator.name))
            self.fields.append(pa.field(self._name(index), type_))
            self.part.append(BoundAggregation(function, column, where))
            self.merge.append(BoundAggregation(merged_by, index, None))
            self._found[key] = col(self.fields[index].name)
        return self._found[key]

    def _name(self, index: int) -> str:
        taken = {field.name for field in self.fields}
        name = f"part_{index}"
        while name in taken:
            name += "_"
        return name

    def halves(self, values: Sequence[Expr], where: Expr | None) -> Halves:
        """The two halves; `where`: only then the row is given."""
        operator, between = self.operator, pa.schema(self.fields)
        spread = {
            "name": operator.name,
            "partition": operator.partition,
            "buckets": operator.buckets,
            "emit": "final",
        }
        key = tuple(range(self.keys))
        part = self.aggregate(
            input=operator.input,
            output=between,
            key=operator.key,
            aggregates=tuple(self.part),
            half="part",
            **spread,
        )
        merge = self.aggregate(
            input=between, output=between, key=key, aggregates=tuple(self.merge), half="merge", **spread
        )
        columns = [
            between.names.index(v.name) if isinstance(v, Column) else lower(v, between, operator.name)
            for v in values
        ]
        shown = Project(
            name=f"{operator.name} (values)",
            input=between,
            output=operator.output,
            columns=(*key, *columns),
            where=None if where is None else lower(where, between, operator.name),
        )
        return Halves(part, (merge, shown))


def _both(where: BoundExpr | None, sign: BoundExpr) -> BoundExpr:
    """True where both conditions are; fails where `where` does."""
    if where is None:
        return sign
    return BoundExpr(
        (*where.code, *sign.code, ("and",)), "bool", pa.bool_(), f"({where.text} & {sign.text})"
    )
