"""Lowering of `.str` and `.dt`: which instructions a function of a string, date or time becomes.

What the machine's own instructions can say is said by them: they need no GIL and cost the same in chunks of
one row. The rest is Arrow's (`ArrowCall`): upper and lower case, replacing, regular expressions, text that
is read or written, local time, months.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions.arrow_call import ArrowCall, stack_type
from ordstream.expressions.lowered import Lowered
from ordstream.expressions.strptime import check_format
from ordstream.ground.choices import is_one_of
from ordstream.ground.datetimes import DAY, TICKS, UTC_ZONES, numpy_span_ns, span_ns
from ordstream.ground.duration import abbreviated, of_arrow
from ordstream.ground.types import INT64_MAX, is_string

_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_NS |= {"d": DAY * 10**9, "w": 7 * DAY * 10**9}
_LONG = {"mo": "month", "q": "quarter", "y": "year"}
_ARROW_UNITS = {
    **{"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second", "m": "minute"},
    **{"h": "hour", "d": "day", "w": "week"},
}


def lower_call(expr: Any, operands: list[Lowered]) -> Lowered:
    """A function of `.str` or `.dt` on its lowered operands.

    Raises
    ------
    SchemaError
        A type that it has no answer for, or an argument that can't be; without the operator's name.
    """
    family, _, function = expr.function.partition(".")
    first = operands[0]
    if family == "str":
        for low in operands:
            if not is_string(low.arrow):
                raise SchemaError(f"{expr!r} is for strings, got {low.arrow}")
        own = _OWN_TEXT.get(function)
        if own is not None:
            name, vm, type_ = own
            code = tuple(instruction for low in operands for instruction in low.code)
            return Lowered((*code, (name,)), vm, type_)
        if function == "slice":
            return _slice(first, *expr.option)
        if function == "to_time":
            return parsed(expr, first)
        if function == "matches" and _is_plain(expr.option):
            code = (*first.code, ("lit_view", expr.option.encode()), ("contains",))
            return Lowered(code, "bool", pa.bool_())
        return by_arrow(first, *_TEXT[function](expr.option), takes=pa.large_string())
    if function.startswith("total_"):
        return _total(expr, first)
    if not (pat.is_timestamp(first.arrow) or pat.is_date(first.arrow) or pat.is_time(first.arrow)):
        raise SchemaError(f"{expr!r} is for dates and times, got {first.arrow}")
    return _TIMES[function](expr, first)


def by_arrow(
    low: Lowered,
    function: str,
    options: dict[str, Any],
    takes: Any,
    gives: Any = None,
    sample: tuple[Any, ...] | None = None,
) -> Lowered:
    """A call of Arrow.

    Parameters
    ----------
    gives : pyarrow.DataType, optional
        The type, where it is not the function's own.
    sample : tuple, optional
        What the function is tried with; default: an empty string, or 0.

    Raises
    ------
    SchemaError
        Arrow refuses the options, or has no such function for the type.
    """
    call = ArrowCall(function, tuple(options.items()), takes)
    if sample is None:
        sample = ("" if is_string(takes) else 0,)
    try:  # patterns and zones are looked at here, not in the run
        tried = call.array(pa.array(sample, stack_type(takes)))
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise SchemaError(_refused(function, options, takes, str(error))) from error
    if is_string(tried.type):
        vm, own = "view", pa.string()
    elif pat.is_list(tried.type):
        vm, own = "view", pa.list_(pa.string())
    elif pat.is_floating(tried.type):
        vm, own = "f64", pa.float64()
    elif pat.is_decimal128(tried.type):
        vm, own = "i128", tried.type
    else:
        vm, own = ("bool", pa.bool_()) if pat.is_boolean(tried.type) else ("i64", pa.int64())
    return Lowered((*low.code, (f"arrow_{vm}", call)), vm, gives or own)


def _refused(function: str, options: dict[str, Any], takes: Any, why: str) -> str:
    """What is wrong with the options, in the user's words, and Arrow's reason."""
    if why.startswith("Cannot locate or parse timezone"):
        return f"the time zone {options.get('timezone', getattr(takes, 'tz', None))!r} is not known: {why}"
    pattern, replacement = "Invalid regular expression: ", "Invalid replacement string: "
    if why.startswith(pattern):
        return f"the regular expression {options['pattern']!r} is not valid: {why.removeprefix(pattern)}"
    if why.startswith(replacement):
        return f"the replacement {options['replacement']!r} is not valid: {why.removeprefix(replacement)}"
    return f"Arrow's {function} refuses{f' {options}' if options else ''}: {why}"


def by_arrow_or_null(
    low: Lowered, function: str, options: dict[str, Any], takes: Any, gives: Any
) -> Lowered:
    """As `by_arrow`, and null where the function has no answer for a value."""
    by_arrow(low, function, options, takes, sample=())  # what Arrow refuses, in its words
    inner = {"function": function, "options": tuple(options.items())}
    answered = by_arrow(low, "has_answer", inner, takes, sample=())
    made = by_arrow(low, "or_null", inner, takes, gives, sample=())
    code = (*answered.code, *made.code, ("lit_null", made.vm), (f"if_{made.vm}",))
    return Lowered(code, made.vm, gives)


# ---------------------------------------------------------------------------------------------- strings

#: Instruction, class and type of the result.
_OWN_TEXT = {
    "length": ("len_chars", "i64", pa.int64()),
    "contains": ("contains", "bool", pa.bool_()),
    "starts_with": ("starts_with", "bool", pa.bool_()),
    "ends_with": ("ends_with", "bool", pa.bool_()),
}


def _slice(low: Lowered, offset: int, length: int | None) -> Lowered:
    """A part of a string, by what Python's `text[:stop][start:]` gives."""
    if length == 0:
        return Lowered((*low.code, ("lit_i64", 0), ("chars_until",)), "view", pa.string())
    code = low.code
    offset = max(-INT64_MAX, min(offset, INT64_MAX))  # no text is that long
    length = None if length is None else min(length, INT64_MAX - max(offset, 0))
    if length is not None and (offset >= 0 or offset + length < 0):
        code += (("lit_i64", offset + length), ("chars_until",))
        offset = offset if offset >= 0 else -length
    return Lowered((*code, ("lit_i64", offset), ("chars_from",)), "view", pa.string())


