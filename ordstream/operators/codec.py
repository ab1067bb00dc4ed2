"""Codec: state of any Python kind that can still be written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ordstream.errors import PlanError
from ordstream.operators.functions import check_arguments


@dataclass(frozen=True)
class Codec:
    """State as bytes, for snapshots: see `codec`."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    init: Callable[[], Any]


def codec(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], init: Callable[[], Any]) -> Codec:
    """State of any Python kind for `process` that can still be snapshotted and migrated.

    Parameters
    ----------
    encode : callable
        state -> bytes.
    decode : callable
        bytes -> state; `decode(encode(s))` must behave as `s`.
    init : callable
        () -> the state of a new key.
    """
    for name, function, taken in (
        ("encode", encode, "state"),
        ("decode", decode, "data"),
        ("init", init, ""),
    ):
        if not callable(function):
            raise PlanError(f"codec: {name} must be callable, got {function!r}")
        check_arguments(function, "codec", f"{name}({taken})")
    return Codec(encode, decode, init)
