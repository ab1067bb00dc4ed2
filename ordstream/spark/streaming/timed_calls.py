"""What a tuple of each key takes in a fragment's function, in CPU time, by timing some of its calls.

One call in about `SAMPLED` is timed, at distances drawn at random, since rows may come in turns. Not by the
clock on the wall: another process that holds a row up would make its key dear, and keys would move for
nothing. It needs a fragment whose first operator calls the only function, once per row, on one thread;
elsewhere a shed operator measures (`ordstream.spark.grouping.with_costs`), by that clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.balance.keys import key_words
from ordstream.balance.memory import COSTS
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments.fragment import Fragment
from ordstream.operators.row_clock import SomeCalls

#: One call in about so many is timed.
SAMPLED = 16
#: Timed calls whose times are added up together.
TOGETHER = 4_096


class _KeyClock(SomeCalls):
    """Times some calls, and keeps the keys of their rows.

    Parameters
    ----------
    key : tuple of int
    names : sequence of str
        Of all columns of a row.
    seed : int
    full : callable
        Takes what was timed, when there is enough.
    """

    def __init__(
        self, key: tuple[int, ...], names: Sequence[str], seed: int, full: Callable[[], None]
    ) -> None:
        super().__init__(time.thread_time, names, key)
        self._random, self._full, self._first = random.Random(seed), full, True

    def untimed(self) -> int:
        if self._first:
            self._first = False
            return 0  # also of a few rows one is timed
        if len(self.seconds) >= TOGETHER:
            self._full()
        return self._random.randint(1, 2 * SAMPLED - 1) - 1


class TimedCalls:
    """Times the calls of a fragment's function. One thread.

    Parameters
    ----------
    fragment : Fragment
    seed : int

    Attributes
    ----------
    fragment : Fragment or None
        What runs in its place. None: its calls can't be timed.
    """

    def __init__(self, fragment: Fragment, seed: int) -> None:
        self._kinds = [fragment.source.field(index).type for index in fragment.key or ()]
        self._clock = _KeyClock(fragment.key or (), fragment.source.names, seed, self._add_up)
        self._times = ExecutionTimes(COSTS.epsilon, COSTS.delta, seed=COSTS.seed)
        plain = bool(self._kinds) and all(_comes_back(kind) for kind in self._kinds)
        self.fragment = fragment.timing_rows(self._clock) if plain else None

    @property
    def times(self) -> ExecutionTimes:
        """Nanoseconds, by key."""
        self._add_up()
        return self._times

    def _add_up(self) -> None:
        rows, seconds = self._clock.rows, self._clock.seconds
        if seconds:
            columns = [pa.array([row[k] for row in rows], kind) for k, kind in enumerate(self._kinds)]
            words = key_words(columns[0] if len(columns) == 1 else tuple(columns))
            self._times.update_many(words, np.array(seconds) * 1e9)
        self._clock.clear()


def _comes_back(kind: pa.DataType) -> bool:
    """A key of this type is the same once it was a Python value."""
    return bool(pat.is_integer(kind) or pat.is_string(kind) or pat.is_binary(kind) or pat.is_boolean(kind))
