"""Dates and times as text, for columns. Arrow's `strftime` takes 0.7 us a value, and its cast of one with a
zone 1.2; its cast of one without takes 0.04, and has the digits of most letters. So a text is put together
of columns of them, where all have the same places; what else there is stays Arrow's.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.ground.datetimes import DAY

_STRFTIME = pc.get_function("strftime")
#: The first day of the year 0, and of the year 10000: between them a year has four digits.
_FIRST, _BEHIND = -719_528, 2_932_897
#: For fewer values Arrow's function takes less time than all this.
_FEW = 16

#: Where the digits of a letter stand in "1970-01-01 00:00:00".
_DIGITS = {"Y": (0, 4), "C": (0, 2), "y": (2, 4), "m": (5, 7), "d": (8, 10), "H": (11, 13), "M": (14, 16)}
_DIGITS |= {"S": (17, 19), "F": (0, 10), "T": (11, 19), "X": (11, 19), "R": (11, 16)}
_TEXTS = {"n": b"\n", "t": b"\t", "%": b"%"}
_LONG = {"D": "%m/%d/%y", "x": "%m/%d/%y"}


def _names(texts: str) -> np.ndarray:
    return np.array([list(one.encode()) for one in texts.split()], np.uint8)


_MONTHS = _names("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec")
_WEEKDAYS = _names("Mon Tue Wed Thu Fri Sat Sun")
_NAMED = {"b": 3, "h": 3, "a": 3, "p": 2, "I": 2, "e": 2}


@dataclass(frozen=True)
class _Piece:
    """Some bytes of each text: a part of Arrow's, the same in all, or a letter's own."""

    width: int
    first: int = -1
    text: bytes = b""
    letter: str = ""


@functools.lru_cache(maxsize=256)
def _pieces(format_: str) -> tuple[_Piece, ...] | None:
    """What a format is made of; None: a letter has other places in other texts."""
    pieces = []
    if any(one[1] for one in re.finditer("%([EO]?).", format_, re.DOTALL)):
        return None  # what the modifier does to a letter the C++ library knows
    expanded = re.sub("%(.)", lambda one: _LONG.get(one[1], one[0]), format_, flags=re.DOTALL)
    for one in re.finditer("%(.)|[^%]+", expanded, re.DOTALL):
        letter = one[1]
        text = _TEXTS.get(letter, b"") if letter else one[0].encode()
        if text:
            pieces.append(_Piece(len(text), text=text))
        elif letter in _DIGITS:
            first, end = _DIGITS[letter]
            pieces.append(_Piece(end - first, first=first))
        elif letter in _NAMED:
            pieces.append(_Piece(_NAMED[letter], letter=letter))
        else:
            return None
    return tuple(pieces)


def written_by(values: pa.Array, format: str) -> pa.Array:
    """Arrow's `strftime` of dates, or of timestamps of seconds. Under a null stands any text."""
    pieces = _pieces(format)
    zoned = getattr(values.type, "tz", None)
    if pieces and pat.is_date64(values.type) and any(piece.first + piece.width == 19 for piece in pieces):
        pieces = None  # with fractions of its seconds
    if not pieces or zoned or len(values) < _FEW or not _has_four_digits(values):
        return _STRFTIME.call([values], pc.StrftimeOptions(format))
    counts = pc.fill_null(values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()), 0)
    seconds = counts.to_numpy().astype(np.int64)
    if pat.is_date32(values.type):
        seconds *= DAY
    elif pat.is_date64(values.type):
        seconds //= 1_000
    given = _matrix(pa.array(seconds, pa.timestamp("s")).cast(pa.large_string()), 19)
    made = np.empty((len(values), sum(piece.width for piece in pieces)), np.uint8)
    at = 0
    for piece in pieces:
        made[:, at : at + piece.width] = _columns(piece, given, seconds)
        at += piece.width
    offsets = np.arange(len(values) + 1, dtype=np.int64) * at
    return pa.LargeStringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(made))


def _has_four_digits(values: pa.Array) -> bool:
    days = pc.min_max(values.cast(pa.date32()).view(pa.int32())).as_py()
    return days["min"] is None or (days["min"] >= _FIRST and days["max"] < _BEHIND)


def _matrix(texts: pa.Array, width: int) -> np.ndarray:
    """Bytes of texts of one length, a row for each."""
    return np.frombuffer(texts.buffers()[2], np.uint8, len(texts) * width).reshape(len(texts), width)


def _columns(piece: _Piece, given: np.ndarray, seconds: np.ndarray) -> Any:
    if piece.text:
        return np.frombuffer(piece.text, np.uint8)
    if piece.first >= 0:
        return given[:, piece.first : piece.first + piece.width]
    if piece.letter in "bh":
        return _MONTHS[(given[:, 5] - 48) * 10 + given[:, 6] - 49]
    if piece.letter == "a":
        return _WEEKDAYS[(seconds // DAY + 3) % 7]
    if piece.letter == "e":  # without its leading zero
        days = given[:, 8:10].copy()
        days[days[:, 0] == 48, 0] = 32
        return days
    hours = (given[:, 11] - 48) * 10 + given[:, 12] - 48
    if piece.letter == "p":
        return np.stack([np.where(hours < 12, 65, 80), np.full(len(hours), 77)], axis=1)
    hours = (hours + 11) % 12 + 1
    return np.stack([hours // 10 + 48, hours % 10 + 48], axis=1)


def with_offset(values: pa.Array) -> pa.Array:
    """Arrow's cast of timestamps in a zone to texts, "1970-01-01 01:00:00+0100"."""
    unit = values.type.unit
    clocks = pc.local_timestamp(values)
    ahead = pc.subtract(clocks.view(pa.int64()), values.view(pa.int64()))
    per_minute = 60 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    found = pc.unique(ahead).drop_null().to_pylist()
    if len(values) < _FEW or values.type.tz == "UTC" or any(one % per_minute for one in found):
        return values.cast(pa.large_string())
    texts = [f"{'-' if one < 0 else '+'}{_clock(abs(one) // per_minute)}" for one in found]
    places = pc.index_in(ahead, pa.array(found, pa.int64()))
    told = pa.array(texts, pa.large_string()).take(places)
    return pc.binary_join_element_wise(
        clocks.cast(pa.large_string()), told, pa.scalar("", pa.large_string())
    )


def _clock(minutes: Any) -> str:
    return f"{minutes // 60:02}{minutes % 60:02}"
