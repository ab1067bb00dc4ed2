"""What a marker in the order is for. Its number says it, so that every node knows."""

from __future__ import annotations

SNAPSHOT, MOVE, REPORT, TIME = range(4)


def numbered(place: int, kind: int) -> int:
    """The number of the marker at a place among all, from 1."""
    return place * 4 + kind


def kind_of(number: int) -> int:
    """What a marker is for."""
    return number % 4
