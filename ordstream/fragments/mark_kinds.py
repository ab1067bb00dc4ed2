"""What a marker in the order is for. Its number says it, so that every node knows."""

from __future__ import annotations

SNAPSHOT, MOVE, REPORT, TIME, REORDERED = range(5)
KINDS = 8


def numbered(place: int, kind: int) -> int:
    """The number of the marker at a place among all of the caller, from 1. Of REORDERED, which a node puts
    into the order: of place 0.
    """
    return place * KINDS + kind


def kind_of(number: int) -> int:
    """What a marker is for."""
    return number % KINDS
