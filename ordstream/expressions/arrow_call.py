"""ArrowCall: a function of Arrow's compute library as an instruction of an expression.

Arrow knows Unicode's letters, regular expressions, the time zone database and how numbers are written;
nobody should write them again. Its function is the meaning of the instruction. The reference gives it one
value, the core all rows of a chunk at once (`_core/ground/arrow_calls.pyx`), for which a worker takes the
GIL.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordstream.expressions import zones
from ordstream.ground.types import is_string, storage_type


@functools.lru_cache(maxsize=256)
def _function(name: str, options: tuple[tuple[str, Any], ...]) -> Callable[[pa.Array], pa.Array]:
    """A function with its options, looked up once: `pyarrow.compute.year` spends some microseconds on it."""
    if name == "cast":
        target = dict(options)["to"]
        return lambda values: values.cast(target)
    if name == "extract_regex":  # a struct of all groups; null where nothing matches, which the caller asks
        pattern, group = (value for _, value in options)
        return lambda values: pc.fill_null(pc.struct_field(pc.extract_regex(values, pattern), group), "")
    wrapper = getattr(pc, name)
    options_class = wrapper.__arrow_compute_function__["options_class"]
    given = getattr(pc, options_class)(**dict(options)) if options else None
    function = pc.get_function(name)
    return lambda values: function.call([values], given)


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
        The type that the function is given: of strings, numbers, dates or times.
    """

    function: str
    options: tuple[tuple[str, Any], ...]
    takes: pa.DataType

    @property
    def takes_text(self) -> bool:
        """It is given strings."""
        return is_string(self.takes)

    @property
    def case_step(self) -> int:
        """What a function of upper and lower case adds to an ASCII letter; 0: it is another function."""
        return {"utf8_lower": 32, "utf8_upper": -32}.get(self.function, 0)

    def array(self, values: pa.Array) -> pa.Array:
        """The function of a column as it is on the expression stack: large_string, or 64 bits that hold an
        int64 or a float64. Out: the same, or bool.

        Raises
        ------
        pyarrow.ArrowInvalid
            A value has no answer, such as a local time that a change of the clock skips.
        """
        if self.takes_text:
            result = self._plain(values)
        elif pa.types.is_floating(self.takes):
            result = self._plain(values.view(self.takes))
        elif pa.types.is_timestamp(self.takes) or pa.types.is_date(self.takes):
            result = self._of_times(values)
        else:
            result = self._plain(values.cast(storage_type(self.takes)).view(self.takes))
        if pa.types.is_boolean(result.type):
            return result
        if result.type in (
            pa.large_string(),
            pa.int64(),
            pa.float64(),
        ):  # a cast to what it is costs microseconds, too
            return result
        if is_string(result.type):
            return result.cast(pa.large_string())
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
            return self._plain(values)
        return zones.instants(values, **dict(self.options)) if self.options else zones.readings(values)

    def _truncated(self, values: pa.Array, known: bool) -> pa.Array:
        """In a zone. Arrow refuses intervals that begin at a reading which is there twice, or never."""
        if known:
            with contextlib.suppress(pa.ArrowInvalid):
                return self._floor(values)
        return zones.truncated(values, self._floor)

    def _floor(self, values: pa.Array) -> pa.Array:
        result = self._plain(values)
        if pc.any(pc.greater(result, values)).as_py():  # it wrapped around
            raise pa.ArrowInvalid("the interval begins before the earliest time of the type")
        return result

    def value(self, value: Any) -> Any:
        """The function of one value that is not null; a string comes and goes as bytes.

        Raises
        ------
        OverflowError
            It has no answer.
        """
        text = self.takes_text
        stack = pa.float64() if pa.types.is_floating(self.takes) else pa.int64()
        given = pa.array([value.decode() if text else value], pa.large_string() if text else stack)
        try:
            result = self.array(given)[0].as_py()
        except pa.ArrowInvalid as error:
            raise OverflowError(str(error)) from error
        return result.encode() if isinstance(result, str) else result
