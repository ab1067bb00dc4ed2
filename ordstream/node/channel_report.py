"""What went over the channels between the nodes of a run, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ChannelReport:
    """Figures of one channel: from one sender to one receiver.

    Attributes
    ----------
    sender, receiver : str
        "caller", or the fragment and the process, both from 1: "fragment 2 process 1".
    rows, bytes : int
        Sent so far.
    blocked_seconds : float
        For which the sender had rows for this receiver and no credit: the receiver was slower.
    awaited_seconds : float
        For which the receiver had nothing to do but to wait until this sender, which was furthest behind,
        gave rows or said how far it is. Of a node with worker threads: not known, 0.
    most_bytes : int
        Largest number of bytes that the receiver had and had not handed on.
    low : int or None
        Serial: whatever the sender still sends comes from this source tuple or a later one. None: only what
        the end of the stream causes is still to come, or nothing.
    """

    sender: str
    receiver: str
    rows: int
    bytes: int
    blocked_seconds: float
    awaited_seconds: float
    most_bytes: int
    low: int | None


def channel_lines(channels: Sequence[ChannelReport], seconds: float) -> list[str]:
    """The channels as a table, one line each; rates are over `seconds`."""
    if not channels:
        return []
    lines = [
        f"{'channel':<42} {'rows':>12} {'rows/s':>11} {'MB':>9} {'MB/s':>7} {'blocked s':>9} "
        f"{'awaited s':>9} {'low':>12}"
    ]
    per_s = 1 / seconds if seconds > 0 else 0.0
    for c in channels:
        low = "the end" if c.low is None else f"{c.low:,}"
        lines.append(
            f"{c.sender + ' > ' + c.receiver:<42} {c.rows:>12,} {c.rows * per_s:>11,.0f} "
            f"{c.bytes / 1e6:>9.2f} {c.bytes * per_s / 1e6:>7.2f} {c.blocked_seconds:>9.3f} "
            f"{c.awaited_seconds:>9.3f} {low:>12}"
        )
    return lines
