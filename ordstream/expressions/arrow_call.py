"""ArrowCall: a function of Arrow's compute library as an instruction of an expression.

Arrow knows Unicode's letters, regular expressions, the time zone database and how numbers are written;
nobody should write them again. Its function is the meaning of the instruction. The reference gives it one
value, the core all rows of a chunk at once (`_core/ground/arrow_calls.pyx`), for which a worker takes the
GIL.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordstream.expressions import zones
from ordstream.expressions.decimal_casts import as_counts, as_decimals, decimal_text, to_decimal
from ordstream.expressions.needed_text import needed_text
from ordstream.expressions.not_strict import answers, read_integers
from ordstream.expressions.strptime import read_times
from ordstream.expressions.written_times import with_offset, written_by
from ordstream.ground.types import WIDE_DIGITS, is_string, is_wide, storage_type


@functools.lru_cache(maxsize=256)
def _function(name: str, options: tuple[tuple[str, Any], ...]) -> Callable[[pa.Array], pa.Array]:
    """A function with its options, looked up once: `pyarrow.compute.year` spends some microseconds on it."""
    if name == "cast":
        target = dict(options)["to"]
        if pa.types.is_integer(target):
            return lambda values: (
                read_integers(values, target) if is_string(values.type) else values.cast(target)
            )
        return lambda values: values.cast(target)
    if name == "cast_single":
        single = dict(options)["to"]
        return lambda values: values.cast(pa.float32()).cast(single)
    if name == "count_of":
        return functools.partial(_counted, **dict(options))
    if name in _OWN:
        return functools.partial(_OWN[name], **dict(options))
    if name == "extract_regex":  # a struct of all groups; null where nothing matches, which the caller asks
        pattern, group = (value for _, value in options)
        return lambda values: pc.fill_null(pc.struct_field(pc.extract_regex(values, pattern), group), "")
    wrapper = getattr(pc, name)
    options_class = wrapper.__arrow_compute_function__["options_class"]
    given = getattr(pc, options_class)(**dict(options)) if options else None
    function = pc.get_function(name)
    return lambda values: function.call([values], given)


def _counted(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Times of counts of their unit. Arrow's cast takes any count."""
    times = values.cast(storage_type(to)).cast(to)
    times.validate(full=True)
    return times


#: Characters that no text means: Unicode keeps some for a program's own use, and others for private use.
_UNUSED = (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xFFFFE))


def _marks(values: pa.Array, n: int, beside: str = "") -> list[str]:
    """Characters that stand in none of the values, nor in what is put beside them."""
    unused = (chr(one) for one in _UNUSED if chr(one) not in beside)
    free = (one for one in unused if not pc.any(pc.match_substring(values, one)).as_py())
    marks = list(itertools.islice(free, n))
    if len(marks) < n:
        raise pa.ArrowInvalid("the text has all characters that could mark where the pattern matches")
    return marks


# Of Arrow's functions only the replacing of all matches looks at the text in front of a match. The others
# cut it off match by match, so that to them "^a" matches three times in "aaa", "\\b" in front of each of its
# letters, and what matches nothing between two bytes of one character; and splitting does not end there
# (pyarrow 26). So marks are put around all matches, which are then counted, or split or replaced at.


def _counted_matches(values: pa.Array, pattern: str) -> pa.Array:
    """How often a regular expression matches."""
    (mark,) = _marks(values, 1)
    return pc.count_substring(pc.replace_substring_regex(values, pattern, mark), mark)


def _replaced(values: pa.Array, pattern: str, replacement: str, max_replacements: int | None) -> pa.Array:
    """The first `max_replacements` matches of a regular expression replaced."""
    if max_replacements is None:
        return pc.replace_substring_regex(values, pattern, replacement)
    begin, middle, end = _marks(values, 3, replacement)
    marked = pc.replace_substring_regex(values, pattern, f"{begin}{replacement}{middle}\\0{end}")
    parts = pc.split_pattern(marked, begin, max_splits=max_replacements)
    texts = pc.replace_substring_regex(parts.values, f"^([^{middle}]*){middle}[^{end}]*{end}", "\\1")
    texts = pc.replace_substring_regex(texts, f"{begin}[^{middle}]*{middle}([^{end}]*){end}", "\\1")
    return pc.binary_join(_lists(parts, texts), pa.scalar("", texts.type))


def _split(values: pa.Array, pattern: str, max_splits: int | None) -> pa.Array:
    """Parts between the first `max_splits` matches of a regular expression."""
    begin, end = _marks(values, 2)
    marked = pc.replace_substring_regex(values, pattern, f"{begin}\\0{end}")
    parts = pc.split_pattern(marked, begin, max_splits=max_splits)
    texts = pc.replace_substring_regex(parts.values, f"^[^{end}]*{end}", "")
    if max_splits is not None:  # what was marked behind the last place
        texts = pc.replace_substring_regex(texts, f"[{begin}{end}]", "")
    return _lists(parts, texts)


