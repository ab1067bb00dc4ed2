"""Dates that text says by a format, as C's `strptime` has it, without those that no calendar has.

C reads the 30th of February, and Arrow makes the first of March of it; it also reads the numbers of ISO
weeks, and does nothing with them (pyarrow 26, glibc 2.36). So the day that stands in the text is compared
with that of the answer.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordstream.errors import SchemaError
from ordstream.expressions.fixed_times import Places, places, read_fixed
from ordstream.ground.datetimes import DAY

#: What stands for others.
_LONG = {
    "D": "%m/%d/%y",
    "x": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "T": "%H:%M:%S",
    "X": "%H:%M:%S",
    "R": "%H:%M",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
}


def _two(first: int) -> str:
    """One or two digits: a second one is read behind a first up to this one."""
    return f"(?:[0-{first}][0-9]|[0-9])"


#: What each letter reads, as a regular expression.
_READ = {
    **dict.fromkeys("mIl", f" *{_two(1)}"),
    **dict.fromkeys("Hk", f" *{_two(2)}"),
    **dict.fromkeys("MUW", f" *{_two(5)}"),
    **dict.fromkeys("yC", f" *{_two(9)}"),
    **dict.fromkeys("de", f" *(?P<day>{_two(3)})"),
    **dict.fromkeys("bBhaA", "[A-Za-z]+"),
    **dict.fromkeys("nt", r"\s*"),
    **dict.fromkeys("uw", " *[0-9]"),
    **dict.fromkeys("pP", "[A-Za-z]+"),
    "j": " *(?P<day>[0-2][0-9]{0,2}|3[0-6][0-9]?|[3-9][0-9]?)",
    "S": f" *{_two(6)}",
    "Y": " *[0-9]{1,4}",
    "z": " *(?:Z|[+-][0-9]{2}:?(?:[0-9]{2})?)",
    "Z": r"\S*",
    "%": "%",
}
#: Letters that C reads, too, and flags in front of a letter, which it passes over.
_ELSE = frozenset("sGgV-_0^#")

_PIECE = re.compile(r"%[EO]?(?P<letter>.)|(?P<space>\s+)|(?P<text>[^%\s]+|%)", re.DOTALL)

#: `pyarrow.compute.strptime` and the like spend as much time on their arguments as these on some rows.
_STRPTIME, _EXTRACT, _DAY_OF_MONTH, _DAY_OF_YEAR = map(
    pc.get_function, ("strptime", "extract_regex", "day", "day_of_year")
)


def check_format(format_: str, what: str) -> None:
    """SchemaError where nothing can be read, or a part of the date is read and nothing done with it."""
    letters = _letters(format_)
    unknown = letters - _READ.keys() - _ELSE
    if unknown or format_.endswith("%") != format_.endswith("%%"):
        raise SchemaError(
            f"{what}: C's strptime does not know %{min(unknown, default='')}; without a format ISO 8601 is "
            "read, with fractions of a second"
        )
    if not letters - {"%"}:
        raise SchemaError(f"{what}: a format has letters, such as '%Y-%m-%d %H:%M:%S', got {format_!r}")
    if "j" in letters and not letters & set("YyCde"):
        raise SchemaError(f"{what}: %j, the day of a year, needs a year: %Y or %y")
    unused = letters & set("GgV") or (letters & set("UW") if not letters & set("uwaA") else set())
    if unused:
        raise SchemaError(
            f"{what}: what %{min(unused)} reads does not lead to a date in C's strptime; dates are read by "
            "%Y, %m and %d, by %Y and %j, or by %Y, %W and %u"
        )


def has_offset(format_: str) -> bool:
    """Whether a format reads an offset from UTC (%z)."""
    return "z" in _letters(format_)


def read_times(values: pa.Array, format: str, unit: str, error_is_null: bool) -> pa.Array:
    """Arrow's `strptime`, where the day of the text is that of the answer.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text that says no time, or a day that its month or year has not.
    """
    fixed = _places(format)
    found = None if fixed is None else read_fixed(values, fixed, unit)
    if found is not None:
        return found
    times = _STRPTIME.call([values], pc.StrptimeOptions(format, unit, error_is_null))
    pattern = _pattern(format)
    if pattern is None:
        return times
    said = pc.struct_field(_EXTRACT.call([values], pc.ExtractRegexOptions(pattern)), "day").cast(pa.int64())
    number = _DAY_OF_YEAR if "j" in _letters(format) else _DAY_OF_MONTH
    if not number.call([times]).equals(said):
        _check_days(values, format, times, said, number)
    return times


def _check_days(values: pa.Array, format_: str, times: pa.Array, said: pa.Array, number: Any) -> None:
    """ArrowInvalid where a day that the text says is not that of its time."""
    fits = pc.equal(number.call([times]), said)
    moves = [-2] if "S" in _letters(format_) else []  # a leap second is in the next day
    if has_offset(format_):  # and in UTC it may be the day before, or behind
        moves += [-DAY, DAY]
    for seconds in moves:
        moved = pc.add(times, pa.scalar(seconds, pa.duration("s")).cast(pa.duration(times.type.unit)))
        fits = pc.or_(fits, pc.equal(number.call([moved]), said))
    wrong = pc.index(pc.fill_null(fits, True), False).as_py()
    if wrong >= 0:
        day = said[wrong].as_py()
        raise pa.ArrowInvalid(f"{values[wrong].as_py()!r} says no date: there is no day {day}")


@functools.lru_cache(maxsize=256)
def _pattern(format_: str) -> str | None:
    """A regular expression whose group is the day of the month or of the year; None: there is none, or a
    letter that is not known.
    """
    made = ""
    for piece in _PIECE.finditer(_expanded(format_)):
        letter = piece["letter"]
        if letter is not None and letter not in _READ:
            return None
        made += _READ[letter] if letter else r"\s*" if piece["space"] else re.escape(piece["text"])
    return f"^{made}" if made.count("?P<day>") == 1 else None


@functools.lru_cache(maxsize=256)
def _places(format_: str) -> Places | None:
    pieces = list(_PIECE.finditer(_expanded(format_)))
    if any(piece["letter"] and len(piece[0]) > 2 for piece in pieces):  # %E and %O
        return None
    return places((None, "%") if piece[0] == "%%" else (piece["letter"], piece[0]) for piece in pieces)


@functools.lru_cache(maxsize=256)
def _letters(format_: str) -> frozenset[str]:
    found: set[Any] = {piece["letter"] for piece in _PIECE.finditer(_expanded(format_))}
    return frozenset(found - {None})


def _expanded(format_: str) -> str:
    return re.sub(r"%[EO]?(.)", lambda one: _LONG.get(one[1], one[0]), format_, flags=re.DOTALL)
