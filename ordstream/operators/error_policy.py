"""What becomes of a tuple that an operator can't process: `on_error=`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from ordstream.errors import NO_ROWS_FAULT, PlanError
from ordstream.ground.choices import is_one_of
from ordstream.ground.numbers import as_int
from ordstream.ground.packed_types import is_packed, unshared
from ordstream.ground.types import is_list

Then = Literal["fail", "skip", "dead_letter"]

#: Most tries behind the first one.
MOST_RETRIES = 1000


@dataclass(frozen=True)
class Retry:
    """See `retry`."""

    n: int
    then: Then


OnError = Then | Retry


def retry(n: int, *, then: Then = "fail") -> Retry:
    """An error policy: a function that raises is called again, up to `n` times, for the same tuple.

    At once, on the same worker, so the order stays. For functions whose failures pass, such as calls to a
    service. Outputs and state of a failed try are gone: each try of a `process` function sees the state as
    it was before the tuple, and each try of any function the tuple as it was. A batch is tried as a whole,
    then in halves of halves, each up to `n` times again. Steps of `on_flush`, `on_time` and `on_timer` are
    not tried again.

    Parameters
    ----------
    n : int
        1 to 1,000.
    then : "fail", "skip" or "dead_letter"
        What becomes of a tuple whose last try fails.

    Raises
    ------
    PlanError
        `n` or `then` can't be.
    """
    given = n = as_int(n)
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_RETRIES:
        raise PlanError(f"retry: n must be an int from 1 to {MOST_RETRIES}, got {n!r}")
    if not is_one_of(then, get_args(Then)):
        raise PlanError(f"retry: then must be 'fail', 'skip' or 'dead_letter', got {then!r}")
    return Retry(n, then)


class Policy(NamedTuple):
    """An error policy as operators have it.

    Attributes
    ----------
    on_error : "fail" or "skip"
    rejects : bool
        What is skipped goes into a second output.
    retries : int
    """

    on_error: Literal["fail", "skip"]
    rejects: bool
    retries: int


def policy(on_error: Any, where: str) -> Policy:
    """The error policy if it is one; PlanError otherwise."""
    then, retries = (on_error.then, on_error.n) if isinstance(on_error, Retry) else (on_error, 0)
    if not is_one_of(then, get_args(Then)):
        raise PlanError(
            f"{where}: on_error must be 'fail', 'skip', 'dead_letter' or od.retry(n), got {on_error!r}"
        )
    return Policy("fail" if then == "fail" else "skip", then == "dead_letter", retries)


class Retried:
    """A function that is called again where it raises.

    Parameters
    ----------
    fn : callable
    retries : int
    copied : callable, optional
        Makes the arguments of a try of those that were given.
    made : callable, optional
        Made of the result within the try: a generator raises only when it is gone through.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        retries: int,
        copied: Callable[[Any], Any] | None = None,
        made: Callable[[Any], Any] | None = None,
    ) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.retries, self.copied, self.made = fn, retries, copied, made
        #: What alone looks at the row, and what it reads beside (`ordstream.ground.columns_read`).
        self.hands_row_to = getattr(fn, "hands_row_to", fn)
        self.looks_at = getattr(fn, "looks_at", ())

    def __call__(self, given: Any) -> Any:
        """The result of the first try that does not raise; what the last one raises."""
        for left in range(self.retries, -1, -1):
            try:
                result = self.fn(given if self.copied is None else self.copied(given))
                return result if self.made is None else self.made(result)
            except NO_ROWS_FAULT:
                raise
            except Exception:
                if not left:
                    raise
        raise AssertionError("a try returns or raises")


def tried_again(fn: Any, retries: int, schema: pa.Schema) -> Any:
    """A function of a row of this schema that is tried again; the function itself without retries."""
    return Retried(fn, retries, copied=_row_copier(schema)) if retries else fn


def gone_through_again(fn: Any, retries: int, schema: pa.Schema) -> Any:
    """`tried_again` for a function that may be a generator: its outputs are collected within each try."""
    return Retried(fn, retries, copied=_row_copier(schema), made=_collected) if retries else fn


def batches_again(fn: Any, retries: int) -> Any:
    """`tried_again` for a function of a batch: each try gets arrays of its own."""
    return Retried(fn, retries, copied=_copied_arrays) if retries else fn


def _row_copier(schema: pa.Schema) -> Callable[[Any], Any] | None:
    """Makes the row of a try, where rows have values that a function can change."""
    return _copied_row if any(is_list(type_) or is_packed(type_) for type_ in schema.types) else None


def _copied_row(row: Any) -> Any:
    """A row of the same class (`ordstream.ground.rows`), with lists and dicts of its own."""
    if isinstance(row, tuple):
        made: Any = type(row)
        return made(map(unshared, row))
    copy = type(row)()
    for name in type(row).__slots__:
        setattr(copy, name, unshared(getattr(row, name)))
    return copy


def _collected(results: Any) -> Any:
    """The outputs as a list; what is no iterable of outputs, as it is: the caller says what is wrong."""
    if isinstance(results, list | str | bytes | dict) or not isinstance(results, Iterable):
        return results
    return list(results)


def _copied_arrays(batch: Any) -> Any:
    """NumPy arrays may be written into; a record batch can't be."""
    return {name: np.array(array) for name, array in batch.items()} if isinstance(batch, Mapping) else batch
