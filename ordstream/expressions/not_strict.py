"""strict=False: a function of Arrow's of the values that it has an answer for, and null for the others.

Arrow refuses a column for one value of it, and each refusal takes some microseconds. So what can be no
number, date or time by its look is left out first, for all values at once; then each text is tried once; and
the few that still have no answer, such as a 30th of February, are found by halving.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.expressions.decimal_casts import decimal_or_null
from ordstream.ground.types import INT64_MAX, integer_range

Call = Callable[[pa.Array], pa.Array]

#: Of a column that a thread keeps, at most: long texts are asked for twice.
KEPT_BYTES = 1 << 20

#: What Arrow reads looks like this, and much that it does not read.
_WHOLE = "^(?:-?(?:[0-9]+|0[xX][0-9a-fA-F]+)|[+][0-9]+)$"
_NUMBER = "^(?i:[-+]?(?:[.0-9][-+.0-9e]*|nan.*|inf.*))$"
_DATE = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T].*)?$"
_TRUTH = "^(?i:true|false|0|1)$"


class _Last(threading.local):
    """The last answer of a thread: the core asks for the values, then which of them are there."""

    def __init__(self) -> None:
        self.asked: tuple[Any, ...] = ()
        self.values: pa.Array = None
        self.answer: pa.Array = None


_LAST = _Last()


def answers(values: pa.Array, call: Call, function: str, options: tuple[tuple[str, Any], ...]) -> pa.Array:
    """The function of each value for which it has an answer; null for the others.

    Parameters
    ----------
    values : pyarrow.Array
        Of large_string; of numbers, too, for "to_decimal".
    call : callable
        The function with its options.
    function, options
        As `ArrowCall`: "cast", "strptime" or "to_decimal".

    Thread safety: any thread; each keeps its last column and answer.
    """
    asked = (function, options)
    if _LAST.asked == asked and _LAST.values.equals(values):
        return _LAST.answer
    made = _answers(values, call, function, dict(options))
    if values.nbytes <= KEPT_BYTES:
        _LAST.asked, _LAST.values, _LAST.answer = asked, values, made
    return made


def _answers(values: pa.Array, call: Call, function: str, options: dict[str, Any]) -> pa.Array:
    target = options.get("to")
    if function == "to_decimal":
        return decimal_or_null(values, target)
    if target is not None and pat.is_integer(target) and target != pa.int64():
        whole = _answers(values, _to_int64, "cast", {"to": pa.int64()})
        return _inside(whole, target).cast(target)
    try:
        return call(values)
    except pa.ArrowInvalid:
        likely = pc.if_else(_looks_right(values, function, options), values, pa.scalar(None, values.type))
    try:
        return call(likely)
    except pa.ArrowInvalid:  # what is wrong is often the same
        distinct = likely.dictionary_encode()
        return _by_halves(distinct.dictionary, call).take(distinct.indices)


def read_integers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Integers that texts say; "+5", which Arrow reads as a float and not as an integer, is 5.

    Raises
    ------
    pyarrow.ArrowInvalid
        A text says none.
    """
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        if not pc.any(pc.starts_with(values, "+")).as_py():
            raise
    return pc.replace_substring_regex(values, "^[+]([0-9]+)$", r"\1").cast(target)


def _to_int64(values: pa.Array) -> pa.Array:
    return read_integers(values, pa.int64())


def _inside(whole: pa.Array, target: pa.DataType) -> pa.Array:
    """Numbers that a narrower type has; null for others."""
    least, most = integer_range(target)
    fits = pc.and_(pc.greater_equal(whole, least), pc.less_equal(whole, min(most, INT64_MAX)))
    return pc.if_else(fits, whole, pa.scalar(None, whole.type))


def _looks_right(values: pa.Array, function: str, options: dict[str, Any]) -> pa.Array:
    """False where there is no answer for sure."""
    if function == "strptime":
        return pc.is_valid(pc.strptime(values, **{**options, "error_is_null": True}))
    target = options["to"]
    if pat.is_boolean(target):
        pattern = _TRUTH
    elif pat.is_integer(target):
        pattern = _WHOLE
    else:
        pattern = _NUMBER if pat.is_floating(target) else _DATE
    return pc.match_substring_regex(values, pattern)


def _by_halves(values: pa.Array, call: Call) -> pa.Array:
    """Values without an answer are halved until they stand alone."""
    try:
        return call(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, call(values.slice(1)).type)
    half = len(values) // 2
    return pa.concat_arrays([_by_halves(part, call) for part in (values[:half], values[half:])])
