"""project: output columns that are input columns or computed by expressions (select, with_columns, drop,
rename).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.errors import SchemaError, unknown_column
from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.expressions.expr import Alias, Column
from ordstream.expressions.lowering import lower
from ordstream.ground.types import column_index
from ordstream.operators.arguments import columns_of, where_text
from ordstream.operators.operator import Operator, Site, named_once
from ordstream.reference.base import Row, SerialOperator, true_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Project(Operator):
    """One output column per entry.

    Attributes
    ----------
    columns : tuple of int or BoundExpr
        An input column passed through, or what computes a column.
    where : BoundExpr or None
        Only rows where it is True pass; the columns are computed for these alone.
    """

    op: ClassVar[str] = "project"
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    columns: tuple[int | BoundExpr, ...]
    where: BoundExpr | None = None

    @classmethod
    def bind(cls, site: Site, chosen: Sequence[tuple[str, Any]], where: BoundExpr | None = None) -> Self:
        """`chosen`: output name and column name, expression or constant, in order.

        Raises
        ------
        SchemaError
            An unknown column, operands that do not go together, two outputs of one name, or none.
        """
        columns: list[int | BoundExpr] = []
        there = frozenset(site.schema.names)
        fields: list[pa.Field] = []
        for name, expr in chosen:
            if isinstance(expr, str):
                if expr not in there:
                    unknown = unknown_column(expr, site.schema.names, site.name)
                    raise SchemaError(f"{unknown}; {name}={expr!r} is a column, a text is od.lit({expr!r})")
                expr = Column(expr)
            expr = expr.expr if isinstance(expr, Alias) else expr
            if isinstance(expr, Column):
                index = column_index(site.schema, expr.name, site.name)
                columns.append(index)
                fields.append(site.schema.field(index).with_name(name))
            else:
                bound = lower(expr, site.schema, site.name)
                columns.append(bound)
                fields.append(pa.field(name, bound.arrow))
        if not fields:
            raise SchemaError(f"{site.name}: at least one column must remain")
        return cls(**site.fields(named_once(fields, site.name)), columns=tuple(columns), where=where)

    def kernel(self) -> Any:
        from ordstream._core.kernels.project import ProjectKernel

        return ProjectKernel(self)

    def reference(self) -> SerialOperator:
        return ProjectReference(self)

    def columns_read(self) -> set[int]:
        return columns_of(self.where, *self.columns)

    def columns_passed(self) -> dict[int, int]:
        return {out: column for out, column in enumerate(self.columns) if isinstance(column, int)}

    def column_made(self, column: int) -> int | BoundExpr | None:
        return self.columns[column]

    def describe(self) -> str:
        names = self.input.names
        texts = [names[c] if isinstance(c, int) else c.text for c in self.columns]
        pairs = zip(self.output.names, texts, strict=True)
        columns = ", ".join(out if out == text else f"{out} = {text}" for out, text in pairs)
        return f"project {columns}{where_text(self.where)}"


class ProjectReference(SerialOperator):
    """One output column per entry: an input column passed through, or the value of an expression."""

    def process(self, row: Row) -> list[Row]:
        if not true_of(self.operator.where, row):
            return []
        columns, made = self.operator.columns, list[Any]()
        try:
            for column in columns:
                made.append(evaluate_row(column, row) if isinstance(column, BoundExpr) else row[column])
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            if sum(isinstance(column, BoundExpr) for column in columns) < 2:
                raise
            kinds = (ValueError, OverflowError, ZeroDivisionError)
            kind = next(kind for kind in kinds if isinstance(error, kind))
            raise kind(f"column {self.operator.output.names[len(made)]!r}: {error}") from error
        return [tuple(made)]