def _is_plain(pattern: str) -> bool:
    """A regular expression that is a text as it stands: looking for that takes a tenth of the time."""
    return bool(pattern) and re.search(r"[\\.^$*+?{}\[\]|()]", pattern) is None


def _replace(option: Any) -> tuple[str, dict[str, Any]]:
    old, new, n, regex = option
    regex = regex and not (_is_plain(old) and "\\" not in new)
    options = {"pattern": old, "replacement": new, "max_replacements": n}
    return f"replace_substring{'_regex' if regex else ''}", options


def _strip(function: str) -> Callable[[Any], tuple[str, dict[str, Any]]]:
    def chosen(characters: Any) -> tuple[str, dict[str, Any]]:
        if characters is None:
            return f"{function}_whitespace", {}
        return function, {"characters": characters}

    return chosen


#: What may hold a parenthesis that opens no group, what opens one, and any other character.
_PIECES = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|(?P<group>\(\?P?<\w+>|\((?!\?))|.",
    re.DOTALL,
)


def _named_groups(pattern: str) -> tuple[str, int]:
    """A regular expression all of whose groups have names, g1, g2, ..., as Arrow wants them; how many."""
    made, n = "", 0
    for piece in _PIECES.finditer(pattern):
        n += piece["group"] is not None
        made += piece[0] if piece["group"] is None else f"(?P<g{n}>"
    return made, n


def _extract(option: Any) -> tuple[str, dict[str, Any]]:
    pattern, group = option
    named, n = _named_groups(pattern)
    if not 0 <= group <= n:
        groups = f"the groups 0 (all of it) to {n}" if n else "no group but 0, all of it"
        raise SchemaError(f"str.extract: {pattern!r} has {groups}, got {group}")
    return "extract_regex", {"pattern": named if group else f"(?P<g0>{named})", "group": f"g{group}"}


def _split(option: Any) -> tuple[str, dict[str, Any]]:
    by, n, regex = option
    if by is None:
        return "utf8_split_whitespace", {"max_splits": n}
    regex = regex and not _is_plain(by)
    return f"split_pattern{'_regex' if regex else ''}", {"pattern": by, "max_splits": n}


_TEXT: dict[str, Callable[[Any], tuple[str, dict[str, Any]]]] = {
    "lower": lambda _: ("utf8_lower", {}),
    "upper": lambda _: ("utf8_upper", {}),
    "matches": lambda pattern: ("match_substring_regex", {"pattern": pattern}),
    "replace": _replace,
    "reverse": lambda _: ("utf8_reverse", {}),
    "strip_chars": _strip("utf8_trim"),
    "strip_chars_start": _strip("utf8_ltrim"),
    "strip_chars_end": _strip("utf8_rtrim"),
    "pad_start": lambda option: ("utf8_lpad", {"width": option[0], "padding": option[1]}),
    "pad_end": lambda option: ("utf8_rpad", {"width": option[0], "padding": option[1]}),
    "count_matches": lambda option: (
        "count_substring" if option[1] or _is_plain(option[0]) else "count_substring_regex",
        {"pattern": option[0]},
    ),
    "extract": _extract,
    "split": _split,
}


def parsed(expr: Any, low: Lowered) -> Lowered:
    """A date or timestamp that a string says, by a format or as ISO 8601 has it."""
    type_, format_, strict = expr.option
    call = functools.partial(by_arrow, sample=()) if strict else by_arrow_or_null
    text = pa.large_string()
    if format_ is None:
        return call(low, "cast", {"to": type_}, text, type_)
    check_format(format_, f"{expr!r}")
    options = {"format": format_, "unit": "s", "error_is_null": False}
    if pat.is_date32(type_):
        read = call(low, "strptime", options, text, pa.timestamp("s"))
        return _number(read, ("floordiv_i64", DAY), type_=type_)
    return call(low, "strptime", {**options, "unit": type_.unit}, text, type_)


# ---------------------------------------------------------------------------------------------- times


def _second_ticks(type_: Any) -> int:
    """Ticks of a second of a timestamp, a time or a date64."""
    return 10**3 if pat.is_date64(type_) else TICKS[type_.unit]


def _is_local(type_: Any) -> bool:
    """A timestamp whose readings the zone database tells."""
    return bool(pat.is_timestamp(type_) and type_.tz is not None and type_.tz not in UTC_ZONES)


def _number(low: Lowered, *steps: tuple[str, int | None], type_: Any = None) -> Lowered:
    """Integer instructions on a value: (name, constant on the right or None)."""
    code = low.code
    for name, constant in steps:
        code += ((name,),) if constant is None else (("lit_i64", constant), (name,))
    return Lowered(code, "i64", type_ or pa.int64())


def _reading(low: Lowered) -> Lowered:
    """A timestamp with a zone as what clocks read there; all else as it is."""
    if not _is_local(low.arrow):
        return low
    return by_arrow(low, "local_timestamp", {}, low.arrow, pa.timestamp(low.arrow.unit))


def _days(expr: Any, low: Lowered) -> Lowered:
    low = _reading(low)
    if pat.is_time(low.arrow):
        raise SchemaError(f"{expr!r}: a time of day has no date")
    if pat.is_date32(low.arrow):
        return low
    return _number(low, ("floordiv_i64", DAY * _second_ticks(low.arrow)))


def _calendar(*steps: tuple[str, int | None], arrow: str = "") -> Any:
    """A part of a date: by instructions on the days since 1970 where there are some, else Arrow's."""

    def lowered(expr: Any, low: Lowered) -> Lowered:
        days = _days(expr, low)
        return _number(days, *steps) if steps else by_arrow(days, arrow, {}, pa.date32())

    return lowered


def _clock(below: int, size: int) -> Any:
    """A part of a time of day; `below`, `size`: seconds of the unit above it and of its own."""

    def lowered(expr: Any, low: Lowered) -> Lowered:
        if pat.is_date(low.arrow):
            raise SchemaError(f"{expr!r}: a date has no time of day, it is {low.arrow}")
        tick = _second_ticks(low.arrow)
        return _number(_reading(low), ("mod_i64", below * tick), ("floordiv_i64", size * tick))

    return lowered


def interval(every: Any) -> tuple[int, str]:
    """Number and unit of "15m", or of a timedelta, NumPy's and Arrow's too.

    Raises
    ------
    SchemaError
        It is no interval.
    """
    every = of_arrow(every)
    if isinstance(every, datetime.timedelta | np.timedelta64):
        whole = span_ns(every) if isinstance(every, datetime.timedelta) else numpy_span_ns(every)
        if whole is None and isinstance(every, np.timedelta64) and every.dtype in ("m8[M]", "m8[Y]"):
            raise SchemaError(f"a month of NumPy's has no length: write '1mo', '1q' or '1y', got {every!r}")
        if whole is None:
            raise SchemaError(f"an interval such as '15m' is needed, got {every!r}")
        every = f"{whole}ns" if whole % 1_000 else f"{whole // 1_000}us"
    every = abbreviated(every)
    found = re.fullmatch(r"(\d+)(ns|us|ms|s|m|h|d|w|mo|q|y)", every) if isinstance(every, str) else None
    if found is None or int(found[1]) < 1:
        raise SchemaError(
            f"an interval such as '15m' is needed (ns, us, ms, s, m, h, d, w, mo, q, y), got {every!r}"
        )
    return int(found[1]), found[2]


def _truncate(expr: Any, low: Lowered) -> Lowered:
    type_ = low.arrow
    if pat.is_time(type_):
        raise SchemaError(f"{expr!r} is for timestamps and dates, got {type_}")
    n, unit = interval(expr.option)
    if unit in _LONG:
        if n != 1:
            raise SchemaError(f"{expr!r}: months, quarters and years one at a time, got {expr.option!r}")
        return by_arrow(low, "floor_temporal", {"multiple": 1, "unit": _LONG[unit]}, type_, type_)
    ticks = DAY if pat.is_date32(type_) else _second_ticks(type_)
    tick = DAY * 10**9 if pat.is_date32(type_) else 10**9 // ticks
    step, rest = divmod(n * _NS[unit], tick)
    if rest or not 0 < step <= INT64_MAX or (pat.is_date64(type_) and step % (DAY * ticks)):
        units = "days" if pat.is_date64(type_) else f"units of {type_}"
        raise SchemaError(f"{expr!r}: {expr.option!r} is not a whole number of {units}")
    if _is_local(type_):
        options = {"multiple": n, "unit": _ARROW_UNITS[unit]}
        return by_arrow(low, "floor_temporal", options, type_, type_)
    above = _number(low, ("mod_i64", step))
    if unit == "w":  # weeks begin on Monday, 1970 began on a Thursday
        thursday = 3 if pat.is_date32(type_) else 3 * DAY * ticks
        above = _number(above, ("add_i64", thursday), ("mod_i64", step))
    return Lowered((*low.code, *above.code, ("sub_i64",)), "i64", type_)


def _epoch(expr: Any, low: Lowered) -> Lowered:
    if pat.is_time(low.arrow):
        raise SchemaError(f"{expr!r}: a time of day has no date")
    if not is_one_of(expr.option, ("d", "s", "ms", "us", "ns")):
        raise SchemaError(f"{expr!r}: the unit must be 'd', 's', 'ms', 'us' or 'ns', got {expr.option!r}")
    mine = DAY * 10**9 if pat.is_date32(low.arrow) else 10**9 // _second_ticks(low.arrow)
    asked = _NS[expr.option]
    if mine >= asked:
        return _number(low, ("mul_i64", mine // asked))
    return _number(low, ("floordiv_i64", asked // mine))


def date_of(expr: Any, low: Lowered) -> Lowered:
    """The day of a timestamp, in its zone."""
    return Lowered(_days(expr, low).code, "i64", pa.date32())


def _part_of_second(size: int) -> Any:
    """What is behind the second, in units of which a second has `size`."""

    def lowered(expr: Any, low: Lowered) -> Lowered:
        if pat.is_date(low.arrow):
            raise SchemaError(f"{expr!r}: a date has no time of day, it is {low.arrow}")
        ticks = _second_ticks(low.arrow)
        step = ("floordiv_i64", ticks // size) if ticks > size else ("mul_i64", size // ticks)
        return _number(low, ("mod_i64", ticks), step)

    return lowered


def _total(expr: Any, low: Lowered) -> Lowered:
    """A duration in whole units, without what is left over, as Polars counts them."""
    if not pat.is_duration(low.arrow):
        raise SchemaError(f"{expr!r} is for durations (the difference of two times), got {low.arrow}")
    mine, asked = 10**9 // TICKS[low.arrow.unit], _NS[expr.option]
    if mine >= asked:
        return _number(low, ("mul_i64", mine // asked))
    step = asked // mine  # floordiv rounds down: a negative number is moved up first
    negative = (*low.code, ("lit_i64", 0), ("lt_i64",), ("lit_i64", step - 1), ("lit_i64", 0), ("if_i64",))
    return _number(Lowered((*low.code, *negative, ("add_i64",)), "i64", pa.int64()), ("floordiv_i64", step))


#: Letters that Arrow's strftime writes; others it leaves as they are, such as "%f".
_WRITTEN = frozenset("aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyYzZ%")


def _strftime(expr: Any, low: Lowered) -> Lowered:
    type_ = low.arrow
    for piece in re.finditer(r"%[EO]?(.?)", expr.option, re.DOTALL):
        if piece[1] not in _WRITTEN:
            advice = {"f": "fractions are .dt.microsecond()", "s": 'seconds since 1970 are .dt.epoch("s")'}
            letters = "".join(sorted(_WRITTEN, key=lambda one: (one.lower(), one)))
            told = advice.get(piece[1], f"the letters are {letters}")
            raise SchemaError(f"{expr!r}: {piece[0]!r} is not known, {told}")
    if pat.is_time(type_):
        raise SchemaError(f"{expr!r} is for timestamps and dates, got {type_}")
    if not re.search("%[zZ]", expr.option):
        low = _reading(low)
        type_ = low.arrow
    if pat.is_timestamp(type_):  # Arrow's %S shows fractions of a finer unit, C's and Polars' does not
        low, type_ = _number(low, ("floordiv_i64", TICKS[type_.unit])), pa.timestamp("s", type_.tz)
    return by_arrow(low, "strftime", {"format": expr.option}, type_)


def _convert_time_zone(expr: Any, low: Lowered) -> Lowered:
    if not pat.is_timestamp(low.arrow) or low.arrow.tz is None:
        raise SchemaError(
            f"{expr!r} needs a timestamp with a zone, got {low.arrow}: replace_time_zone gives it one"
        )
    type_ = pa.timestamp(low.arrow.unit, expr.option)
    by_arrow(low, "local_timestamp", {}, type_)  # is it a zone?
    return Lowered(low.code, "i64", type_)


def _replace_time_zone(expr: Any, low: Lowered) -> Lowered:
    if not pat.is_timestamp(low.arrow):
        raise SchemaError(f"{expr!r} is for timestamps, got {low.arrow}")
    zone, ambiguous, non_existent = expr.option
    reading = pa.timestamp(low.arrow.unit)
    low = _reading(low)
    if zone is None:
        return Lowered(low.code, "i64", reading)
    options = {"timezone": zone, "ambiguous": ambiguous, "nonexistent": non_existent}
    return by_arrow(low, "assume_timezone", options, reading, pa.timestamp(reading.unit, zone))


_TIMES: dict[str, Callable[[Any, Lowered], Lowered]] = {
    "year": _calendar(("year_of_day", None)),
    "month": _calendar(("month_of_day", None)),
    "day": _calendar(("day_of_month", None)),
    "quarter": _calendar(("month_of_day", None), ("add_i64", 2), ("floordiv_i64", 3)),
    "iso_week": _calendar(arrow="iso_week"),
    "day_of_year": _calendar(arrow="day_of_year"),
    "weekday": _calendar(("add_i64", 3), ("mod_i64", 7), ("add_i64", 1)),
    "hour": _clock(DAY, 3600),
    "minute": _clock(3600, 60),
    "second": _clock(60, 1),
    "millisecond": _part_of_second(10**3),
    "microsecond": _part_of_second(10**6),
    "nanosecond": _part_of_second(10**9),
    "date": date_of,
    "strftime": _strftime,
    "truncate": _truncate,
    "epoch": _epoch,
    "convert_time_zone": _convert_time_zone,
    "replace_time_zone": _replace_time_zone,
}

#: What `Apply` is called for them.
CALLS = (
    *(f"str.{name}" for name in (*_OWN_TEXT, *_TEXT, "slice", "to_time")),
    *(f"dt.{name}" for name in _TIMES),
    *(f"dt.total_{unit}" for unit in ("days", "hours", "minutes", "seconds")),
    *(f"dt.total_{unit}" for unit in ("milliseconds", "microseconds", "nanoseconds")),
)
