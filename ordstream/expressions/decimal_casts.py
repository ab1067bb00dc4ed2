"""Casts to decimals of other types, and decimals as text: whole columns at once, mostly by Arrow.

A cast to a decimal gives null here where it has no answer; who calls says whether that is an error. What a
value becomes depends on it alone, not on its neighbours: where a shorter way is taken for a whole column, it
gives what the longer one would.

Arrow's own casts wrap around without a word where a product leaves 128 bits (pyarrow 26: "13311535604" as
decimal128(38, 31) is 6495057.33..., and 2**128 + 5 as decimal128(38, 2) is 5.00). So nothing is given to
them that could.
"""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import shown
from ordstream.ground.types import COUNTED_DIGITS, WIDE_DIGITS, is_counted, is_string

_UNITS = pa.decimal128(WIDE_DIGITS, 0)
_EXACT = Context(prec=2 * WIDE_DIGITS, traps=[Inexact])

# Texts that Arrow reads: ASCII digits, as many as one likes; an exponent is an int32.
_NUMBER = re.compile(r"([-+]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([-+]?[0-9]+))?", re.ASCII)
_MOST_EXPONENT = 2**31 - 1

#: Arrow writes 0.0000001 as 1E-7: the first that it does not write as plain digits has so many places.
_PLAIN_PLACES = 6


