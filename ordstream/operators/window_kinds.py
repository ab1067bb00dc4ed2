"""Kinds of windows: what a user gives to `.window(...)`, and what it is for a time column."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration, abbreviated, shown_span, time_span
from ordstream.operators.arguments import positive_int
from ordstream.operators.calendar import INTERVALS, Calendar

Closed = Literal["right", "left", "both", "neither"]
CLOSED = ("right", "left", "both", "neither")


class BoundWindow(NamedTuple):
    """A kind of window in the unit of its time column.

    Attributes
    ----------
    kind : str
        "tumbling", "hopping", "calendar", "session", "rolling" or "rows".
    length : int
        Length, timeout, period, or number of rows; of a calendar 0.
    closed : str
        Of a rolling window: the ends that belong to it.
    every : int
        Of hopping windows: the distance of their starts; else 0.
    offset : int
        Of tumbling and hopping windows: where one begins, from 0 to their distance.
    calendar : Calendar or None
        Where windows of the calendar begin.
    """

    kind: str
    length: int
    closed: Closed = "right"
    every: int = 0
    offset: int = 0
    calendar: Calendar | None = None

    @property
    def marks(self) -> int:
        """The clock is looked at at multiples of this."""
        if self.calendar is not None:
            return self.calendar.marks
        return math.gcd(self.every or max(self.length, 1), self.offset)

    def interval(self, time: int) -> tuple[int, int]:
        """Start and end of the tumbling window, or the calendar's, that a time lies in.

        Raises
        ------
        OverflowError
            The calendar does not go that far.
        """
        if self.calendar is not None:
            return self.calendar.interval(time)
        start = (time - self.offset) // self.length * self.length + self.offset
        return start, start + self.length

    @property
    def overlaps(self) -> int:
        """How many windows a row lies in, at most."""
        return -(-self.length // self.every) if self.every else 1

    def __str__(self) -> str:
        return self.text(str)

    def text(self, span: Callable[[int], str]) -> str:
        """What it is; `span`: how a span of time is written."""
        if self.calendar is not None:
            return str(self.calendar)
        length = str(self.length) if self.kind == "rows" else span(self.length)
        begins = f" from {span(self.offset)}" if self.offset else ""
        if self.every:
            return f"{self.kind} {length} every {span(self.every)}{begins}"
        if begins:
            return f"{self.kind} {length}{begins}"
        ends = f" closed {self.closed}" if self.kind == "rolling" and self.closed != "right" else ""
        return f"{self.kind} {length}{ends}"


@dataclass(frozen=True)
class WindowKind:
    """A kind of window, made by `tumbling`, `hopping`, `calendar`, `session`, `rolling` or `rows`.

    Attributes
    ----------
    kind : str
    length : int, str or timedelta
    closed : str
    every, offset : int, str, timedelta or None
    """

    kind: str
    length: Any
    closed: Closed = "right"
    every: Any = None
    offset: Any = None

    @property
    def slides(self) -> bool:
        """There is a window per row."""
        return self.kind in ("rolling", "rows")

    def bind(self, field: pa.Field | None, where: str) -> BoundWindow:
        """The window for a time column (None: no time was given).

        Raises
        ------
        PlanError
            The length does not fit, or a time is missing.
        SchemaError
            The column can't hold time.
        """
        what = f"{where}: {self.kind}"
        if self.kind == "rows":
            return BoundWindow("rows", positive_int(self.length, what, MOST_ROWS))
        if field is None:
            raise PlanError(f"{what}: a window needs its time column: .window(..., time='ts')")
        if self.kind == "calendar" or (self.kind == "tumbling" and self._is_calendars):
            if self.offset is not None:
                raise PlanError(f"{what}: windows of the calendar take no offset, got {self.offset!r:.80}")
            return self._of_calendar(Calendar.of(self.length, field, what), field, what)
        if self._is_calendars:
            week = "; seven days are '7d'" if self.length == "1w" else ""
            raise PlanError(
                f"{what}: {self.length!r} is an interval of the calendar; it can be the length of "
                f"od.tumbling and od.calendar only{week}"
            )
        shows_ends = self.kind in ("tumbling", "hopping")
        length = (shown_span if shows_ends else time_span)(self.length, field, what)
        least = 0 if self.kind == "session" else 1
        if length < least:
            raise PlanError(f"{what}: the length must be at least {least}, got {self.length!r}")
        if self.every is None:
            return BoundWindow(self.kind, length, self.closed, offset=self._offset(field, what, length))
        every = shown_span(self.every, field, f"{what}: every")
        if not 1 <= every <= length:
            raise PlanError(
                f"{what}: every must be at least 1 and at most the length, so that each row lies in a "
                f"window; got {self.every!r} for {self.length!r}"
            )
        window = BoundWindow(self.kind, length, every=every, offset=self._offset(field, what, every))
        if window.overlaps > MOST_OVERLAPS:
            raise PlanError(
                f"{what}: a row would lie in {window.overlaps} windows, and {MOST_OVERLAPS} are the most: "
                "od.rolling(...) has a window per row for the price of one"
            )
        return window

    def _of_calendar(self, calendar: Calendar, field: pa.Field, what: str) -> BoundWindow:
        if not calendar.is_even:
            return BoundWindow("calendar", 0, calendar=calendar)
        length = time_span(f"{INTERVALS[calendar.every][1]}d", field, what)
        monday = time_span("4d", field, what) if calendar.every == "1w" else 0  # 1970 began on a Thursday
        return BoundWindow("tumbling", length, offset=monday)

    @property
    def _is_calendars(self) -> bool:
        """The length is one that only a calendar has."""
        return isinstance(self.length, str) and self.length in INTERVALS and self.length != "1d"

    def _offset(self, field: pa.Field, what: str, every: int) -> int:
        return 0 if self.offset is None else shown_span(self.offset, field, f"{what}: offset") % every


#: Most rows of a window that is a number of rows.
MOST_ROWS = 1 << 24

#: Most hopping windows that a row lies in: each of them has its aggregates, per key.
MOST_OVERLAPS = 1024


def tumbling(length: Duration, *, offset: Duration | None = None) -> WindowKind:
    """Windows [k·length, (k+1)·length), side by side, from the time column's 0 on: of times 1970, in UTC
    where the column has a zone. Days, weeks and months of a calendar are `calendar`.

    Parameters
    ----------
    length : int, str or timedelta
        "1m", a timedelta, or a number in the time column's unit; "1w", "1mo" ("1 month"), "1q" or "1y": as
        `calendar`.
    offset : int, str or timedelta, optional
        All begin and end so much later: ``tumbling("1h", offset="15m")`` at a quarter past.
    """
    return WindowKind("tumbling", abbreviated(length), offset=offset)


def calendar(interval: Literal["1d", "1w", "1mo", "1q", "1y"]) -> WindowKind:
    """Windows that are the days, weeks (from Monday on), months, quarters or years of the calendar
    (`interval`: "1d", "1w", "1mo", "1q" or "1y"), side by side; in a zone those of its clocks, so that a day
    may have 23 or 25 hours.

    A day whose midnight the clocks show twice begins at the first, one whose midnight they skip at the
    change. Months, quarters and years go from year 1 to 9999; with a zone other than UTC all of them from
    1900 to 2100.
    """
    return WindowKind("calendar", abbreviated(interval))


def session(timeout: Duration) -> WindowKind:
    """Windows of rows that follow each other within a timeout; a gap of exactly `timeout` does not split.

    Parameters
    ----------
    timeout : int, str or timedelta
    """
    return WindowKind("session", timeout)


def rolling(period: Duration, *, closed: Closed = "right") -> WindowKind:
    """A window per row: the rows of its key, up to and including itself, of the last `period`.

    Parameters
    ----------
    period : int, str or timedelta
    closed : "right", "left", "both" or "neither"
        Which ends belong to the window of a row at t: "right" (t - period, t], "left" [t - period, t),
        "both", "neither". Rows with the same time behind the row are not seen.
    """
    if not is_one_of(closed, CLOSED):
        raise PlanError(f"rolling: closed must be one of {', '.join(map(repr, CLOSED))}, got {closed!r}")
    return WindowKind("rolling", period, closed)


def rows(n: int) -> WindowKind:
    """A window per row: the last `n` rows of its key, itself included."""
    return WindowKind("rows", n)


def hopping(length: Duration, *, every: Duration, offset: Duration | None = None) -> WindowKind:
    """Windows [k·every, k·every + length), from the time column's 0 on, which overlap.

    A row lies in length / every of them, and costs and keeps as much. `tumbling(length)` is the same as
    `hopping(length, every=length)`, and cheaper.

    Parameters
    ----------
    length, every : int, str or timedelta
        `every` is at most `length`, which need not be a multiple of it.
    offset : int, str or timedelta, optional
        All begin and end so much later.
    """
    return WindowKind("hopping", length, every=every, offset=offset)