#: Unicode's white space, as a class of characters in Arrow's regular expressions.
_WHITE = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"


def _split_at_white(values: pa.Array, max_splits: int | None) -> pa.Array:
    """Parts between the first `max_splits` runs of white space. Arrow's own function takes a third of the
    time, and a run at the end of a text apart (pyarrow 26).
    """
    trimmed = pc.binary_length(pc.utf8_rtrim_whitespace(values))
    if pc.any(pc.greater(pc.subtract(pc.binary_length(values), trimmed), 1)).as_py():
        return pc.split_pattern_regex(values, _WHITE, max_splits=max_splits)
    return pc.utf8_split_whitespace(values, max_splits=max_splits)


def _lists(like: pa.Array, texts: pa.Array) -> pa.Array:
    """Lists as they were, of other texts."""
    return pa.ListArray.from_arrays(like.offsets, texts, mask=like.is_null() if like.null_count else None)


# What strict=False is made of: a function that gives null where it would fail, and whether it gives a value.
# What stands under a null is any value on the expression stack, so the caller asks for both.


def _or_null(values: pa.Array, function: str, options: tuple[tuple[str, Any], ...]) -> pa.Array:
    return answers(values, _function(function, options), function, options)


def _has_answer(values: pa.Array, function: str, options: tuple[tuple[str, Any], ...]) -> pa.Array:
    return pc.is_valid(_or_null(values, function, options))


#: What Arrow's functions of these names are replaced by.
_OWN: dict[str, Callable[..., pa.Array]] = {
    "or_null": _or_null,
    "has_answer": _has_answer,
    "to_decimal": to_decimal,
    "decimal_text": decimal_text,
    "strftime": written_by,
    "strptime": read_times,
    "count_substring_regex": _counted_matches,
    "replace_substring_regex": _replaced,
    "split_pattern_regex": _split,
    "utf8_split_whitespace": _split_at_white,
}


#: Numbers of 128 bits, as Arrow has them.
_UNITS = pa.decimal128(WIDE_DIGITS, 0)


def stack_type(takes: pa.DataType) -> pa.DataType:
    """The type in which values of a type come from the expression stack."""
    if is_string(takes):
        return pa.large_string()
    if is_wide(takes):
        return _UNITS
    return pa.float64() if pa.types.is_floating(takes) else pa.int64()


#: Functions whose answer is known where a regular expression does not match.
_NO_MATCH = ("match_substring_regex", "count_substring_regex", "replace_substring_regex", "extract_regex")


