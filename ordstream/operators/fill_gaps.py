"""fill_gaps: the windows of a key, with the empty ones between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.operators.aggregation import Accumulators
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.operators.window import Window
from ordstream.operators.window_kinds import BoundWindow
from ordstream.reference.base import Keyed, Row, SerialOperator

#: Most empty windows in one gap: more are a mistake in a time, and would fill the memory.
MOST_IN_A_GAP = 1 << 20


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
    """

    op: ClassVar[str] = "fill_gaps"
    stateful: ClassVar[bool] = True

    window: BoundWindow
    time: str
    empty: tuple[Any, ...]
    most: int = MOST_IN_A_GAP

    @classmethod
    def behind(cls, window: Operator, site: Site) -> Self:
        """Behind a window operator; `site`: that one's."""
        assert isinstance(window, Window)
        aggregates = Accumulators(window.aggregates, window.input)
        empty = (*aggregates.values(aggregates.start()), *((True,) if window.emit == "both" else ()))
        placed = replace(site, schema=window.output, key=tuple(range(len(window.key))),
                         name=f"{window.name}: gaps")  # fmt: skip
        time = window.input.names[window.time]
        return cls(**placed.fields(window.output), window=window.window, time=time, empty=empty)

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
        return f"fill_gaps{self.by_key}: {self.window.text(span)} of {self.time}"

    def own_notes(self) -> list[str]:
        return ["empty windows come in front of their key's next window; no key is forgotten"]


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
        gap = []
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
