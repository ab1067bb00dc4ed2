"""The value of an expression on one row, by the reference semantics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ordstream.errors import SchemaError
from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.expressions.expr import Expr
from ordstream.expressions.lowering import lower


def evaluate(
    expression: BoundExpr | Expr, row: Sequence[Any] | Mapping[str, Any], schema: pa.Schema | None = None
) -> Any:
    """Value of an expression on one row, by the reference semantics of `ordstream/expressions/bound.py`.

    Parameters
    ----------
    expression : BoundExpr or Expr
        An `Expr` needs `schema`.
    row : sequence or mapping
        Storage values (`ordstream/ground/types.py`) by column index, or by name with `schema`.
    schema : pyarrow.Schema, optional

    Raises
    ------
    OverflowError, ZeroDivisionError
        Of the operations, at this row.
    """
    if isinstance(expression, Expr):
        if schema is None:
            raise SchemaError("evaluating an expression needs the schema of the row")
        expression = lower(expression, schema, "evaluate")
    if isinstance(row, Mapping):
        if schema is None:
            raise SchemaError("a row given by name needs its schema")
        row = [row[name] for name in schema.names]
    return evaluate_row(expression, row)