def to_decimal(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Values as decimals.

    Parameters
    ----------
    values : pyarrow.Array
        Texts, float64 or decimals.
    to : pyarrow.Decimal128Type
        With no more places than digits; of texts and floats with 0 or more.

    Raises
    ------
    pyarrow.ArrowInvalid
        A value has no answer; says which.
    """
    found = decimal_or_null(values, to)
    if found.null_count > values.null_count:
        missing = pc.and_(pc.is_valid(values), pc.is_null(found))
        raise pa.ArrowInvalid(_why_not(values.slice(pc.index(missing, pa.scalar(True)).as_py(), 1), to))
    return found


def decimal_or_null(values: pa.Array, to: pa.DataType) -> pa.Array:
    """As `to_decimal`, and null for a value that has no answer."""
    if is_string(values.type):
        return _of_texts(values, to)
    return _of_floats(values, to) if pat.is_floating(values.type) else _of_decimals(values, to)


def as_decimals(units: pa.Array, type_: pa.DataType) -> pa.Array:
    """Decimals of counts of their smallest unit: int64, or decimals without places."""
    there, data = units.buffers()
    if pat.is_integer(units.type):  # Arrow's cast takes 8 us for one value, this 3
        counts = _words(data)
        pairs = np.empty((len(counts), 2), np.int64)
        pairs[:, 0] = counts
        np.right_shift(counts, 63, out=pairs[:, 1])
        data = pa.py_buffer(pairs)
    return pa.Array.from_buffers(type_, len(units), [there, data], units.null_count, units.offset)


def as_counts(values: pa.Array) -> pa.Array:
    """Decimals of at most 18 digits as int64 counts of their smallest unit."""
    there, data = values.buffers()
    counts = pa.py_buffer(_words(data)[::2].copy())
    return pa.Array.from_buffers(pa.int64(), len(values), [there, counts], values.null_count, values.offset)


def _words(data: pa.Buffer | None) -> np.ndarray:
    """Words of 64 bits; Arrow has two for a decimal, the lower first."""
    return np.frombuffer(b"" if data is None else data, np.int64)


def decimal_text(values: pa.Array) -> pa.Array:
    """Plain digits with as many places as the type has, "-0.05"; of a scale below 0 a whole number."""
    scale = values.type.scale
    if scale >= 0:
        texts = values.cast(pa.large_string())
        if scale <= _PLAIN_PLACES or not _has_letter(texts):
            return texts
    units = as_decimals(values, _UNITS).cast(pa.large_string())
    if scale < 0:
        zeros = pa.scalar("0" * -scale, pa.large_string())
        longer = pc.binary_join_element_wise(units, zeros, pa.scalar("", pa.large_string()))
        return pc.if_else(pc.equal(units, "0"), units, longer)
    padded = pc.utf8_lpad(pc.utf8_ltrim(units, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(units, "-"), "-", "").cast(pa.large_string())
    whole, places = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    point, nothing = (pa.scalar(one, pa.large_string()) for one in (".", ""))
    return pc.binary_join_element_wise(sign, whole, point, places, nothing)


# ---------------------------------------------------------------------------------------------- of texts


def _of_texts(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Arrow reads what is so short that it can't wrap around and has no exponent, Python the rest."""
    longest = WIDE_DIGITS - to.scale
    short = (pc.max(pc.binary_length(values)).as_py() or 0) <= longest
    if short and not _has_letter(values):
        try:
            return values.cast(to)
        except pa.ArrowInvalid:
            pass
    plain = _fits_plainly(values, to, longest)
    made = pc.if_else(plain, values, pa.scalar(None, values.type)).cast(to)
    left = pc.and_(pc.invert(plain), _is_odd(values, longest))
    return _with(made, values, left, lambda text: _read(text, to)[0], to)


def _has_letter(texts: pa.Array) -> bool:
    """Whether there may be an exponent; what stands under nulls or beside the slice is seen, too."""
    data = texts.buffers()[2]
    if data is None:
        return False
    found = data.to_pybytes()
    return b"e" in found or b"E" in found


def _fits_plainly(values: pa.Array, to: pa.DataType, longest: int) -> pa.Array:
    """Which are digits with no exponent, not too long, and have their place in the type; null of null."""
    whole = to.precision - to.scale
    digits = f"^[-+]?(?:0*[0-9]{{0,{whole}}}\\.?|0*[0-9]{{0,{whole}}}\\.[0-9]{{0,{to.scale}}}0*)$"
    fits = pc.and_(pc.match_substring_regex(values, digits), pc.match_substring_regex(values, "[0-9]"))
    return pc.and_(fits, pc.less_equal(pc.binary_length(values), longest))


def _is_odd(values: pa.Array, longest: int) -> pa.Array:
    """Which may be numbers that Arrow is not asked about: with an exponent, or long."""
    exponent = pc.match_substring_regex(values, "^[-+.0-9]+[eE][-+]?[0-9]+$")
    long = pc.and_(
        pc.match_substring_regex(values, "^[-+.0-9]+$"), pc.greater(pc.binary_length(values), longest)
    )
    return pc.or_(exponent, long)


def _read(text: str, to: pa.DataType) -> tuple[int | None, str]:
    """How many units a text says; None and why where it says none."""
    match = _NUMBER.fullmatch(text)
    unreadable = f"Failed to parse string: {shown(text)} as a scalar of type {to}"
    if match is None or not (match[2] or match[3]):
        return None, unreadable
    exponent = (match[4] or "0").lstrip("+")
    sign, size = exponent[:1] == "-", exponent.lstrip("-0") or "0"
    if len(size) > len(str(_MOST_EXPONENT)) or int(size) > _MOST_EXPONENT:
        return None, unreadable
    places = match[3] or ""
    digits = (match[2] + places).lstrip("0")
    if not digits:
        return 0, ""
    kept = digits.rstrip("0")
    more = (-int(size) if sign else int(size)) - len(places) + to.scale + len(digits) - len(kept)
    if more < 0:
        advice = f"a cast to more of them, then to {to}, rounds"
        return None, f"{shown(text)} has more than {to.scale} places; {advice}"
    if len(kept) + more > to.precision:
        return None, f"{shown(text)} does not fit into {to}"
    return int(match[1] + kept) * 10**more, ""


# --------------------------------------------------------------------------------------------- of floats


def _of_floats(values: pa.Array, to: pa.DataType) -> pa.Array:
    """As Arrow rounds: to the nearest, of two as near to the even one."""
    try:
        return values.cast(to)
    except pa.ArrowInvalid:  # one has no place
        inside = pc.less_equal(pc.abs(values), float(10 ** (to.precision - to.scale)))
        likely = pc.if_else(inside, values, pa.scalar(None, values.type))
    try:
        return likely.cast(to)
    except pa.ArrowInvalid:  # one that is rounded up to the first that has none
        return _by_halves(likely, to)


def _by_halves(values: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return values.cast(to)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, to)
    half = len(values) // 2
    return pa.concat_arrays([_by_halves(part, to) for part in (values[:half], values[half:])])


# ------------------------------------------------------------------------------------------- of decimals


def _of_decimals(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Halves are rounded away from zero, as SQL does."""
    more = to.scale - values.type.scale
    digits = to.precision - max(more, 0)  # of what is multiplied, or of what is rounded
    if is_counted(values.type) and -COUNTED_DIGITS <= more <= 0:
        return _of_counted(values, to, 10**-more)
    units = as_decimals(values, _UNITS)
    if more < 0:
        units = _rounded(units, -more, whole=values.type.precision == WIDE_DIGITS)
    if digits < WIDE_DIGITS:
        bound = pa.scalar(Decimal(10 ** max(digits, 0)), _UNITS)
        units = pc.if_else(pc.less(pc.abs(units), bound), units, pa.scalar(None, _UNITS))
    if 0 < more <= WIDE_DIGITS:
        # what stands under a null is not looked at
        units = as_decimals(units.cast(pa.decimal128(WIDE_DIGITS, more)), _UNITS)
    return as_decimals(units, to)


def _of_counted(values: pa.Array, to: pa.DataType, divisor: int) -> pa.Array:
    """Counts of int64, divided by a power of ten: with NumPy in a fifth of the time."""
    first, last = values.offset, values.offset + len(values)
    words = _words(values.buffers()[1])[2 * first : 2 * last : 2]
    if divisor > 1:
        size = np.abs(words) + divisor // 2
        size //= divisor
        words = np.sign(words) * size
    fits = np.abs(words) < 10 ** min(to.precision, COUNTED_DIGITS)
    there = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if to.precision >= COUNTED_DIGITS or fits.all():
        mask = None if there is None else ~there
    else:
        mask = ~fits if there is None else ~(fits & there)
    return as_decimals(pa.array(words, pa.int64(), mask=mask), to)


def _rounded(units: pa.Array, places: int, *, whole: bool) -> pa.Array:
    """Units of which the last `places` are rounded away. `whole`: they may have 38 digits, and the one to
    carry would be another, which Arrow's 128 bits have no room for.
    """
    if places > WIDE_DIGITS:  # less than half a unit
        return pc.if_else(pc.is_valid(units), pa.scalar(Decimal(0), _UNITS), units)
    given = as_decimals(units, pa.decimal128(WIDE_DIGITS, places))
    if places == WIDE_DIGITS or (whole and not _within(units, 10**WIDE_DIGITS - 10**places)):
        given = given.cast(pa.decimal256(WIDE_DIGITS + 2, places))
    made = pc.round(given, ndigits=0, round_mode="half_towards_infinity")
    return made.cast(_UNITS)


def _within(units: pa.Array, bound: int) -> bool:
    most = pc.max(pc.abs(units)).as_py()
    return most is None or most <= bound


# ------------------------------------------------------------------------------------------- one by one


def _with(made: pa.Array, values: pa.Array, left: pa.Array, one: Any, to: pa.DataType) -> pa.Array:
    """What is made, with the answers of those that are left over put in their places."""
    places = pc.fill_null(left, False)
    rest = values.filter(places).to_pylist()
    if not rest:
        return made
    found = [one(value) for value in rest]
    exact = [None if units is None else _EXACT.scaleb(Decimal(units), -to.scale) for units in found]
    return pc.replace_with_mask(made, places, pa.array(exact, to))


def _why_not(value: pa.Array, to: pa.DataType) -> str:
    """Of an array of one value."""
    if pat.is_decimal(value.type):  # as text: Python has no decimals of some scales that Arrow has
        return f"{decimal_text(value)[0].as_py()} does not fit into {to}"
    given = value[0].as_py()
    if isinstance(given, str):
        return _read(given, to)[1] or f"{shown(given)} does not fit into {to}"
    return f"{given} does not fit into {to}"
