"""Time punctuations: times that pass through all operators in order."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, nanoseconds, of_arrow, time_span
from ordstream.ground.numbers import as_int
from ordstream.ground.types import column_index
from ordstream.operators.arguments import column_name


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


def check_every(punctuate: Any) -> None:
    """PlanError unless a run can have it as its `punctuate=`."""
    if punctuate is not None and not isinstance(punctuate, Every):
        raise PlanError(f"punctuate must be od.every(column, period), got {punctuate!r:.80}")


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
    made = Every(column_name(column), period)
    _check_period(period)
    return made


def _check_period(period: Any) -> None:
    """PlanError for what is a period of no column; what its column's unit needs is checked by `bind`."""
    given = as_int(of_arrow(period))
    if isinstance(given, int) and not isinstance(given, bool):
        length: Any = given
    elif isinstance(given, str | datetime.timedelta | np.timedelta64):
        length = nanoseconds(given, "every: the period")
    else:
        raise PlanError(f"every: the period must be an int, a timedelta or a text, '1m', got {given!r:.80}")
    if length <= 0:
        raise PlanError(f"every: the period must be at least 1, got {period!r}")
