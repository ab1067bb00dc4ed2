"""window: aggregations over windows side by side, hopping ones or sessions, which forget what is closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.ground.duration import time_span
from ordstream.ground.types import column_index, integer_range
from ordstream.operators.aggregation import (
    Accumulators,
    Aggregation,
    BoundAggregation,
    bound_aggregations,
    calls,
    columns_of_aggregates,
    overflow_of_sums,
)
from ordstream.operators.arguments import beside_own, emission
from ordstream.operators.clocks import Clock, clock_at, clock_text
from ordstream.operators.gathered import is_apart
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import accumulator_fields, gathered_field, state_rows
from ordstream.operators.window_kinds import BoundWindow, WindowKind
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step

Emit = Literal["close", "updates", "both"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Window(Operator):
    """Output: key columns, start, end, one column per aggregate; with emit="both" then `closed`.

    Of a tumbling or hopping window, or the calendar's, `start` belongs to it and `end` does not; of a
    session they are the times of its first and its last tuple.

    Attributes
    ----------
    window : BoundWindow
        "tumbling", "hopping", "calendar" or "session".
    time : int
    aggregates : tuple of BoundAggregation
    emit : "close", "updates" or "both"
    clock : Clock or None
        The clock that closes it; None: each key's next row does.
    """

    op: ClassVar[str] = "window"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True

    window: BoundWindow
    time: int
    aggregates: tuple[BoundAggregation, ...]
    emit: Emit = "close"
    clock: Clock | None = None

    @classmethod
    def bind(
        cls,
        site: Site,
        kind: WindowKind,
        time: str | None,
        named: Sequence[Aggregation],
        keywords: Mapping[str, Aggregation],
        emit: Any,
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        emission(emit, ("close", "updates", "both"), where)
        if time is None:
            raise PlanError(f"{where}: a window needs its time column: .window(..., time='ts')")
        index = column_index(schema, time, where)
        window = kind.bind(schema.field(index), where)
        more, aggregates = bound_aggregations(named, keywords, schema, where)
        if not more:
            raise PlanError(f"{where}: at least one aggregation is needed, such as total=od.sum('x')")
        type_ = schema.field(index).type
        shown = pa.int64() if pat.is_integer(type_) else type_
        fields = [pa.field("start", shown), pa.field("end", shown), *more]
        fields += [pa.field("closed", pa.bool_())] * (emit == "both")
        beside_own(more, ("start", "end", *["closed"] * (emit == "both")), where)
        return cls(
            **site.fields(site.behind_key(fields)),
            window=window,
            time=index,
            aggregates=tuple(aggregates),
            emit=emit,
            clock=clock_at(site.before, index),
        )

    def kernel(self) -> Any:
        if self.window.every:
            from ordstream._core.kernels.hopping import HoppingKernel

            return HoppingKernel(self)
        from ordstream._core.kernels.window import WindowKernel

        return WindowKernel(self)

    def reference(self) -> SerialOperator:
        return HoppingReference(self) if self.window.every else WindowReference(self)

    def clock_wanted(self) -> tuple[Clock, int] | None:
        return None if self.clock is None else (self.clock, self.window.marks)

    def only_forgets(self) -> bool:
        return self.emit == "updates"

    def clock_input(self) -> int | None:
        return self.time

    def with_clock(self, clock: Clock | None) -> Self:
        return self.changed(clock=clock)

    def state_schema(self) -> pa.Schema | None:
        """The open window: start, time of the latest tuple, the aggregates.

        Of hopping windows: start of the oldest open one, time of the latest tuple, then lists side by side,
        of each window and aggregation whether there is a value, and the words that are kept; then per
        aggregation that keeps values of each window how many bytes these are, and the bytes.
        """
        first, time = len(self.key), self.input.field(self.time)
        own = [self.output.field(first), pa.field("last", time.type)]
        if not self.window.every:
            return state_rows(self, own + self._accumulator_fields())
        own += [pa.field("there", pa.list_(pa.bool_())), pa.field("words", pa.list_(pa.int64()))]
        names = self.output.names[first + 2 :]
        shown = zip(names, self._gathered(), strict=False)
        return state_rows(self, own + [gathered_field(name) for name, gathered in shown if gathered])

    def _accumulator_fields(self) -> list[pa.Field]:
        shown = self
        if self.emit == "both":  # the aggregates are what the output ends with, but for `closed`
            shown = self.changed(output=pa.schema(list(self.output)[:-1]))
        return accumulator_fields(shown, self.aggregates)

    def state_identity(self) -> dict[str, str]:
        # when a window is shown is nothing that it depends on
        told = {"parameters": f"window{self.by_key}{self._what()}"}
        columns = [i for a in self.aggregates for i in (a.column, a.by) if i is not None]
        if self.window.every or any(self._gathered()):  # the columns of the state don't tell the types
            told["columns"] = ", ".join(str(self.input.field(i).type) for i in columns) or "none"
        return {**super().state_identity(), **told}

    def _gathered(self) -> list[bool]:
        """Of each aggregation whether it keeps values."""
        return [
            a.column is not None and a.gathered(is_apart(self.input.field(a.column).type))
            for a in self.aggregates
        ]

    def fails_by_state(self, message: str, row: Row) -> str | None:
        return overflow_of_sums(message, self.aggregates, self.input, row)

    def columns_read(self) -> set[int]:
        return {*self.key, self.time} | columns_of_aggregates(self.aggregates)

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return f"window{self.by_key}{self._what()}, emit {self.emit}"

    def shown(self) -> str:
        return f"window{self.by_key}{self._what(self.spans_of(self.time))}, emit {self.emit}"

    def _what(self, span: Callable[[int], str] = str) -> str:
        made = calls(self.input.names, self.aggregates)
        return f": {self.window.text(span)} of {self.input.names[self.time]}: {made}"

    def own_notes(self) -> list[str]:
        field, bound = self.input.field(self.time), self.window
        if self.clock is None:
            text = f"{field.name!r} is not the clock: a window closes at its key's next row, or at the end"
        else:
            marks = self.spans_of(self.time)(bound.marks)
            text = f"closed by {clock_text(self.clock)}, at multiples of {marks}"
        notes = [text]
        zone = getattr(field.type, "tz", None)
        if bound.kind == "tumbling" and not bound.offset and zone not in (None, "UTC"):
            days = bound.length / time_span("1d", field, self.name)
            if days.is_integer():
                notes.append(f"days of UTC: od.calendar('1d') has those of {zone}")
        return notes

    def grows(self) -> tuple[int | None, frozenset[int]] | None:
        # A window is given once when it closes: its key and start tell it.
        return (None, frozenset(range(len(self.key) + 1))) if self.emit == "close" else None

    def final(self) -> Operator:
        raise PlanError(
            f"emit='final': {self.name!r} forgets a window when it is closed, so nothing is left to say at "
            "the end of the stream; run with emit='updates', or leave emit out"
        )


class Open(NamedTuple):
    """An open window of a key."""

    start: int
    last: int
    accumulators: list[Any]


class WindowReference(Keyed):
    """A key has at most one open window.

    Its next tuple outside closes it. So does the clock, at the multiples that the window looks at: one that
    ends there or before; a session whose last tuple is more than the timeout before. Nothing is
    known then of the key.
    """

    def __init__(self, operator: Window) -> None:
        super().__init__(operator)
        self.accumulators = Accumulators(operator.aggregates, operator.input)
        self.limits = integer_range(operator.output.field(len(operator.key)).type)

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        time = self.not_null(row, operator.time)
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        window = self.states.get(key)
        self.not_earlier(time, None if window is None else window.last, operator.time)
        start = self.start_of(time, window)
        stays = window is not None and window.start == start
        before = window.accumulators if window and stays else self.accumulators.start()
        after = self.accumulators.advance(before, row, chosen)
        rows = [] if window is None or stays or operator.emit == "updates" else [self.shown(key, True)]
        self.states[key] = Open(start, time, after)
        return rows if operator.emit == "close" else [*rows, self.shown(key, False)]

    def start_of(self, time: int, window: Open | None) -> int:
        """Start of the window of a tuple."""
        bound: BoundWindow = self.operator.window
        if bound.kind == "session":
            return window.start if window is not None and time - window.last <= bound.length else time
        start, end = bound.interval(time)
        if start < self.limits[0] or end > self.limits[1]:
            raise OverflowError(f"the window from {start} to {end} is out of range")
        return start

    def end_of(self, window: Open) -> int:
        """What is shown as the end of a window."""
        bound: BoundWindow = self.operator.window
        return window.last if bound.kind == "session" else bound.interval(window.start)[1]

    def on_time(self, time: int) -> list[Step]:
        operator, bound = self.operator, self.operator.window
        if operator.clock is None:
            return []
        now = time // bound.marks * bound.marks
        due = []
        for key, window in self.states.items():
            end = self.end_of(window)
            if now - end > bound.length if bound.kind == "session" else end <= now:
                due.append((end, key))
        return [lambda key=key: self.close(key) for _, key in sorted(due)]  # type: ignore[misc]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.close(key) for key in self.ascending()]  # type: ignore[misc]

    def close(self, key: SortKey) -> list[Row]:
        row = self.shown(key, True)
        del self.states[key]
        return [] if self.operator.emit == "updates" else [row]

    def shown(self, key: SortKey, closed: bool) -> Row:
        window = self.states[key]
        values = self.accumulators.values(window.accumulators)
        told = (closed,) if self.operator.emit == "both" else ()
        return (*self.key_values[key], window.start, self.end_of(window), *values, *told)


class Hops(NamedTuple):
    """The open windows of a key: the accumulators by start, ascending."""

    last: int
    windows: dict[int, list[Any]]


class HoppingReference(Keyed):
    """A key has an open window for each multiple of `every` whose window its latest tuple lies in.

    Its next tuple closes those that end at its time or before; so does the clock, at the multiples of
    `every`. Without an open window nothing is known of the key.
    """

    def __init__(self, operator: Window) -> None:
        super().__init__(operator)
        self.accumulators = Accumulators(operator.aggregates, operator.input)
        self.limits = integer_range(operator.output.field(len(operator.key)).type)

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        time = self.not_null(row, operator.time)
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        state = self.states.get(key)
        self.not_earlier(time, None if state is None else state.last, operator.time)
        open_ = {} if state is None else state.windows
        after = {
            start: self.accumulators.advance(open_.get(start) or self.accumulators.start(), row, chosen)
            for start in self.starts(time)
        }
        closed = [self.shown(key, start, open_[start], True) for start in open_ if start not in after]
        self.states[key] = Hops(time, after)
        rows = [] if operator.emit == "updates" else closed
        if operator.emit != "close":
            rows += [self.shown(key, start, window, False) for start, window in after.items()]
        return rows

    def starts(self, time: int) -> list[int]:
        """Starts of the windows that a time lies in."""
        length, every, offset = (getattr(self.operator.window, one) for one in ("length", "every", "offset"))
        first = ((time - length - offset) // every + 1) * every + offset
        newest = (time - offset) // every * every + offset
        if first < self.limits[0] or newest + length > self.limits[1]:
            raise OverflowError(f"the windows from {first} to {newest + length} are out of range")
        return list(range(first, newest + 1, every))

    def on_time(self, time: int) -> list[Step]:
        if self.operator.clock is None:
            return []
        window = self.operator.window
        now = time // window.marks * window.marks
        due = [
            (start + window.length, key, start)
            for key, state in self.states.items()
            for start in state.windows
            if start + window.length <= now
        ]
        return [partial(self.close, key, start) for _, key, start in sorted(due)]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.close_all(key) for key in self.ascending()]  # type: ignore[misc]

    def close_all(self, key: SortKey) -> list[Row]:
        return [row for start in list(self.states[key].windows) for row in self.close(key, start)]

    def close(self, key: SortKey, start: int) -> list[Row]:
        windows = self.states[key].windows
        row = self.shown(key, start, windows.pop(start), True)
        if not windows:
            del self.states[key]
        return [] if self.operator.emit == "updates" else [row]

    def shown(self, key: SortKey, start: int, window: list[Any], closed: bool) -> Row:
        operator = self.operator
        told = (closed,) if operator.emit == "both" else ()
        values = self.accumulators.values(window)
        return (*self.key_values[key], start, start + operator.window.length, *values, *told)
