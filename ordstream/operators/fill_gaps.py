"""fill_gaps: the windows of a key, with the empty ones between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.types import INT64_MAX
from ordstream.operators.aggregation import Accumulators
from ordstream.operators.clocks import Clock, clock_text
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.operators.window import Window
from ordstream.operators.window_kinds import BoundWindow
from ordstream.reference.base import Keyed, Row, SerialOperator, Step

#: Most empty windows in one gap: more are a mistake in a time, and would fill the memory.
MOST_IN_A_GAP = 1 << 20


def reach_of(longest: Duration, field: pa.Field, where: str) -> int:
    """How far back gaps are filled, in the time column's unit; PlanError where it is no length of time."""
    reach = time_span(longest, field, f"{where}: fill_gaps")
    if reach < 1:
        raise PlanError(f"{where}: fill_gaps must be True or a length of time, got {longest!r}")
    return reach


@dataclass(frozen=True, eq=False, kw_only=True)
class FillGaps(Operator):
    """Output: input columns. It stands behind a window operator, whose output begins with the key, start and
    end.

    Attributes
    ----------
    window : BoundWindow
        "tumbling", "hopping" or "calendar".
    time : str
        The column whose windows they are; only for `explain`.
    empty : tuple
        What the columns behind the end have in an empty window, in storage values.
    most : int
        So many empty windows may lie in one gap.
    reach : int or None
        A window that begins so much behind the one before, and no more, has a gap that is filled; None: any.
    clock : Clock or None
        Where there is a reach, the clock that forgets keys; None: they are kept.
    """

    op: ClassVar[str] = "fill_gaps"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True

    window: BoundWindow
    time: str
    empty: tuple[Any, ...]
    most: int = MOST_IN_A_GAP
    reach: int | None = None
    clock: Clock | None = None

    @classmethod
    def behind(cls, window: Operator, site: Site, longest: Duration | None = None) -> Self:
        """Behind a window operator; `site`: that one's; `longest`: the reach, as a user wrote it.

        Raises
        ------
        PlanError
            The reach is no length of time.
        """
        assert isinstance(window, Window)
        aggregates = Accumulators(window.aggregates, window.input)
        empty = (*aggregates.values(aggregates.start()), *((True,) if window.emit == "both" else ()))
        placed = replace(site, schema=window.output, key=tuple(range(len(window.key))),
                         name=f"{window.name}: gaps")  # fmt: skip
        field, reach = window.input.field(window.time), None
        if longest is not None:
            reach = reach_of(longest, field, window.name)
        return cls(**placed.fields(window.output), window=window.window, time=field.name, empty=empty,
                   reach=reach, clock=None if reach is None else window.clock)  # fmt: skip

    @property
    def period(self) -> int:
        """Of the marks that it looks at: of those that its windows look at every so many."""
        marks = self.window.marks
        return min(-(-(self.reach or 1) // marks), INT64_MAX // marks) * marks

    def clock_wanted(self) -> tuple[Clock, int] | None:
        return None if self.clock is None else (self.clock, self.period)

    def with_clock(self, clock: Clock | None) -> Self:
        return self.changed(clock=clock)

    @property
    def too_many(self) -> str:
        """What is said of a row with more empty windows in front of it."""
        return f"more than {self.most} empty windows lie in front of this one: is its time right?"

    def kernel(self) -> Any:
        from ordstream._core.kernels.fill_gaps import FillGapsKernel

        return FillGapsKernel(self)

    def reference(self) -> SerialOperator:
        return FillGapsReference(self)

    def state_schema(self) -> pa.Schema | None:
        """Start of the latest window."""
        return state_rows(self, [self.output.field(len(self.key))])

    def columns_passed(self) -> dict[int, int]:
        return {index: index for index in self.key}

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(self.spans_of(len(self.key)))

    def _text(self, span: Callable[[int], str]) -> str:
        longest = "" if self.reach is None else f", up to {span(self.reach)} from one start to the next"
        return f"fill_gaps{self.by_key}: {self.window.text(span)} of {self.time}{longest}"

    def own_notes(self) -> list[str]:
        forgotten = "no key is forgotten"
        if self.clock is not None:
            period = self.spans_of(len(self.key))(self.period)
            forgotten = f"keys are forgotten by {clock_text(self.clock)}, at multiples of {period}"
        return [f"empty windows come in front of their key's next window; {forgotten}"]


class FillGapsReference(Keyed):
    """In front of a window those of its key that lie between it and the one before. A state is the start of
    the latest window.
    """

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        first = len(operator.key)
        key = self.key_of(row)
        start: int = row[first]
        before: int = self.states.get(key, start)
        gap: list[Row] = []
        if operator.reach is not None and start - before > operator.reach:
            self.states[key] = start
            return [row]
        while start > before:
            before, end = self.next_of(before)
            if before < start:
                gap.append((*row[:first], before, end, *operator.empty))
            if len(gap) > operator.most:
                raise OverflowError(operator.too_many)
        self.states[key] = before
        return [*gap, row]

    def next_of(self, start: int) -> tuple[int, int]:
        """Start and end of the window behind one."""
        window: BoundWindow = self.operator.window
        if window.every:
            return start + window.every, start + window.every + window.length
        return window.interval(window.interval(start)[1])

    def on_time(self, time: int) -> list[Step]:
        """Forget keys whose next window begins beyond their reach: what is given does not show it."""
        operator = self.operator
        if operator.clock_wanted() is not None:
            mark = time // operator.period * operator.period
            for key in [key for key, start in self.states.items() if self.out_of_reach(start, mark)]:
                del self.states[key]
        return []

    def out_of_reach(self, start: int, mark: int) -> bool:
        """Whether each window that ends behind a mark begins more than the reach behind a start."""
        window, reach = self.operator.window, self.operator.reach
        if window.calendar is None:
            return bool(mark - start >= reach + window.length)
        number = bisect_right(window.calendar.starts, mark, hi=len(window.calendar.starts) - 1) - 1
        return number >= 0 and int(window.calendar.starts[number]) - start > reach
