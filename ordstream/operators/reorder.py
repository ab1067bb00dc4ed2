"""reorder: tuples that come a little out of order, put in order (K-slack)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration, shown_span, time_span
from ordstream.ground.ordercheck import comes_late
from ordstream.ground.types import INT64_MIN, column_index
from ordstream.operators.clocks import Clock, ReorderedClock
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Mark, Row, SerialOperator, Step

Late = Literal["raise", "drop", "adjust", "side_output"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reorder(Operator):
    """Output: input columns. One state in all.

    Attributes
    ----------
    time : int
    slack : int
        In the unit of the time column.
    marks : int or None
        Time punctuations are made for operators behind, at the multiples of so much; None: none.
    left : int or None
        Of these, operators in other nodes want the multiples of so much; None: none of them does.
    late : "raise", "drop", "adjust" or "side_output"
    """

    op: ClassVar[str] = "reorder"
    stateful: ClassVar[bool] = True
    keeps_time: ClassVar[bool] = False
    may_reject: ClassVar[bool] = True
    tells_errors: ClassVar[bool] = False

    time: int
    slack: int
    late: Late = "raise"
    marks: int | None = None
    left: int | None = None

    @classmethod
    def bind(cls, site: Site, time: str, slack: Duration, late: Any) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        index = column_index(schema, time, where)
        if not is_one_of(late, get_args(Late)):
            raise PlanError(
                f"{where}: late must be 'raise', 'drop', 'adjust' or 'side_output', got {late!r}"
            )
        measured = shown_span if late == "adjust" else time_span
        span = measured(slack, schema.field(index), f"{where}: slack")
        if span < 0:
            raise PlanError(f"{where}: slack must be at least 0, got {slack!r}")
        if site.rejects:
            raise PlanError(f"{where}: what it can't take are late rows: late='side_output', not on_error")
        fields = site.fields(schema)
        if late in ("drop", "side_output"):
            fields |= {"on_error": "skip", "rejects": late == "side_output"}
        return cls(**fields, time=index, slack=span, late=late)

    def kernel(self) -> Any:
        from ordstream._core.kernels.reorder import ReorderKernel

        return ReorderKernel(self)

    def reference(self) -> SerialOperator:
        return ReorderReference(self)

    def state_schema(self) -> pa.Schema | None:
        """One row with place 0 and the latest time so far, and no values; then each row that waits, in the
        order in which it will leave, from place 1 on.
        """
        own = [pa.field("place", pa.int64()), pa.field("latest", pa.int64())]
        return state_rows(self, [*own, *(field.with_nullable(True) for field in self.input)])

    def state_order(self) -> int:
        return 1

    def columns_read(self) -> set[int]:
        return set(range(len(self.input)))  # its state is whole rows, whatever is read of them later

    def columns_passed(self) -> dict[int, int]:
        passed = self.input_passed()
        if self.late == "adjust":
            del passed[self.time]
        return passed

    def clock_made(self) -> tuple[int, Clock]:
        return self.time, ReorderedClock(self.name)

    @property
    def marks_leave(self) -> bool:
        return self.left is not None

    def with_marks_left(self, period: int) -> Self:
        return self.changed(left=period, marks=math.gcd(self.marks or 0, period))

    def with_marks(self, period: int | None) -> Self:
        marks = math.gcd(period or 0, self.left or 0) or None
        return self if marks == self.marks else self.changed(marks=marks)

    def fails_by_state(self, message: str, row: Row) -> str | None:
        latest = int(message.rpartition(" ")[2])  # "a late row: 4 is more than the slack, 3, before 8"
        return "ValueError: " + comes_late(self.input.field(self.time), row[self.time], latest, self.slack)

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(self.spans_of(self.time))

    def _text(self, span: Callable[[int], str]) -> str:
        return f"reorder by {self.input.names[self.time]}, slack {span(self.slack)}, late {self.late}"

    def state_identity(self) -> dict[str, str]:
        # what becomes of a late row is nothing that the rows that wait depend on
        place = f"reorder by {self.input.names[self.time]}, slack {self.slack}"
        return {**super().state_identity(), "parameters": place}


class ReorderReference(Keyed):
    """A priority queue: a tuple leaves when one comes that is later by the slack, ties as they came."""

    def __init__(self, operator: Reorder) -> None:
        super().__init__(operator)
        self.waiting: list[tuple[int, int, Row]] = []
        self.latest: int | None = None
        self.arrived = 0

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        time = self.not_null(row, operator.time)
        if self.latest is not None and time < self.latest - operator.slack:
            if operator.late != "adjust":
                field = operator.input.field(operator.time)
                raise ValueError(comes_late(field, time, self.latest, operator.slack))
            self.adjusted += 1
            time = self.latest - operator.slack
            row = (*row[: operator.time], time, *row[operator.time + 1 :])
        before = None if self.latest is None else self.latest - operator.slack
        self.latest = time if self.latest is None else max(self.latest, time)
        self.arrived += 1
        heapq.heappush(self.waiting, (time, self.arrived, row))
        reached = self.latest - operator.slack
        rows: list[Row] = []
        while self.waiting and self.waiting[0][0] <= reached:
            due, _, leaves = heapq.heappop(self.waiting)
            rows += [*self.marks(before, due), leaves]
            before = due if before is None else max(before, due)
        return rows + self.marks(before, reached)

    def marks(self, before: int | None, now: int) -> list[Row]:
        """The punctuation that is due where the clock moves from a time to another one."""
        every = self.operator.marks
        if every is None or before is None:
            return []
        reached = max(now, INT64_MIN) // every
        return [Mark(reached * every)] if reached > max(before, INT64_MIN) // every else []

    def flush(self) -> list[Step]:
        rows = [row for _, _, row in sorted(self.waiting)]
        self.waiting = []
        return [lambda row=row: [row] for row in rows]  # type: ignore[misc]
