"""Kinds of windows: what a user gives to `.window(...)`, and what it is for a time column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, shown_span, time_span
from ordstream.operators.arguments import positive_int

Closed = Literal["right", "left", "both", "neither"]
CLOSED = ("right", "left", "both", "neither")


class BoundWindow(NamedTuple):
    """A kind of window in the unit of its time column.

    Attributes
    ----------
    kind : str
        "tumbling", "hopping", "session", "rolling" or "rows".
    length : int
        Length, timeout, period, or number of rows.
    closed : str
        Of a rolling window: the ends that belong to it.
    every : int
        Of hopping windows: the distance of their starts; else 0.
    """

    kind: str
    length: int
    closed: Closed = "right"
    every: int = 0

    @property
    def marks(self) -> int:
        """The clock is looked at at multiples of this."""
        return self.every or max(self.length, 1)

    @property
    def overlaps(self) -> int:
        """How many windows a row lies in, at most."""
        return -(-self.length // self.every) if self.every else 1

    def __str__(self) -> str:
        if self.every:
            return f"{self.kind} {self.length} every {self.every}"
        ends = f" closed {self.closed}" if self.kind == "rolling" and self.closed != "right" else ""
        return f"{self.kind} {self.length}{ends}"


@dataclass(frozen=True)
class WindowKind:
    """A kind of window, made by `tumbling`, `hopping`, `session`, `rolling` or `rows`.

    Attributes
    ----------
    kind : str
    length : int, str or timedelta
    closed : str
    every : int, str, timedelta or None
    """

    kind: str
    length: Any
    closed: Closed = "right"
    every: Any = None

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
        shows_ends = self.kind in ("tumbling", "hopping")
        length = (shown_span if shows_ends else time_span)(self.length, field, what)
        least = 0 if self.kind == "session" else 1
        if length < least:
            raise PlanError(f"{what}: the length must be at least {least}, got {self.length!r}")
        if self.every is None:
            return BoundWindow(self.kind, length, self.closed)
        every = shown_span(self.every, field, f"{what}: every")
        if not 1 <= every <= length:
            raise PlanError(
                f"{what}: every must be at least 1 and at most the length, so that each row lies in a "
                f"window; got {self.every!r} for {self.length!r}"
            )
        window = BoundWindow(self.kind, length, every=every)
        if window.overlaps > MOST_OVERLAPS:
            raise PlanError(
                f"{what}: a row would lie in {window.overlaps} windows, and {MOST_OVERLAPS} are the most: "
                "od.rolling(...) has a window per row for the price of one"
            )
        return window


#: Most rows of a window that is a number of rows.
MOST_ROWS = 1 << 24

#: Most hopping windows that a row lies in: each of them has its aggregates, per key.
MOST_OVERLAPS = 1024


def tumbling(length: Duration) -> WindowKind:
    """Windows [k·length, (k+1)·length), side by side, from the time column's 0 on.

    Parameters
    ----------
    length : int, str or timedelta
        "1m", a timedelta, or a number in the time column's unit.
    """
    return WindowKind("tumbling", length)


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
    if closed not in CLOSED:
        raise PlanError(f"rolling: closed must be one of {', '.join(map(repr, CLOSED))}, got {closed!r}")
    return WindowKind("rolling", period, closed)


def rows(n: int) -> WindowKind:
    """A window per row: the last `n` rows of its key, itself included."""
    return WindowKind("rows", n)


def hopping(length: Duration, *, every: Duration) -> WindowKind:
    """Windows [k·every, k·every + length), from the time column's 0 on, which overlap.

    A row lies in length / every of them, and costs and keeps as much. `tumbling(length)` is the same as
    `hopping(length, every=length)`, and cheaper.

    Parameters
    ----------
    length, every : int, str or timedelta
        `every` is at most `length`, which need not be a multiple of it.
    """
    return WindowKind("hopping", length, every=every)
