"""What the parameters of groupings and planners may be, before their ranges are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError
from ordstream.ground.numbers import is_number, is_whole

#: Most instances of a balancer: each has something of its own there.
MOST_INSTANCES = 1 << 20


def check_numbers(values: Any, numbers: tuple[str, ...], whole: tuple[str, ...], optional: str = "") -> None:
    """Refuse what is no number in these attributes of `values`, and what is no int in `whole`; None passes
    in those that `optional` names, separated by blanks.

    Raises
    ------
    PlanError
        It names the class and the parameter.
    """
    for name in (*numbers, *whole):
        value = getattr(values, name)
        if value is None and name in optional.split():
            continue
        fits, kind = (is_whole, "an int") if name in whole else (is_number, "a number")
        if not fits(value):
            raise PlanError(f"{type(values).__name__}: {name} must be {kind}, got {value!r:.80}")


def whole_from(value: Any, least: int, most: int, what: str) -> int:
    """The value as an int if it is one from `least` to `most`; PlanError naming it otherwise."""
    if not is_whole(value) or not least <= value <= most:
        raise PlanError(f"{what} must be an int of at least {least} and at most {most}, got {value!r:.80}")
    return int(value)


def whole_counts(counts: Any) -> npt.NDArray[np.int64]:
    """How often each key counts, as int64; whether one is negative is for the caller.

    Raises
    ------
    TypeError
        They are no whole numbers: measured costs would be cut to 0.
    OverflowError
        One passes 2^63 - 1.
    """
    # of ints beyond 63 bits NumPy makes floats
    given = np.asarray(counts, dtype=object if isinstance(counts, list | tuple) else None)
    boxed = given.dtype.kind == "O"
    if given.size and not (all(map(is_whole, given.flat)) if boxed else given.dtype.kind in "iu"):
        raise TypeError(
            f"counts and weights are whole numbers, these are not: {given.tolist()!r:.80}. Write measured "
            "costs in a finer unit (nanoseconds), rounded: np.rint(costs).astype(np.int64)"
        )
    if given.size and given.dtype.kind != "i" and given.max() >= 1 << 63:
        raise OverflowError(f"a count passes 2^63 - 1: {given.max()}")
    return np.ascontiguousarray(given, dtype=np.int64)


def whole_count(count: Any) -> int:
    """How often one key counts. Raises as `whole_counts`."""
    if not is_whole(count):
        raise TypeError(f"a count is a whole number, not {count!r:.80}")
    if count >= 1 << 63:
        raise OverflowError(f"a count passes 2^63 - 1: {count}")
    return int(count)
