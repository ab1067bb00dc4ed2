"""Combining an answer in each node first: one operator as two, a part for every node and a merge of the parts.

With a key, the same lets several nodes share the rows of one key (`ordstream.spark.grouping`).

An operator without key sees all rows in one node. Where it is the last one and emits at the end only, most of what it
does can be done where the rows are: counts, sums of integers, minima and maxima do not depend on the order of rows, so
each node may send one row instead of all of its own. What does depend on the order is the row at which an integer sum
overflows, which is an error. So a part keeps the sum of the positive and that of the negative values apart. In
whatever order the rows come, no sum so far lies outside these two: where both, over all nodes, fit into int64, a
sequential run does not overflow, and its sum is theirs. Where one does not, the parts can't decide.

This module knows single stages. `ordstream.fragments.fragmenting` puts the two halves into fragments.
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
from ordstream.ground.types import is_temporal
from ordstream.operators.arguments import BoundAggregation
from ordstream.plan.stages import Stage

UNDECIDED = (
    "The answer is combined in each node first, where positive and negative values are added up apart. If one of these two sums does "
    "not fit into int64, the order of the rows decides whether the sum overflows, and at which row: run in one node, or with "
    "emit='updates'"
)
"""What to say, after the reason, where a half fails with an overflow and nothing else decides."""


@dataclass(frozen=True, eq=False)
class Halves:
    """An operator as two.

    Attributes
    ----------
    part : Stage
        Takes the operator's input in any node; gives one row (per key) at the end, or none where no row came.
    merge : tuple of Stage
        Take the parts' rows in any order; give the operator's output. With a key, the first one has it: the key columns lead
        the parts' rows.
    """

    part: Stage
    merge: tuple[Stage, ...]


def halves(stage: Stage) -> Halves | None:
    """An operator as a part per node and a merge, or None where that is not exact, or not known to be.

    It must be a count or an aggregate, with or without key, that emits at the end only and fails on errors, of counts, sums and
    means of integers, minima and maxima of integers, dates and times. Not: floats (their sums depend on the order, and
    so do the minima of 0.0 and -0.0), `first` and `last`, `on_error="skip"` (what is skipped depends on the sum so far).

    Both halves have the operator's name. With the same rows they fail wherever the operator would, and perhaps
    elsewhere: see the module.
    """
    if stage.kind == "SL" or stage.on_error != "fail" or stage.params.get("emit") != "final":
        return None
    if stage.op == "count" and stage.params["window"] is None:
        aggregates: Sequence[BoundAggregation] = [BoundAggregation("count", None, None)]
    elif stage.op == "aggregate" and all(_is_exact(a, stage.input) for a in stage.params["aggregates"]):
        aggregates = stage.params["aggregates"]
    else:
        return None
    parts = _Parts(stage)
    values = [parts.value(a) for a in aggregates]
    above = stage.params.get("above")
    return parts.halves(values, None if above is None else values[0] > above)


def _is_exact(aggregate: BoundAggregation, schema: pa.Schema) -> bool:
    if aggregate.function == "count":
        return True
    if aggregate.column is None:
        return False
    type_ = schema.field(aggregate.column).type
    if aggregate.function in ("sum", "mean"):
        return bool(pat.is_integer(type_))
    return aggregate.function in ("min", "max") and bool(pat.is_integer(type_) or is_temporal(type_))


class _Parts:
    """The columns between the halves of an operator, each once."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.keys = len(stage.key)
        self.fields: list[pa.Field] = list(stage.output)[: self.keys]
        self.part: list[BoundAggregation] = []
        self.merge: list[BoundAggregation] = []
        self._found: dict[Any, Expr] = {}

    def value(self, aggregate: BoundAggregation) -> Expr:
        """What the aggregation shows, as an expression over the merged columns."""
        function, column, where = aggregate
        if function == "count":
            return self._column("count", column, where, "sum", pa.int64())
        assert column is not None
        type_ = self.stage.input.field(column).type
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
        x = col(self.stage.input.names[column])
        return self._column("sum", column, where, "sum", pa.int64(), x > 0) + self._column("sum", column, where, "sum", pa.int64(), x < 0)

    def _column(
        self, function: str, column: int | None, where: BoundExpr | None, merged_by: str, type_: pa.DataType, sign: Expr | None = None
    ) -> Expr:
        key = (function, column, id(where), repr(sign))
        if key not in self._found:
            index = len(self.fields)
            if sign is not None:
                where = _both(where, lower(sign, self.stage.input, self.stage.name))
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
        stage, between = self.stage, pa.schema(self.fields)
        spread = {"partition": stage.partition, "buckets": stage.buckets}
        part = Stage(
            stage.name,
            stage.kind,
            "aggregate",
            stage.input,
            between,
            stage.key,
            {"aggregates": self.part, "emit": "final", "half": "part"},
            **spread,
        )
        key = tuple(range(self.keys))
        merged = {"aggregates": self.merge, "emit": "final", "half": "merge"}
        merge = Stage(stage.name, stage.kind, "aggregate", between, between, key, merged, **spread)
        columns = [between.names.index(v.name) if isinstance(v, Column) else lower(v, between, stage.name) for v in values]
        condition = None if where is None else lower(where, between, stage.name)
        shown = Stage(
            f"{stage.name} (values)", "SL", "project", between, stage.output, params={"columns": [*key, *columns], "where": condition}
        )
        return Halves(part, (merge, shown))


def _both(where: BoundExpr | None, sign: BoundExpr) -> BoundExpr:
    """True where both conditions are; fails where `where` does."""
    if where is None:
        return sign
    return BoundExpr((*where.code, *sign.code, ("and",)), "bool", pa.bool_(), f"({where.text} & {sign.text})")
