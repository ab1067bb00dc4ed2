"""What the parameters of groupings and planners may be, before their ranges are looked at."""

from __future__ import annotations

from typing import Any

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
