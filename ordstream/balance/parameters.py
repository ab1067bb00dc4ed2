"""What the parameters of groupings and planners may be, before their ranges are looked at."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ordstream.errors import PlanError


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
        kind, told = (Integral, "an int") if name in whole else (Real, "a number")
        if isinstance(value, bool) or not isinstance(value, kind):
            raise PlanError(f"{type(values).__name__}: {name} must be {told}, got {value!r:.80}")
