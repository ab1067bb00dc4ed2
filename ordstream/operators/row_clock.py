"""What the calls of a function take, row by row."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from ordstream.ground.columns_read import columns_read


class RowClock:
    """Times the calls of a function that is called once per row. One thread.

    Parameters
    ----------
    read : callable
        The time, in seconds.
    names : sequence of str
        Of all columns of a row.
    key : sequence of int
        The columns that are kept of each row whose call is timed.

    Attributes
    ----------
    rows : list of tuple
        The kept columns of the calls that were; its owner takes them out.
    seconds : list of float
        Of each.
    """

    def __init__(
        self, read: Callable[[], float], names: Sequence[str] = (), key: Sequence[int] = ()
    ) -> None:
        self.rows: list[Any] = []
        self.seconds: list[float] = []
        self._read, self._names, self._key = read, names, key

    def clear(self) -> None:
        """Forget what was timed."""
        self.rows.clear()
        self.seconds.clear()

    def timing(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its calls timed."""
        read, kept = self._read, self.kept_of(fn)

        @functools.wraps(fn)
        def timed(row: Any, *more: Any) -> Any:
            self.rows.append(kept(row))  # the row may be another one afterwards
            began = read()
            try:
                return fn(row, *more)
            finally:
                self.seconds.append(read() - began)

        return self.gets_row_of(timed, fn)

    def gets_row_of(self, timed: Callable[..., Any], fn: Callable[..., Any]) -> Callable[..., Any]:
        """`timed`, said to look at what `fn` looks at, and the kept columns: it gets rows of these alone."""
        timed.hands_row_to = getattr(fn, "hands_row_to", fn)  # type: ignore[attr-defined]
        timed.looks_at = [self._names[one] for one in self._key]  # type: ignore[attr-defined]
        return timed

    def kept_of(self, fn: Callable[..., Any]) -> Callable[[Any], tuple[Any, ...]]:
        """What takes the kept columns out of the rows that `gets_row_of` gets."""
        narrow = columns_read(self.gets_row_of(lambda row: row, fn), self._names) is not None
        getters = [attrgetter(self._names[one]) if narrow else itemgetter(one) for one in self._key]
        return lambda row: tuple([get(row) for get in getters])


class SomeCalls(RowClock):
    """Times some calls. The others are of the function itself (`_core/kernels/python_functions.pxd`, h)."""

    def untimed(self) -> int:
        """How many calls are not timed in front of the next one that is. Asked before each of those."""
        raise NotImplementedError

    def timing(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with some calls timed where a kernel calls it."""
        timed: Any = super().timing(fn)
        timed.timed_by, timed.untimed = self, fn
        return timed  # type: ignore[no-any-return]
