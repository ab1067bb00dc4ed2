"""What stands behind `expression.str` and `expression.dt`: functions of strings, and of dates and times.

Names are those of Polars; so are numbers, such as Monday's 1. A null gives null. A mistake is a SchemaError
where the pipeline is written.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from ordstream.errors import SchemaError, shown
from ordstream.expressions.strptime import has_offset
from ordstream.expressions.synonyms import advice
from ordstream.expressions.wrong_calls import CalledMethods
from ordstream.ground.choices import flag, is_one_of, is_text
from ordstream.ground.numbers import as_int
from ordstream.ground.types import INT64_MAX

if TYPE_CHECKING:
    from ordstream.expressions.expr import Expr

#: Longest text that padding makes, in characters: of far longer ones Arrow (26) crashes.
MOST_PADDED = 1 << 20


class Strings(CalledMethods):
    """Functions of strings; characters are Unicode's code points."""

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def __repr__(self) -> str:
        return f"{self._expr!r}.str"

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
        if flag(regex, "str.contains: regex", SchemaError):
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
        offset = _whole(offset, "str.slice: offset", None)
        if length is not None:
            length = _whole(length, "str.slice: length", 0)
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
            n = _whole(n, "str.replace: n", 1, INT64_MAX)
        old, new = _string(old, "replace"), _string(new, "replace")
        if not old:
            raise SchemaError("str.replace: what is replaced must not be empty")
        return self._made("replace", option=(old, new, n, flag(regex, "str.replace: regex", SchemaError)))

    def head(self, n: int) -> Expr:
        """The first `n` characters."""
        return self.slice(0, _whole(n, "str.head: n", 0))

    def tail(self, n: int) -> Expr:
        """The last `n` characters."""
        n = _whole(n, "str.tail: n", 0)
        return self.slice(-n, n) if n else self.slice(0, 0)

    def reverse(self) -> Expr:
        """The characters from the last to the first."""
        return self._made("reverse")

    def strip_chars(self, characters: str | None = None) -> Expr:
        """Without these `characters` at both ends; default: without white space (Python's `strip`)."""
        return self._stripped("strip_chars", characters)

    def strip_chars_start(self, characters: str | None = None) -> Expr:
        """Without these `characters` at the beginning (Python's `lstrip`)."""
        return self._stripped("strip_chars_start", characters)

    def strip_chars_end(self, characters: str | None = None) -> Expr:
        """Without these `characters` at the end (Python's `rstrip`)."""
        return self._stripped("strip_chars_end", characters)

    def pad_start(self, length: int, fill_char: str = " ") -> Expr:
        """At least `length` characters (1,048,576 at most), with `fill_char` in front of too few."""
        return self._padded("pad_start", length, fill_char)

    def pad_end(self, length: int, fill_char: str = " ") -> Expr:
        """At least `length` characters (1,048,576 at most), with `fill_char` behind too few."""
        return self._padded("pad_end", length, fill_char)

    def count_matches(self, pattern: str, *, literal: bool = False) -> Expr:
        """How often a regular expression (RE2) matches, without overlaps: int64.

        Parameters
        ----------
        pattern : str
        literal : bool
            It is a string as it is.
        """
        pattern = _string(pattern, "count_matches")
        if not pattern:
            raise SchemaError("str.count_matches: what is counted must not be empty")
        literal = flag(literal, "str.count_matches: literal", SchemaError)
        return self._made("count_matches", option=(pattern, literal))

    def extract(self, pattern: str, group_index: int = 1) -> Expr:
        """What a group of a regular expression matches first; null where the expression does not match.

        `extract(r'" (\\d{3}) ')` is the status in a line of a log. A group that takes no part in the match
        gives "".

        Parameters
        ----------
        pattern : str
            A regular expression (RE2).
        group_index : int
            1 is the first pair of parentheses; 0 is all that matches.
        """
        pattern = _string(pattern, "extract")
        group_index = _whole(group_index, "str.extract: group_index", 0)
        found = self._made("extract", option=(pattern, group_index))
        return self._apply("if", self.contains(pattern, regex=True), found, None)

    def split(self, by: str | None = None, *, n: int | None = None, regex: bool = False) -> Expr:
        """The parts between the places where `by` stands: list<string>.

        `p.select(word=od.col("line").str.split(" ")).flat_map(od.explode("word"))` gives a row per word. An
        empty value has one part, which is empty, and so is a part at an end or between two places.

        Parameters
        ----------
        by : str, optional
            A string as it is, not empty; default: one or more characters that are Unicode's white space.
        n : int, optional
            Only the first n places: n + 1 parts at most; default: all.
        regex : bool
            `by` is a regular expression (RE2); where it matches nothing between two characters, they part.
        """
        if n is not None:
            n = _whole(n, "str.split: n", 1, INT64_MAX)
        regex = flag(regex, "str.split: regex", SchemaError)
        if by is None and regex:
            raise SchemaError("str.split: regex=True needs a regular expression")
        if by is not None and not _string(by, "split") and not regex:
            advice_ = 'split("", regex=True) parts all characters'
            raise SchemaError(f"str.split: what it is split by must not be empty; {advice_}")
        return self._made("split", option=(by, n, regex))

    def to_datetime(
        self,
        format: str | None = None,
        *,
        time_unit: Literal["s", "ms", "us", "ns"] = "us",
        strict: bool = True,
    ) -> Expr:
        """The timestamp that the value says. Text that says none is an error at that row.

        Parameters
        ----------
        format : str, optional
            As C's `strptime` has it, such as "%d/%b/%Y:%H:%M:%S", without fractions of a second; with "%z"
            the result has the zone UTC. Default: ISO 8601, "2024-02-29 12:00:00.5", without an offset.
        time_unit : "s", "ms", "us" or "ns"
        strict : bool
            False: text that says no timestamp is null.
        """
        if not is_one_of(time_unit, ("s", "ms", "us", "ns")):
            raise SchemaError(
                f"str.to_datetime: time_unit must be 's', 'ms', 'us' or 'ns', got {time_unit!r}"
            )
        zone = "UTC" if isinstance(format, str) and has_offset(format) else None
        return self._read("to_datetime", pa.timestamp(time_unit, zone), format, strict)

    def to_date(self, format: str | None = None, *, strict: bool = True) -> Expr:
        """The date that the value says, by a `format`, and `strict`, as in `to_datetime`; default:
        "2024-02-29".
        """
        return self._read("to_date", pa.date32(), format, strict)

    def _read(self, what: str, type_: pa.DataType, format: str | None, strict: bool) -> Expr:
        if format is not None:
            format = _string(format, what)
            if not format:  # Arrow (26) reads beyond its end, and may crash
                raise SchemaError(f"str.{what}: format must not be empty; without one ISO 8601 is read")
        return self._made(
            "to_time", option=(type_, format, flag(strict, f"str.{what}: strict", SchemaError))
        )

    def _stripped(self, function: str, characters: str | None) -> Expr:
        if characters is not None:
            characters = _string(characters, function)
        return self._made(function, option=characters)

    def _padded(self, function: str, length: int, fill_char: str) -> Expr:
        length = _whole(length, f"str.{function}: length", 0, MOST_PADDED)
        if len(_string(fill_char, function)) != 1:
            raise SchemaError(f"str.{function}: fill_char must be one character, got {fill_char!r}")
        return self._made(function, option=(length, fill_char))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            where = advice(name, "str", dir(type(self)))
            raise AttributeError(f"`.str` has no {name!r}{where}", name=name, obj=self)

        __iter__ = None

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError("`.str` has no items: characters are .str.slice(offset, length)")

    def _made(self, function: str, *arguments: Any, option: Any = None) -> Expr:
        return self._apply(f"str.{function}", self._expr, *arguments, option=option)


