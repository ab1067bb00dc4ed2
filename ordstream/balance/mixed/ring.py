"""Consistent hashing, the function h of the assignment (section 2.1; Karger et al., STOC 1997).

Each instance owns the arcs of a ring that end at its points. An instance more takes keys only from the
others' arcs to itself; one less gives its arcs away, and no other key moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words, key_words
from ordstream.balance.parameters import MOST_INSTANCES, whole_from
from ordstream.errors import PlanError
from ordstream.ground.numbers import is_whole

#: Behind the first 16 bits of a place, by which most are found: a search takes five times as long.
PREFIX = np.uint64(48)
#: Keys from which on that is worth a table.
MANY = 256


def mixed_bits(words: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """MurmurHash3's finaliser over words moved by a multiple of the golden ratio: a bijection of 64-bit
    words for each seed.
    """
    found = words + np.uint64((0x9E3779B97F4A7C15 * (2 * seed + 1)) & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        found ^= found >> np.uint64(shift)
        found *= np.uint64(factor)
    found ^= found >> np.uint64(33)
    return found


class ConsistentHash:
    """h: key to instance. Total, deterministic, the same in every process. Immutable.

    Parameters
    ----------
    instances : int, or sequence of int
        N_D: instances 0..N_D - 1; or the instances' numbers, where some between are missing.
    points : int
        Of each instance on the ring. Shares of the key domain differ by about 1/sqrt(points), relatively.
    seed : int
        Of the points and of the keys' places.

    Raises
    ------
    PlanError
        No instance, a number twice or outside 0..2^31 - 1, or no points.
    """

    splits_keys = False

    def __init__(self, instances: int | Sequence[int], points: int = 1024, seed: int = 0) -> None:
        given: Any = instances
        members: list[int]
        if is_whole(given):
            members = list(range(whole_from(given, 1, MOST_INSTANCES, "the number of instances")))
        elif isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) == 1:
            members = [whole_from(one, 0, 2**31 - 1, "an instance's number") for one in given]
        else:
            raise PlanError(f"instances must be their number, or a list of their numbers, got {given!r:.80}")
        if not members:
            raise PlanError(f"the number of instances must be at least 1, not {instances}")
        if len(set(members)) < len(members):
            raise PlanError(f"instances have different numbers from 0 to 2^31 - 1, not {instances}")
        if points < 1:
            raise PlanError(f"an instance needs at least 1 point on the ring, not {points}")
        self.members, self.points, self.seed = tuple(members), points, seed
        owners = np.repeat(np.array(members, dtype=np.int32), points)
        # A point is a function of (instance, its number, seed) alone, so it stays where it is when other
        # instances come and go.
        labels = (owners.astype(np.uint64) << np.uint64(32)) | np.tile(
            np.arange(points, dtype=np.uint64), len(members)
        )
        places = mixed_bits(labels, 2 * seed + 1)
        order = np.argsort(places, kind="stable")
        self._places, self._owners = places[order], owners[order]

    @property
    def instances(self) -> int:
        """N_D."""
        return len(self.members)

    def route(self, keys: Any) -> Instances:
        """h of each key: int32 array. `keys` is what `ordstream.balance.keys.key_words` accepts."""
        return self.route_words(key_words(keys))

    def route_words(self, words: Words) -> Instances:
        """h of each key's word: the owner of the first point at or behind its place, around the ring."""
        places = mixed_bits(words, 2 * self.seed)
        if len(places) < MANY:
            return self._owners_at(places)
        found = self._by_prefix[(places >> PREFIX).astype(np.intp)]
        unclear = np.flatnonzero(found < 0)
        found[unclear] = self._owners_at(places[unclear])
        return found

    def _owners_at(self, places: npt.NDArray[np.uint64]) -> Instances:
        after = np.searchsorted(self._places, places)
        after[after == len(self._places)] = 0
        return self._owners[after]

    @cached_property
    def _by_prefix(self) -> Instances:
        """The owner of all places with the same first 16 bits; -1 where a point lies among them."""
        starts = np.arange(1 << 16, dtype=np.uint64) << PREFIX
        found = self._owners_at(starts)
        found[(self._places >> PREFIX).astype(np.intp)] = -1
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_by_prefix"}  # made anew

    def with_instances(self, instances: int | Sequence[int]) -> ConsistentHash:
        """The ring of other instances, with the same points for those that stay."""
        return ConsistentHash(instances, self.points, self.seed)
