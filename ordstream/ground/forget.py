"""What a function of `process` returns to have the state of its key forgotten."""

from __future__ import annotations

from enum import Enum


class Forget(Enum):
    """The type of `od.FORGET`. An enumeration: the one member is itself again in another process."""

    FORGET = "forget"

    def __repr__(self) -> str:
        return "od.FORGET"


FORGET = Forget.FORGET
