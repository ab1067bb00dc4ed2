"""Time punctuations: times that pass through all operators in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.types import column_index
from ordstream.operators.arguments import column_name

if TYPE_CHECKING:
    from ordstream.operators.operator import Operator


@dataclass(frozen=True)
class Every:
    """Time punctuation: see `every`."""

    column: str
    period: Duration

    def bind(self, schema: pa.Schema) -> tuple[int, int]:
        """Index of the time column in the source schema, and the period in its unit."""
        index = column_index(schema, self.column, "every")
        period = time_span(self.period, schema.field(index), "every: the period")
        if period < 1:
            raise PlanError(f"every: the period must be at least 1, got {self.period!r}")
        return index, period


def every(column: str, period: Duration) -> Every:
    """A time punctuation each time that a column of the source enters a new multiple of a period.

    Before a tuple whose `value // period` is greater than that of the one before, the time `value // period
    * period` passes through all operators in order. Nulls are not looked at. The column must ascend: a tuple
    earlier than the one before it is a SourceError.

    Parameters
    ----------
    column : str
        A column of the source: integer, timestamp or date.
    period : int, str or timedelta
        In the column's unit, or a duration such as "1m" for a timestamp or date.
    """
    return Every(column_name(column), period)


def clock_at(before: Sequence[Operator], index: int) -> int | None:
    """The clock of a run as an operator sees it: the source column whose values are those of a column here,
    if it is the clock.

    The first operator of a pipeline that wants a clock chooses its column; each tuple of the source moves
    it, also one that a filter drops.

    Parameters
    ----------
    before : sequence of Operator
        The operators in front.
    index : int
        Column of the tuples that arrive.

    Returns
    -------
    int or None
        None: the column is computed, or another one than the clock.
    """
    column: int | None = index
    for operator in reversed(before):
        passed = operator.columns_passed() if operator.keeps_time else {}
        column = None if column is None else passed.get(column)
    chosen = next((wanted[0] for one in before if (wanted := one.clock_wanted()) is not None), column)
    return column if column == chosen else None
