"""Flink's load-aware rebalance in virtual time (FLIP-339; `taskmanager.network.adaptive-partitioner`, since
2.3): each tuple goes to the channel with the least that the sender still holds.

The sender looks at the next `traversed` channels in turn, the one chosen last excepted where that is fewer
than all. The first that has nothing waiting is taken, else the one with the fewest waiting buffers, of equal
ones that with the fewest bytes. What a receiver has taken already into its own buffers is not seen: credit
lets it hold some before anything waits at the sender.
"""

from __future__ import annotations

from ordstream._core.lab.simulator import Policy


class LoadAwareRebalance(Policy):
    """FLIP-339 for tuples of one size.

    Parameters
    ----------
    received : int
        Tuples that an instance's own buffers hold: so many outstanding ones are not seen. 0: all are.
    buffer : int
        Tuples of a buffer.
    traversed : int
        Channels looked at, Flink's `max-traverse-size`.
    """

    def __init__(self, received: int = 0, buffer: int = 1, traversed: int = 4) -> None:
        self._received, self._buffer, self._traversed = received, buffer, traversed
        self._outstanding: list[int] = []
        self._last = -1

    def started(self, instances: int) -> int:
        self._outstanding = [0] * instances
        self._last = -1
        return 0

    def submit(self, i: int, word: int, now: float) -> int:
        k = len(self._outstanding)
        best, fewest = 0, None
        for step in range(1, min(self._traversed, k) + 1):
            channel = (self._last + step) % k
            waiting = max(0, self._outstanding[channel] - self._received)
            if not waiting:
                best = channel
                break
            load = (-(-waiting // self._buffer), waiting)
            if fewest is None or load < fewest:
                best, fewest = channel, load
        self._last = best
        self._outstanding[best] += 1
        return best

    def executed(self, i: int, word: int, instance: int, start: float, end: float) -> int:
        self._outstanding[instance] -= 1
        return 0
