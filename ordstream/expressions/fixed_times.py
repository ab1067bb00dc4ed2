"""Times that texts say at the same places, for columns: "2024-02-29 12:00:00". Arrow's `strptime` reads them
letter by letter in 0.15 us, and seeing that the day is one takes as long again; NumPy reads them in 0.03.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.ground.datetimes import TICKS

#: For fewer values Arrow's function takes less time than all this.
_FEW = 16
_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "b": 3}
_BELOW = {"H": 24, "M": 60, "S": 60}
#: Seconds since 1970 that 64 bits of nanoseconds hold.
_MOST_SECONDS = 2**63 // 10**9 - 1
_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
#: The place of a month's name in the year, by its three letters in lower case as one number.
_MONTHS = {int.from_bytes(name.encode(), "big"): place for place, name in enumerate(_NAMES, 1)}


@dataclass(frozen=True)
class Places:
    """Where the letters of a format stand.

    Attributes
    ----------
    letters : tuple of (letter, first, end)
    texts : tuple of (first, bytes)
        What stands between them.
    example : str
        A text of this format.
    """

    letters: tuple[tuple[str, int, int], ...]
    texts: tuple[tuple[int, bytes], ...]
    example: str


def places(pieces: Iterable[tuple[str | None, str]]) -> Places | None:
    """The places of a format's letters, of (letter or None, text between); None: they move from text to
    text, or tell no day.
    """
    letters: dict[str, tuple[int, int]] = {}
    texts, example, at, named = [], "", 0, False
    for letter, text in pieces:
        if letter is None:
            if named and text[:1].isalpha():  # the name may be a longer one
                return None
            texts.append((at, text.encode()))
            at += len(text.encode())
            example += text
        elif letter in letters or letter not in _WIDTHS or (named and letter == "b"):
            return None
        else:
            letters[letter] = at, at + _WIDTHS[letter]
            at += _WIDTHS[letter]
            example += {"Y": "1970", "b": "Jan", "m": "01", "d": "01"}.get(letter, "00")
        named = letter == "b"
    if not {"Y", "d"} <= letters.keys() or ("m" in letters) == ("b" in letters):
        return None
    return Places(tuple((letter, *where) for letter, where in letters.items()), tuple(texts), example)


def read_fixed(values: pa.Array, at: Places, unit: str) -> pa.Array | None:
    """The times, where all texts say one at these places; else None: Arrow then finds out.

    Parameters
    ----------
    values : pyarrow.LargeStringArray
    """
    if len(values) < _FEW:
        return None
    there = values.is_valid() if values.null_count else None
    if there is not None:
        values = pc.fill_null(values, at.example)
    texts = _matrix(values, len(at.example.encode()))
    if texts is None or any((texts[:, i : i + len(one)] != list(one)).any() for i, one in at.texts):
        return None
    parts: dict[str, np.ndarray] = {}
    for letter, first, end in at.letters:
        read = _month if letter == "b" else _number
        part = read(texts[:, first:end])
        if part is None:
            return None
        parts["m" if letter == "b" else letter] = part
    seconds = _seconds(parts)
    if seconds is None or (unit == "ns" and bool((np.abs(seconds) > _MOST_SECONDS).any())):
        return None
    times = pa.array(seconds * TICKS[unit]).view(pa.timestamp(unit))
    return times if there is None else pc.if_else(there, times, pa.scalar(None, times.type))


def _matrix(values: pa.Array, width: int) -> np.ndarray | None:
    """The bytes of texts, a row for each; None: they are not all so long."""
    ends = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    if width == 0 or (np.diff(ends) != width).any():
        return None
    return np.frombuffer(values.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(len(values), width)


def _number(digits: np.ndarray) -> np.ndarray | None:
    figures = digits - np.uint8(48)
    if (figures > 9).any():
        return None
    found = np.zeros(len(digits), np.int64)
    for column in figures.T:
        found = found * 10 + column
    return found


def _month(letters: np.ndarray) -> np.ndarray | None:
    low = (letters | 32).astype(np.int64)
    words = (low[:, 0] << 16) + (low[:, 1] << 8) + low[:, 2]
    if ((letters < 65) | (low < 97) | (low > 122)).any():
        return None
    known, place = np.unique(words, return_inverse=True)
    found = np.array([_MONTHS.get(int(one), 0) for one in known], np.int64)[place]
    return found if found.all() else None


def _seconds(parts: dict[str, np.ndarray]) -> Any:
    """Seconds since 1970; None: there is no such day or time."""
    month, day = parts["m"], parts["d"]
    wrong = (month < 1) | (month > 12) | (day < 1) | (parts["Y"] < 1)
    for letter, below in _BELOW.items():
        if letter in parts:
            wrong |= parts[letter] >= below
    if wrong.any():
        return None
    months = ((parts["Y"] - 1970) * 12 + month - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    if (days.astype("M8[M]") != months).any():
        return None
    found = days.astype(np.int64) * 86_400
    for letter, size in (("H", 3_600), ("M", 60), ("S", 1)):
        if letter in parts:
            found += parts[letter] * size
    return found
