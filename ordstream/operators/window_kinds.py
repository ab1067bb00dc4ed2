"""Kinds of windows: what a user gives to `.window(...)`, and what it is for a time column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, time_span
from ordstream.operators.arguments import positive_int

Closed = Literal["right", "left", "both", "neither"]
CLOSED = ("right", "left", "both", "neither")


class BoundWindow(NamedTuple):
    """A kind of window in the unit of its time column.

    Attributes
    ----------
    kind : str
        "tumbling", "session", "rolling" or "rows".
    length : int
        Length, timeout, period, or number of rows.
    closed : str
        Of a rolling window: the ends that belong to it.
    """

    kind: str
    length: int
    closed: Closed = "right"

    def __str__(self) -> str:
        ends = f" closed {self.closed}" if self.kind == "rolling" and self.closed != "right" else ""
        return f"{self.kind} {self.length}{ends}"


@dataclass(frozen=True)
class WindowKind:
    """A kind of window, made by `tumbling`, `session`, `rolling` or `rows`.

    Attributes
    ----------
    kind : str
    length : int, str or timedelta
    closed : str
    """

    kind: str
    length: Any
    closed: Closed = "right"

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
        length = time_span(self.length, field, what)
        least = 0 if self.kind == "session" else 1
        if length < least:
            raise PlanError(f"{what}: the length must be at least {least}, got {self.length!r}")
        return BoundWindow(self.kind, length, self.closed)


#: Most rows of a window that is a number of rows.
MOST_ROWS = 1 << 24


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
    """Windows of `length` that begin at each multiple of `every`. Not there yet.

    Raises
    ------
    NotImplementedError
        Always; with `every` equal to `length` it is `tumbling(length)`.
    """
    raise NotImplementedError(
        "hopping windows are not there yet: use tumbling(...) for windows side by side, or rolling(...) for "
        "a window per row"
    )
