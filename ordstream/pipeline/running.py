"""Operators made of others: running values under the names that people look for, and differences.

They are `scan`, and `lag` with a projection, written shorter: `explain` shows what runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.expr import Column, Expr, col
from ordstream.ground.types import column_index, is_fixed_number, is_temporal, is_wide
from ordstream.operators.aggregate import Scan
from ordstream.operators.aggregation import Aggregation, count, max, mean, min, sum
from ordstream.operators.arguments import column_name, distance, nonempty
from ordstream.operators.error_policy import OnError
from ordstream.operators.kept_rows import MOST_ROWS
from ordstream.operators.lag import Lag

if TYPE_CHECKING:
    from ordstream.pipeline.pipeline import Pipeline


class RunningOperators:
    """Part of `StatefulOperators`."""

    _schema: pa.Schema
    _aggregated: Any
    _site: Any
    _then: Any

    def cum_sum(
        self,
        column: str | Expr,
        output: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple with the sum of a column so far, of its key. Output: input columns, then the sum.

        Parameters
        ----------
        column : str or Expr
            A number; of an expression `output` is needed.
        output : str, optional
            Name of the output column; default: the column's with "_cum_sum".
        """
        return self._running(sum, "cum_sum", column, output, name, on_error)

    def cum_min(
        self,
        column: str | Expr,
        output: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """As `cum_sum`: the smallest value so far.

        Parameters
        ----------
        column : str or Expr
            As for `cum_sum`.
        output : str, optional
            Name of the output column; default: the column's with "_cum_min".
        """
        return self._running(min, "cum_min", column, output, name, on_error)

    def cum_max(
        self,
        column: str | Expr,
        output: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """As `cum_sum`: the largest value so far.

        Parameters
        ----------
        column : str or Expr
            As for `cum_sum`.
        output : str, optional
            Name of the output column; default: the column's with "_cum_max".
        """
        return self._running(max, "cum_max", column, output, name, on_error)

    def cum_mean(
        self,
        column: str | Expr,
        output: str | None = None,
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """As `cum_sum`: the mean so far.

        Parameters
        ----------
        column : str or Expr
            As for `cum_sum`.
        output : str, optional
            Name of the output column; default: the column's with "_cum_mean".
        """
        return self._running(mean, "cum_mean", column, output, name, on_error)

    def cum_count(
        self, output: str = "cum_count", *, name: str | None = None, on_error: OnError = "fail"
    ) -> Pipeline:
        """Each tuple with its number among those of its key, from 1. Output: input columns, `output`."""
        return self._running(count, "cum_count", None, output, name, on_error)

    def diff(
        self,
        column: str,
        output: str | None = None,
        *,
        n: int = 1,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Pipeline:
        """Each tuple with the difference to the tuple n before it of the same key. Output: input columns,
        then this.

        Null for a key's first n tuples, and where one of the two is null. Integers: int64, an overflow is an
        error; decimals: a decimal; timestamps: a duration; dates and times: int64 in their unit.

        Parameters
        ----------
        column : str
            A number, date or time.
        output : str, optional
            Default: the column's name with "_diff".
        n : int
            At least 1.
        """
        site = self._site("diff", name, on_error)
        n = distance(n, site.name, MOST_ROWS)
        index = column_index(self._schema, column, site.name)
        field = self._schema.field(index)
        here, before = col(field.name), f"{field.name} {n} before"
        while before in self._schema.names:
            before += "_"
        there: Expr = col(before)
        if is_temporal(field.type):
            here, there = here.cast(pa.int64()), there.cast(pa.int64())  # type: ignore[assignment]
        elif not (is_fixed_number(field.type) or is_wide(field.type)):
            raise SchemaError(
                f"{site.name}: {field.name!r} must be a number, date or time, it is {field.type}"
            )
        difference: Expr = here - there
        if pat.is_timestamp(field.type) or pat.is_duration(field.type):
            difference = difference.cast(pa.duration(field.type.unit))
        output = f"{field.name}_diff" if output is None else nonempty(output, f"{site.name}: output")
        lagged = self._then(Lag.bind(replace(site, name=f"{site.name}: lag"), {before: field.name}, n))
        kept = [*self._schema.names, difference.alias(output)]
        made: Pipeline = lagged.select(*kept, name=site.name, on_error=on_error)
        return made

    def _running(
        self,
        aggregation: Any,
        method: str,
        column: str | Expr | None,
        output: str | None,
        name: str | None,
        on_error: OnError,
    ) -> Pipeline:
        site = self._site(method, name, on_error)
        where = site.name
        if isinstance(column, Expr) and not isinstance(column, Column):
            if output is None:
                raise SchemaError(
                    f"{where}: the column made of {column!r} needs a name: {method}(..., 'total')"
                )
        elif aggregation is not count:
            column = column_name(column, where)
        made: Aggregation = aggregation() if column is None else aggregation(column)
        named = f"{column}_{method}" if output is None else nonempty(output, f"{where}: output")
        result: Pipeline = self._aggregated(site, Scan.bind, (made.alias(named),), {})
        return result