@dataclass(frozen=True)
class ArrowCall:
    """A function of one column.

    Attributes
    ----------
    function : str
        Its name in `pyarrow.compute`. "cast" has the option `to`, a type; "extract_regex" beside its
        pattern the name of the group.
    options : tuple of (str, value)
        Keyword arguments.
    takes : pyarrow.DataType
        The type that the function is given: of strings, numbers, decimals, dates or times.
    """

    function: str
    options: tuple[tuple[str, Any], ...]
    takes: pa.DataType

    @property
    def takes_text(self) -> bool:
        """It is given strings."""
        return is_string(self.takes)

    @property
    def takes_wide(self) -> bool:
        """It is given numbers of 128 bits, the units of decimals."""
        return is_wide(self.takes)

    @property
    def _tells_apart(self) -> bool:
        """It makes a decimal, or another type of a string: `answers` knows which have an answer."""
        return self.function == "to_decimal" or (self.takes_text and self.function in ("cast", "strptime"))

    @property
    def _gives_text(self) -> bool:
        return is_string(dict(self.options)["to"])

    @property
    def case_step(self) -> int:
        """What a function of upper and lower case adds to an ASCII letter; 0: it is another function."""
        return {"utf8_lower": 32, "utf8_upper": -32}.get(self.function, 0)

    @functools.cached_property
    def needed(self) -> bytes:
        """Of a regular expression: a text in front of all else to look for. Values without it are as those
        that it does not match: false, 0, unchanged or empty. b"": there is none.
        """
        if self.function not in _NO_MATCH:
            return b""
        pattern = dict(self.options)["pattern"]
        if self.function == "extract_regex" and pattern.startswith("(?P<g0>"):
            pattern = pattern[len("(?P<g0>") : -1]  # of the whole match
        return needed_text(pattern).encode()

    @property
    def passes_unmatched(self) -> bool:
        """What its regular expression does not match stays as it is."""
        return self.function == "replace_substring_regex"

    @property
    def gives_lists(self) -> bool:
        """It gives lists of strings, as lists of large_string."""
        return self.function in ("split_pattern", "split_pattern_regex", "utf8_split_whitespace")

    def array(self, values: pa.Array) -> pa.Array:
        """The function of a column as it is on the expression stack: large_string, 64 bits that hold an
        int64 or a float64, or units of decimals as decimals without places. Out: the same, bool, or lists of
        large_string.

        Raises
        ------
        pyarrow.ArrowInvalid
            A value has no answer, such as a local time that a change of the clock skips.
        """
        if pa.types.is_timestamp(self.takes) or pa.types.is_date(self.takes):
            return self._stacked(self._of_times(values))
        return self._stacked(self._plain(self._typed(values)))

    def _typed(self, values: pa.Array) -> pa.Array:
        """What is on the stack as the type that the function is given."""
        if self.takes_text:
            return values
        if pa.types.is_floating(self.takes):
            return values.view(self.takes)
        if pa.types.is_decimal128(self.takes):
            return as_decimals(values, self.takes)
        return values.cast(storage_type(self.takes)).view(self.takes)

    def tried(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """`array` where some values have no answer: anything or null for these, and which have one."""
        if self._tells_apart:
            found = answers(self._typed(values), self._plain, self.function, self.options)
            return self._stacked(found), pc.is_valid(found)
        parts: list[pa.Array | None] = []
        self._try_halves(values, parts)
        kind = self.array(values[:0]).type
        found = [pa.nulls(1, kind) if part is None else part for part in parts]
        there = [pa.repeat(part is not None, len(made)) for part, made in zip(parts, found, strict=True)]
        return pa.concat_arrays(found), pa.concat_arrays(there)

    def _try_halves(self, values: pa.Array, parts: list[pa.Array | None]) -> None:
        """Append the answers; None stands for a value that has none."""
        try:
            parts.append(self.array(values))
            return
        except Exception:
            if len(values) == 1:
                parts.append(None)
                return
        half = len(values) // 2
        self._try_halves(values[:half], parts)
        self._try_halves(values[half:], parts)

    def _stacked(self, result: pa.Array) -> pa.Array:
        """A result as the expression stack has it."""
        if pa.types.is_boolean(result.type) or pa.types.is_list(result.type):
            return result
        if result.type in (
            pa.large_string(),
            pa.int64(),
            pa.float64(),
        ):  # a cast to what it is costs microseconds, too
            return result
        if is_string(result.type):
            return result.cast(pa.large_string())
        if pa.types.is_decimal128(result.type):
            return as_decimals(result, _UNITS) if is_wide(result.type) else as_counts(result)
        return result.cast(storage_type(result.type)).cast(pa.int64())

    def _plain(self, values: pa.Array) -> pa.Array:
        """What Arrow has."""
        return _function(self.function, self.options)(values)

    def _of_times(self, counts: pa.Array) -> pa.Array:
        """What Arrow has, where it knows the zone then, and its calendar goes that far."""
        known = zones.all_known(counts, self.takes)
        values = counts.cast(storage_type(self.takes)).view(self.takes)
        if self.function == "floor_temporal":
            zone = getattr(self.takes, "tz", None)
            return self._truncated(values, known) if zone else self._floor(values)
        if known or self.function not in ("local_timestamp", "assume_timezone"):
            if not known and self.function in ("strftime", "cast"):
                zones.check_written(values)
            if self.function == "cast" and getattr(self.takes, "tz", None) and self._gives_text:
                return with_offset(values)
            return self._plain(values)
        return zones.instants(values, **dict(self.options)) if self.options else zones.readings(values)

    def _truncated(self, values: pa.Array, known: bool) -> pa.Array:
        """In a zone. Arrow refuses intervals that begin at a reading which is there twice or never; of weeks
        it gives another instant, without a word.
        """
        if known and dict(self.options)["unit"] != "week":
            with contextlib.suppress(pa.ArrowInvalid):
                return self._floor(values)
        return zones.truncated(values, self._floor)

    def _floor(self, values: pa.Array) -> pa.Array:
        result = self._plain(values)
        if pc.any(pc.greater(result, values)).as_py():  # it wrapped around
            raise pa.ArrowInvalid("the interval begins before the earliest time of the type")
        return result

    def value(self, value: Any) -> Any:
        """The function of one value that is not null; strings come and go as bytes, decimals as units.

        Raises
        ------
        OverflowError
            It has no answer.
        ValueError
            The text has none: it is no number, or no time.
        """
        text = self.takes_text
        stack = stack_type(self.takes)
        one = value.decode() if text else Decimal(value) if self.takes_wide else value
        given = pa.array([one], stack)
        try:
            result = self.array(given)[0].as_py()
        except pa.ArrowInvalid as error:
            advice = "; with strict=False it is null" if self._tells_apart else ""
            raise (ValueError if text else OverflowError)(f"{error}{advice}") from error
        if isinstance(result, Decimal):
            return int(result)
        return result.encode() if isinstance(result, str) else result
