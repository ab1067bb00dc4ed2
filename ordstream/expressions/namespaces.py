"""What stands behind `expression.str` and `expression.dt`: functions of strings, and of dates and times.

Names are those of Polars; so are numbers, such as Monday's 1. A null gives null. A mistake is a SchemaError
where the pipeline is written.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ordstream.errors import SchemaError

if TYPE_CHECKING:
    from ordstream.expressions.expr import Expr


class Strings:
    """Functions of strings; characters are Unicode's code points."""

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def length(self) -> Expr:
        """Number of characters: int64. (`.length()` of the expression itself counts bytes.)"""
        return self._made("length")

    len_chars = length

    def lower(self) -> Expr:
        """Each character in lower case, as Arrow's `utf8_lower` has it."""
        return self._made("lower")

    to_lowercase = lower

    def upper(self) -> Expr:
        """Each character in upper case, as Arrow's `utf8_upper` has it."""
        return self._made("upper")

    to_uppercase = upper

    def contains(self, text: Any, *, regex: bool = False) -> Expr:
        """Whether `text` stands anywhere in the value.

        Parameters
        ----------
        text : str or Expr
            A string as it is; with `regex=True` a regular expression (RE2), which must be a str.
        """
        if regex:
            return self._made("matches", option=_string(text, "contains(regex=True)"))
        return self._made("contains", _text(text, "contains"))

    def starts_with(self, text: Any) -> Expr:
        """Whether the value begins with `text`, a str or an expression."""
        return self._made("starts_with", _text(text, "starts_with"))

    def ends_with(self, text: Any) -> Expr:
        """Whether the value ends with `text`, a str or an expression."""
        return self._made("ends_with", _text(text, "ends_with"))

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Characters from `offset` on (0: the first; negative: from the end), at most `length` of them."""
        _whole(offset, "str.slice: offset", None)
        if length is not None:
            _whole(length, "str.slice: length", 0)
        return self._made("slice", option=(offset, length))

    def replace(self, old: str, new: str, *, n: int | None = None, regex: bool = False) -> Expr:
        """The value with `new` in the place of `old`.

        Parameters
        ----------
        old, new : str
        n : int, optional
            Only the first n places; default: all, as in Python and PySpark (Polars' `replace_all`).
        regex : bool
            `old` is a regular expression (RE2), and "\\1" in `new` its first group.
        """
        if n is not None:
            _whole(n, "str.replace: n", 1)
        old, new = _string(old, "replace"), _string(new, "replace")
        if not old:
            raise SchemaError("str.replace: what is replaced must not be empty")
        return self._made("replace", option=(old, new, n, bool(regex)))

    def _made(self, function: str, *arguments: Any, option: Any = None) -> Expr:
        return self._apply(f"str.{function}", self._expr, *arguments, option=option)


class Times:
    """Functions of dates and times.

    A timestamp with a zone is read in that zone, one without is the reading of a clock
    (docs/ordering.md). All numbers are int64.
    """

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def year(self) -> Expr:
        """The calendar's year."""
        return self._made("year")

    def quarter(self) -> Expr:
        """1 to 4."""
        return self._made("quarter")

    def month(self) -> Expr:
        """1 to 12."""
        return self._made("month")

    def week(self) -> Expr:
        """Number of the ISO week, 1 to 53."""
        return self._made("iso_week")

    def day(self) -> Expr:
        """Day of the month, from 1."""
        return self._made("day")

    def ordinal_day(self) -> Expr:
        """Day of the year, from 1."""
        return self._made("day_of_year")

    def weekday(self) -> Expr:
        """1 (Monday) to 7 (Sunday), as in Polars and ISO 8601; PySpark's `weekday` is one less."""
        return self._made("weekday")

    def hour(self) -> Expr:
        """0 to 23."""
        return self._made("hour")

    def minute(self) -> Expr:
        """0 to 59."""
        return self._made("minute")

    def second(self) -> Expr:
        """0 to 59."""
        return self._made("second")

    def truncate(self, every: str | datetime.timedelta) -> Expr:
        """The start of the interval that the value lies in, of the value's type.

        Parameters
        ----------
        every : str or timedelta
            Such as "15m": a number and ns, us, ms, s, m (minute), h, d, w; or "1mo", "1q", "1y". Weeks begin
            on Monday; other intervals count from 1970.
        """
        return self._made("truncate", option=every)

    def epoch(self, unit: Literal["d", "s", "ms", "us", "ns"] = "us") -> Expr:
        """Whole units since 1970-01-01, rounded down."""
        return self._made("epoch", option=unit)

    def convert_time_zone(self, time_zone: str) -> Expr:
        """The same instant, read in another zone; the value has a zone."""
        return self._made("convert_time_zone", option=_string(time_zone, "convert_time_zone", "dt"))

    def replace_time_zone(
        self,
        time_zone: str | None,
        *,
        ambiguous: Literal["raise", "earliest", "latest"] = "raise",
        non_existent: Literal["raise", "earliest", "latest"] = "raise",
    ) -> Expr:
        """The reading of the clock as it is, in a zone, or in none (None).

        Parameters
        ----------
        time_zone : str or None
            "Europe/Rome"; None leaves a reading.
        ambiguous, non_existent : "raise", "earliest" or "latest"
            What a reading is that a change of the clock repeats, or skips. "raise": an error at that row.
        """
        for value in (ambiguous, non_existent):
            if value not in ("raise", "earliest", "latest"):
                raise SchemaError(f"dt.replace_time_zone: 'raise', 'earliest' or 'latest', got {value!r}")
        if time_zone is not None:
            time_zone = _string(time_zone, "replace_time_zone", "dt")
        return self._made("replace_time_zone", option=(time_zone, ambiguous, non_existent))

    def _made(self, function: str, option: Any = None) -> Expr:
        return self._apply(f"dt.{function}", self._expr, option=option)


def _whole(value: Any, what: str, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise SchemaError(f"{what} must be an int{bound}, got {value!r}")


def _string(value: Any, what: str, of: str = "str") -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{of}.{what}: a str is needed, got {value!r}")
    return value


def _text(value: Any, what: str) -> Any:
    """A str, or an expression."""
    if isinstance(value, str) or hasattr(value, "is_null"):
        return value
    return _string(value, what)