def reading(type_: pa.DataType, format: str | None, strict: bool) -> str:
    """A call of `.str.to_datetime` or `.str.to_date`, as it is written."""
    given = [] if format is None else [repr(format)]
    date = pa.types.is_date(type_)
    if not date and type_.unit != "us":
        given.append(f"time_unit={type_.unit!r}")
    if not strict:
        given.append("strict=False")
    return f"to_date{'time' * (not date)}({', '.join(given)})"


class Times(CalledMethods):
    """Functions of dates and times; `total_*` of durations.

    A timestamp with a zone is read in that zone, one without is the reading of a clock
    (docs/ordering.md). All numbers are int64.
    """

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def __repr__(self) -> str:
        return f"{self._expr!r}.dt"

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

    def millisecond(self) -> Expr:
        """What is behind the whole second, in milliseconds: 0 to 999."""
        return self._made("millisecond")

    def microsecond(self) -> Expr:
        """What is behind the whole second, in microseconds: 0 to 999,999."""
        return self._made("microsecond")

    def nanosecond(self) -> Expr:
        """What is behind the whole second, in nanoseconds: 0 to 999,999,999."""
        return self._made("nanosecond")

    def date(self) -> Expr:
        """The day, as a date, in the value's zone."""
        return self._made("date")

    def strftime(self, format: str) -> Expr:
        """The date or time as text: `strftime("%Y-%m-%d %H:%M")`, letters of `format` as in C (without
        `%f`, `%s`, `%k`, `%l` and signs in front of a letter), without fractions of a second.
        """
        if "%" not in _string(format, "strftime", "dt") or "\0" in format:  # which would end the text
            raise SchemaError(
                f"dt.strftime: a format has letters behind a %, such as '%Y-%m-%d', got {shown(format)}"
            )
        return self._made("strftime", option=str(format))

    to_string = strftime

    def total_days(self) -> Expr:
        """Whole days of a duration, without what is left over, also where it is negative."""
        return self._made("total_days", option="d")

    def total_hours(self) -> Expr:
        """Whole hours of a duration, as `total_days`."""
        return self._made("total_hours", option="h")

    def total_minutes(self) -> Expr:
        """Whole minutes of a duration, as `total_days`."""
        return self._made("total_minutes", option="m")

    def total_seconds(self) -> Expr:
        """Whole seconds of a duration, as `total_days`; pandas' has fractions."""
        return self._made("total_seconds", option="s")

    def total_milliseconds(self) -> Expr:
        """Whole milliseconds of a duration, as `total_days`."""
        return self._made("total_milliseconds", option="ms")

    def total_microseconds(self) -> Expr:
        """Whole microseconds of a duration, as `total_days`."""
        return self._made("total_microseconds", option="us")

    def total_nanoseconds(self) -> Expr:
        """Whole nanoseconds of a duration."""
        return self._made("total_nanoseconds", option="ns")

    def truncate(self, every: str | datetime.timedelta) -> Expr:
        """The start of the interval that the value lies in, of the value's type.

        Parameters
        ----------
        every : str or timedelta
            Such as "15m" or "15 minutes": a number and ns, us, ms, s, m (minute), h, d, w; or "1mo", "1q",
            "1y". Weeks begin on Monday; other intervals count from 1970. In a zone they are intervals of its
            clocks: one that begins at a reading that they show twice began when they last went as at the
            value, one at a reading that they skip at the change.
        """
        return self._made("truncate", option=every)

    def epoch(self, unit: Literal["d", "s", "ms", "us", "ns"] = "us") -> Expr:
        """Whole units (`unit`: "d", "s", "ms", "us" or "ns") since 1970-01-01, rounded down."""
        return self._made("epoch", option=unit)

    def convert_time_zone(self, time_zone: str) -> Expr:
        """The same instant, read in another zone, `time_zone="Europe/Berlin"`; the value has a zone."""
        return self._made("convert_time_zone", option=_zone(time_zone, "convert_time_zone"))

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
            if not is_one_of(value, ("raise", "earliest", "latest")):
                raise SchemaError(f"dt.replace_time_zone: 'raise', 'earliest' or 'latest', got {value!r}")
        if time_zone is not None:
            time_zone = _zone(time_zone, "replace_time_zone")
        return self._made("replace_time_zone", option=(time_zone, ambiguous, non_existent))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            where = advice(name, "dt", dir(type(self)))
            raise AttributeError(f"`.dt` has no {name!r}{where}", name=name, obj=self)

    def _made(self, function: str, option: Any = None) -> Expr:
        return self._apply(f"dt.{function}", self._expr, option=option)


def _whole(given: Any, what: str, least: int | None, most: int | None = None) -> int:
    value = as_int(given)
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise SchemaError(f"{what} must be an int{bound}, got {value!r}")
    if most is not None and value > most:
        raise SchemaError(f"{what} must be at most {most:,}, got {value}")
    return int(value)


def _string(value: Any, what: str, of: str = "str") -> str:
    if not is_text(value):
        raise SchemaError(f"{of}.{what}: a str is needed, got {shown(value)}")
    return str(value)


def _zone(value: Any, what: str) -> str:
    if not _string(value, what, "dt"):
        raise SchemaError(f"dt.{what}: time_zone must be a zone such as 'Europe/Berlin', got ''")
    return str(value)


def _text(value: Any, what: str) -> Any:
    """A str, or an expression."""
    if isinstance(value, str) or hasattr(value, "is_null"):
        return value
    return _string(value, what)
