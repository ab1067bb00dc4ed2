"""Calls with arguments that are not there: the error shows how the call is written, and what an argument of
another system is called here. Methods that are compared and were not called.

`answered` is put around what users call. It looks at a call only when Python has refused its arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = "the order is always kept: leave it out"
_PAIR = "on={'left column': 'right column'}"
_BOTH = "suffix='_right', of the right one where two columns have one name"
_ENDS = "windows are [start, end); leave it out"
_AT_LEAST = (
    "a window begins with the first row: aggregate n=od.count() beside, and take od.when(od.col('n') >= "
    "least).then(...)"
)

#: Method -> arguments of other systems -> what to write. "*" stands for any argument.
_WORDS: dict[str, dict[str, str]] = {
    "lag lead": {
        "default fill_value": (
            "where there is no such row it is null; behind it with_columns(x_lag=od.col('x_lag').fill_null("
            "value)) fills all nulls"
        ),
        "periods offset shift": "n=",
        "partition_by over by": "key_by(column) in front",
    },
    "diff": {"periods": "n="},
    "forward_fill": {
        "limit": (
            "it has no limit; a function that counts has one: process(fn, schema=..., state={'last': float, "
            "'rows': int})"
        ),
        "columns column subset": "forward_fill('a', 'b')",
    },
    "deduplicate": {
        "subset columns on key": "by=",
        "maintain_order ignore_index inplace": _KEPT,
    },
    "sample": {
        "n": "sample takes a share: sample(0.1); so many rows are head(n) or tail(n)",
        "frac": "fraction=",
        "random_state": "seed=",
        "with_replacement withReplacement replace shuffle": "each row is taken once at most, in order",
    },
    "join_lookup join_asof join_interval": {
        "left_on right_on": _PAIR,
        "suffixes": _BOTH,
    },
    "join_lookup": {"by key": "on=", "other right df": "table=", "left_index right_index": _PAIR},
    "join_asof": {
        "by by_left by_right left_by right_by": "on= is the key and time= the time: on='key', time='ts'",
        "strategy direction": (
            "it takes the last row before; rows behind are those of join_interval(within=('0s', '1h'))"
        ),
        "allow_exact_matches": (
            "a row of the same time is seen where its source comes first in the mapping that run is given"
        ),
        "how": "every row of the left is given, as with how='left'; leave it out",
    },
    "head tail": {
        "by subset on key partition_by over group_by": "key_by(column) in front",
        "k rows": "n=",
    },
    "map flat_map map_batches process": {
        "returns return_dtype dtype output_type out_type result_type": "schema={'column': type}",
        "output outputs output_schema out_schema": "schema={'column': type}",
        "axis": "a function gets a row; leave it out",
    },
    "filter assert_that branch": {"*": "a condition is written od.col('x') == value"},
    "drop": {"*": "drop('a', 'b')"},
    "rename": {"*": "rename({'old': 'new'})"},
    "key_by": {"*": "key_by('a', 'b')"},
    "top_k": {
        "reverse ascending": "descending=False for the smallest, with key=() or behind key_by",
        "columns column on": "by=",
        "n": "k=",
    },
    "cum_sum cum_min cum_max cum_mean cum_count": {
        "reverse": "rows are seen in the source's order: give that the other way round",
        "alias": "output=",
    },
    "sessionize": {"gap threshold gap_duration": "timeout=", "on time_column": "time="},
    "window": {
        "on time_column timeColumn index_column": "time=",
        "every period length windowDuration freq": "window(od.tumbling('1m'), time='ts')",
        "by partition_by group_by": "key_by(column) in front",
    },
    "reorder": {"delay watermark tolerance max_delay delayThreshold": "slack=", "on time_column": "time="},
    "count": {
        "where": "of some rows it is aggregate(n=od.count(where=...))",
        "by key": "key_by(column) in front",
    },
    "union": {"by_name allowMissingColumns": "how='diagonal'", "ignore_index": _KEPT},
    "tumbling hopping session rolling rows calendar": {
        "min_periods min_samples": _AT_LEAST,
        "center": "a window ends with its row; rows behind it are seen by lead",
        "label": "there are both columns, start and end",
        "include_boundaries": "the columns start and end are always there; leave it out",
    },
    "tumbling": {
        "every period size duration window": "tumbling('1m'), the length",
        "closed": _ENDS,
        "origin start_by startTime": "offset=",
    },
    "hopping": {
        "period size duration window": "hopping('10m', every='1m'): the length is first",
        "slide hop step advance slideDuration": "every=",
        "closed": _ENDS,
    },
    "calendar": {
        "tz time_zone timezone zone": (
            "the zone is that of the time column: with_columns(ts=od.col('ts').dt.convert_time_zone(zone)) "
            "in front"
        ),
        "every period size window freq": "calendar('1mo'), the length",
        "closed": _ENDS,
    },
    "retry": {"attempts times max_attempts retries max_retries tries stop": "n=: so many times more"},
    "session": {"gap threshold gap_duration gapDuration": "session('30m'), the timeout"},
    "rolling": {"window window_size": "rolling('5m') of time, or rows(20)"},
    "rows": {"window window_size preceding": "rows(20), the row itself among them"},
    "std var": {"ddof": "it divides by n - 1, as ddof=1"},
    "median quantile": {"interpolation": "it is linear; leave it out"},
    "first last": {"ignore_nulls ignorenulls skipna": "nulls are passed over; leave it out"},
    "sum min max mean": {"skipna min_count numeric_only": "nulls are passed over; leave it out"},
    "collect": {"last limit size": "n=", "distinct": "deduplicate([key, column]) in front"},
    "sum min max mean count first last std var median": {
        "alias name": "the keyword of aggregate(name=od.sum(column)), or .alias(name)",
        "filter": "where=",
    },
    "fill_null coalesce": {
        "strategy method": "the value before is pipeline.key_by(...).forward_fill(column)",
        "limit": "pipeline.key_by(...).forward_fill(column) has no limit",
    },
    "cast": {"errors": "strict=False gives null"},
    "between is_between": {
        "closed inclusive": "both ends belong to it; else write (column >= low) & (column < high)"
    },
    "clip": {"lower min": "lower_bound=", "upper max": "upper_bound="},
    "when": {"otherwise": "when(condition, value).otherwise(other)"},
    "str.contains str.replace str.split": {
        "literal": "a text is taken as it is; a pattern with regex=True",
        "case flags": "regex=True and a pattern that begins with (?i)",
        "na": "a null gives null: .fill_null(value)",
        "pat pattern": "the text is first, and a pattern with regex=True",
    },
    "str.split": {
        "expand": ".list.get(0), .list.get(1) of it",
        "inclusive": "the separator is left out",
    },
    "str.slice": {"start stop step": "slice(offset, length)"},
    "str.to_datetime str.to_date": {
        "fmt": "format=",
        "errors": "strict=False gives null",
        "time_zone utc": "with %z in the format it is in UTC, else a clock's: .dt.replace_time_zone(zone)",
        "exact cache dayfirst infer_datetime_format": "format= says all: leave it out",
    },
    "dt.truncate": {"offset": "truncate column - span, and add the span again", "freq": "every="},
    "dt.convert_time_zone dt.replace_time_zone": {"tz zone": "time_zone="},
    "dt.replace_time_zone": {"nonexistent": "non_existent="},
}
_FOUND = {
    (method, argument): text
    for methods, table in _WORDS.items()
    for method in methods.split()
    for arguments, text in table.items()
    for argument in arguments.split()
}


def answered(function: F, family: str = "", name: str = "") -> F:
    """The function; where Python refuses the arguments of a call, the TypeError says how it is written.

    Parameters
    ----------
    family : str
        "str.", "dt." or "list." in front of a method's name; else empty.
    name : str
        By which it is called, where that is not its own.
    """
    told = f"{family}{name or function.__name__}"

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised inside
                raise
            refused = str(error)
        raise TypeError(_told(function, told, refused)) from None

    return called  # type: ignore[return-value]


def answer_init(made: type) -> None:
    """`answered` around what makes an object of the class, by the name of the class; not of an exception,
    nor where that is not written in Python.
    """
    own: Any = vars(made).get("__init__")
    if issubclass(made, BaseException) or hasattr(own, "__wrapped__"):
        return
    init = inspect.unwrap(made.__init__)
    if type(init) is FunctionType:
        made.__init__ = answered(init, name=made.__name__)  # type: ignore[method-assign]


def answer_methods(made: type, family: str = "") -> None:
    """`answered` around all methods of a class, and of those of this package that it derives from.

    Not `pipe`, which takes any argument.
    """
    for cls in made.__mro__:
        if not cls.__module__.startswith("ordstream."):
            continue
        for name, found in list(vars(cls).items()):
            if name[0] == "_" or name == "pipe" or type(found) is not FunctionType:
                continue
            if not hasattr(found, "__wrapped__"):
                setattr(cls, name, answered(found, family, name))


class Uncalled:
    """A method behind `.str`, `.dt` or `.list`. pandas has `.dt.hour` without a call: a plain method is
    unequal to each value, and `with_columns(night=od.col("ts").dt.hour == 3)` false in every row.
    """

    def __init__(self, method: Any) -> None:
        self.__self__ = method.__self__
        functools.update_wrapper(self, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> NoReturn:
        name = self.__wrapped__.__name__  # type: ignore[attr-defined]
        raise TypeError(f"{name} is a method, and is called before it is compared: .{name}()")

    __ne__ = __eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]


class CalledMethods:
    """A class whose methods are told when they are compared without being called."""

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            found = object.__getattribute__(self, name)
            return Uncalled(found) if type(found) is MethodType and name[0] != "_" else found


def _told(function: Callable[..., Any], name: str, refused: str) -> str:
    text = re.sub(r"^\S*\(\)", f"{name}()", refused)
    unknown = re.search(r"unexpected keyword argument '([^']+)'", refused)
    words = ""
    if unknown is not None:
        words = _FOUND.get((name, unknown[1])) or _FOUND.get((name, "*"), "")
    text = re.sub(r"\. Did you mean '(\w+)'\?$", r" (did you mean '\1'?)", text)  # Python 3.13
    return f"{text}{words and f': {words}'}; the call is {name}{_signature(function)}"


def _signature(function: Callable[..., Any]) -> str:
    shown = inspect.signature(function)
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in shown.parameters.values()
        if one.name not in ("self", "_others")  # which are there to be refused
    ]
    return str(shown.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
