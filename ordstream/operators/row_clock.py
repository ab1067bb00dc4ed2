"""What the calls of a function take, row by row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class RowClock:
    """Times the calls of a function that is called once per row. One thread.

    Parameters
    ----------
    read : callable
        The time, in seconds.

    Attributes
    ----------
    on : bool
        Calls are timed now.
    rows : list of tuple
        Of the calls that were; its owner takes them out.
    seconds : list of float
        Of each.
    """

    def __init__(self, read: Callable[[], float]) -> None:
        self.on = True
        self.rows: list[Any] = []
        self.seconds: list[float] = []
        self._read = read

    def clear(self) -> None:
        """Forget what was timed."""
        self.rows.clear()
        self.seconds.clear()

    def timing(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its calls timed."""

        @functools.wraps(fn)
        def timed(row: Any, *more: Any) -> Any:
            if not self.on:
                return fn(row, *more)
            began = self._read()
            try:
                return fn(row, *more)
            finally:
                self.seconds.append(self._read() - began)
                self.rows.append(row)

        return timed
