"""Checks of arguments that are one of a few texts, true or false, a name, or several values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ordstream.errors import OrdstreamError, PlanError, shown


def is_one_of(value: Any, choices: Collection[str]) -> bool:
    """Whether a value is one of a few texts. An array, a data frame, an expression and pandas' NA are none:
    what they say to `==` has no truth value.
    """
    return isinstance(value, str) and value in choices


def flag(value: Any, what: str, error: type[OrdstreamError] = PlanError) -> bool:
    """The value if it is True or False, NumPy's too; else an error naming it: 0 and "no" are neither."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{what} must be True or False, got {shown(value)}")
    return bool(value)


def gone_through(value: Any) -> list[Any] | None:
    """What is in an iterable; None where it can't be gone through, though it may say that it can: an array
    of no dimension, a file of bytes that is only written.
    """
    try:
        return list(value)
    except (TypeError, OSError):
        return None


def is_text(value: Any) -> bool:
    """Whether a value is a str that can be written. One with half a surrogate pair has no UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
