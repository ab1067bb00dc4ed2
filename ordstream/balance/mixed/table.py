"""The assignment F: a routing table of few keys, and consistent hashing for all others (equation 1)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words, key_words
from ordstream.balance.mixed.planners import Plan
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.statistics import Statistics
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.errors import PlanError

#: A bit set by which most keys are seen not to be in a table.
SLOTS = 1 << 16


def _slots(words: Words) -> npt.NDArray[np.intp]:
    return ((words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48)).astype(np.intp)


class Assignment:
    """F(k) = A[k] for a key in the routing table A, else h(k). Total, deterministic, immutable.

    The table holds key words (`ordstream.balance.keys`). An entry with the key's own hash destination says
    nothing and is left out. Destinations are members of the ring; the planner's are their positions among
    its members.

    Parameters
    ----------
    ring : ConsistentHash
        h.
    words : uint64 array, optional
        Keys of the table, each once.
    destinations : int array, optional
        Their instances.

    Raises
    ------
    PlanError
        A key has two entries, lengths differ, or an instance is none of the ring's.
    """

    splits_keys = False

    def __init__(
        self, ring: ConsistentHash, words: npt.ArrayLike = (), destinations: npt.ArrayLike = ()
    ) -> None:
        keys = np.asarray(words, dtype=np.uint64)
        to = np.asarray(destinations, dtype=np.int32)
        if keys.shape != to.shape or keys.ndim != 1:
            raise PlanError(
                f"a routing table needs one instance per key, not {keys.shape} keys and {to.shape} instances"
            )
        wrong = np.flatnonzero(~np.isin(to, ring.members))
        if len(wrong):
            raise PlanError(
                f"the routing table sends a key to instance {to[wrong[0]]}, which the ring does not have"
            )
        needed = ring.route_words(keys) != to
        order = np.argsort(keys[needed], kind="stable")
        self.ring = ring
        self._words, self._to = keys[needed][order], to[needed][order]
        if (self._words[1:] == self._words[:-1]).any() or len(np.unique(keys)) < len(keys):
            raise PlanError("a key has two entries in the routing table")

    @property
    def instances(self) -> int:
        """N_D."""
        return self.ring.instances

    def __len__(self) -> int:
        """N_A, entries of the routing table."""
        return len(self._words)

    @property
    def table(self) -> tuple[Words, Instances]:
        """Words and instances of the entries, by word."""
        return self._words.copy(), self._to.copy()

    def route(self, keys: Any) -> Instances:
        """F of each key: int32 array. `keys` is what `ordstream.balance.keys.key_words` accepts."""
        return self.route_words(key_words(keys))

    def route_words(self, words: Words) -> Instances:
        """F of each key's word. Cost: O(log) of the ring's points and of the table."""
        found = self.ring.route_words(words)
        if len(self._words):
            rows = np.flatnonzero(self._maybe[_slots(words)])
            some = words[rows]
            at = np.searchsorted(self._words, some)
            at[at == len(self._words)] = 0
            listed = self._words[at] == some
            found[rows[listed]] = self._to[at[listed]]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_maybe"}  # made anew

    @cached_property
    def _maybe(self) -> npt.NDArray[np.bool_]:
        """Which slots have a key of the table: most keys are in none of these, and none is looked for."""
        found = np.zeros(SLOTS, dtype=np.bool_)
        found[_slots(self._words)] = True
        return found

    def statistics(
        self,
        words: Words,
        cost: npt.ArrayLike,
        state: npt.ArrayLike,
        fixed: npt.NDArray[np.float64] | None = None,
    ) -> tuple[Words, Statistics]:
        """What a planner needs, from what was measured by key.

        Keys of the table that were not measured are added, without cost and state: they too hold an entry.

        Parameters
        ----------
        words : uint64 array
            Keys that were met, each once.
        cost, state : float arrays
            c(k) of the last interval and S(k, w).
        fixed : float array, optional
            Load of each member of the ring, by their numbers, that no key among these stands for.

        Returns
        -------
        (uint64 array, Statistics)
            The key of each element, and the statistics.

        Raises
        ------
        PlanError
            A key is there twice, or a value is no cost (`Statistics`).
        """
        given = np.asarray(words, dtype=np.uint64)
        if len(np.unique(given)) < len(given):
            raise PlanError("a key was measured twice in one interval; add its costs up first")
        costs, states = (np.asarray(one, dtype=np.float64) for one in (cost, state))
        if not given.shape == costs.shape == states.shape:
            raise PlanError(f"{len(given)} keys, but {len(costs)} costs and {len(states)} state sizes")
        absent = self._words[~np.isin(self._words, given)]
        keys = np.concatenate([given, absent])
        none = np.zeros(len(absent))
        hashed, placed = (
            self._positions(one) for one in (self.ring.route_words(keys), self.route_words(keys))
        )
        return keys, Statistics(
            np.append(costs, none), np.append(states, none), hashed, self.instances, placed, fixed=fixed
        )

    def after(self, words: Words, plan: Plan) -> Assignment:
        """F' of a plan made from `statistics`, whose keys are `words`.

        Raises
        ------
        PlanError
            The plan has groups in place of keys (`Compact.expand` it first), or is one for other keys or
            instances.
        """
        if plan.statistics.number is not None:
            raise PlanError("a plan over compact records names no keys; expand it first")
        if len(words) != len(plan.destination) or plan.statistics.instances != self.instances:
            raise PlanError(
                f"a plan for {len(plan.destination)} keys on {plan.statistics.instances} instances, "
                f"but {len(words)} keys on {self.instances}"
            )
        members = np.array(sorted(self.ring.members), dtype=np.int32)
        return Assignment(self.ring, words, members[plan.destination])

    def on(self, ring: ConsistentHash) -> Assignment:
        """The same table over another ring: instances came or went. Entries of an instance that is gone
        are dropped.
        """
        kept = np.isin(self._to, ring.members)
        return Assignment(ring, self._words[kept], self._to[kept])

    def moved(self, words: Words, to: Instances) -> Assignment:
        """This assignment but for some keys, ascending, each once, which go to members of the ring.

        Cost: O(log) of the table and the ring for a key, and a copy of the table.
        """
        at = np.searchsorted(self._words, words)
        listed = np.zeros(len(words), dtype=np.bool_)
        inside = at < len(self._words)
        listed[inside] = self._words[at[inside]] == words[inside]
        stays = np.ones(len(self._words), dtype=np.bool_)
        stays[at[listed]] = False
        kept, kept_to = self._words[stays], self._to[stays]
        needed = self.ring.route_words(words) != to
        places = np.searchsorted(kept, words[needed])
        found = object.__new__(Assignment)  # what __init__ checks is known
        found.ring = self.ring
        # where each kept entry, and each new one, stands among all
        new = places + np.arange(len(places))
        old = np.ones(len(kept) + len(new), dtype=np.bool_)
        old[new] = False
        found._words, found._to = np.empty(len(old), np.uint64), np.empty(len(old), np.int32)
        found._words[old], found._words[new] = kept, words[needed]
        found._to[old], found._to[new] = kept_to, to[needed]
        return found

    def _positions(self, members: Instances) -> Instances:
        return np.searchsorted(np.array(sorted(self.ring.members)), members).astype(np.int32)

    def to_bytes(self) -> bytes:
        """Ring and table as bytes (`ordstream.balance.serial_form`)."""
        values = {"members": self.ring.members, "points": self.ring.points, "seed": self.ring.seed}
        return packed("Assignment", values, {"words": self._words, "destinations": self._to})

    @classmethod
    def from_bytes(cls, data: bytes) -> Assignment:
        """The assignment that `to_bytes` was called on. SketchBytesError for other bytes."""
        values, arrays = unpacked("Assignment", data)
        try:
            ring = ConsistentHash(values["members"], values["points"], values["seed"])
            return cls(ring, arrays["words"], arrays["destinations"])
        except (KeyError, ValueError, TypeError, OverflowError, PlanError) as error:
            raise SketchBytesError(f"the bytes of this Assignment cannot be read: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (Assignment.from_bytes, (self.to_bytes(),))
