"""Checks of what other load on the machine can spoil: times, shares of processor time, how far a
controller came.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Missed(AssertionError):
    """A measured figure was missed."""


def measured(good: bool, *told: Any) -> None:
    """Raise Missed unless the figure is good. Everything else is asserted, and fails at once."""
    if not good:
        raise Missed(*told)


def patiently(check: Callable[[], T], attempts: int = 3) -> T:
    """What `check` returns; it is run again, so many times in all, while it raises Missed, after a pause
    for the other load to pass.
    """
    for attempt in range(1, attempts + 1):
        try:
            return check()
        except Missed:
            if attempt == attempts:
                raise
            time.sleep(2 ** (attempt - 1))
    raise AssertionError("unreachable")
