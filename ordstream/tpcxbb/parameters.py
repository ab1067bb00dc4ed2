"""Parameters of the queries as the command line gives them: text in, checked values out.

A list is comma-separated, a date is an ISO date or a number of days since 1900-01-01, `none` is no
restriction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from ordstream.operators.preceding import MOST_PRECEDING

DAY_ZERO = date(1900, 1, 1)
LARGEST = 2**63 - 1


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """A whole number of at least `least` and at most `most`."""
    bounds = f"of at least {least}" if most == LARGEST else f"from {least} to {most}"

    def read(text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]+", text.strip()) is None or not least <= int(text) <= most:
            raise ValueError(f"a whole number {bounds}")
        return int(text)

    return read


def several(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers, each once."""
    try:
        return tuple(dict.fromkeys(whole(0)(part) for part in text.split(",")))
    except ValueError:
        raise ValueError("whole numbers with commas between them") from None


def day(text: str) -> int:
    """A day, as the number of days since 1900-01-01."""
    try:
        return whole(0)(text)
    except ValueError:
        pass
    try:
        return (date.fromisoformat(text.strip()) - DAY_ZERO).days
    except ValueError:
        raise ValueError("a date such as 2001-09-02, or a number of days since 1900-01-01") from None


def or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The same, or `none`."""

    def either(text: str) -> Any:
        if text.strip().lower() == "none":
            return None
        try:
            return read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    return either


READERS: dict[str, Callable[[str], Any]] = {
    "stores": or_none(several),
    "categories": or_none(several),
    "min_count": whole(0),
    "limit": whole(1),
    "window_seconds": or_none(whole(1)),
    "anchor": or_none(whole(0)),
    "timeout_seconds": whole(0),
    "purchased": or_none(whole(0)),
    "last_n": whole(1, MOST_PRECEDING),  # the batch answer's statement has a row for each
    "within_seconds": whole(0),
    "store": or_none(whole(0)),
    "date_from": day,
    "date_to": day,
}
"""What a parameter's text may be; a name means the same in every query that has it."""


def read_parameters(query: str, defaults: Mapping[str, Any], pairs: Sequence[str]) -> dict[str, Any]:
    """Return all parameters of a query: its profile's, replaced by the given ones.

    Parameters
    ----------
    query : str
        For messages.
    defaults : mapping
        The profile: every parameter that the query has.
    pairs : sequence of str
        ``name=value`` each.

    Raises
    ------
    ValueError
        Naming the parameter and what it may be.
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--param takes name=value, not {pair!r}")
        if name not in defaults:
            raise ValueError(f"{query} has no parameter {name!r}; it has {', '.join(defaults)}")
        if name in given:
            raise ValueError(f"--param {name} is given twice")
        try:
            given[name] = READERS[name](text)
        except ValueError as error:
            raise ValueError(f"{name} of {query} must be {error}, not {text!r}") from None
    chosen = dict(defaults) | given
    if {"date_from", "date_to"} <= set(chosen) and chosen["date_from"] > chosen["date_to"]:
        raise ValueError(
            f"date_from of {query} ({chosen['date_from']}) is after date_to ({chosen['date_to']})"
        )
    return chosen
