"""Keys that change their node between two epochs: who reads what of the state that the first one left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments.key_costs import row_bytes
from ordstream.spark.streaming.key_costs import NO_GROUP
from ordstream.spark.streaming.stored_state import Share


@dataclass(frozen=True, eq=False)
class Moves:
    """Keys that change their node where only the routing table changed, by word.

    Attributes
    ----------
    words : uint64 array
        Ascending.
    source, destination : int32 arrays
    groups : int32 array
        Key group of the key's state, or `NO_GROUP`.
    """

    words: Words
    source: Instances
    destination: Instances
    groups: npt.NDArray[np.int32]

    @classmethod
    def between(cls, before: Any, after: Any, groups: Mapping[int, int]) -> Moves | None:
        """From one map to another; None: more than the table may have changed."""
        if not isinstance(before, Assignment) or not isinstance(after, Assignment):
            return None
        if not same_ring(before, after):
            return None
        words = np.union1d(before.table[0], after.table[0])
        source, destination = before.route_words(words), after.route_words(words)
        moved = source != destination
        words = words[moved]
        known = [groups.get(word, NO_GROUP) for word in words.tolist()]
        return cls(words, source[moved], destination[moved], np.array(known, dtype=np.int32))

    def sources(self, node: int) -> set[int]:
        """Nodes that this one gets keys from."""
        return set(self.source[self.destination == node].tolist())

    def concern(self, node: int) -> bool:
        """The node gets keys, or gives some away."""
        return bool(((self.source == node) | (self.destination == node)).any())


def same_ring(one: Assignment, other: Assignment) -> bool:
    """Only the routing tables may differ."""
    a, b = one.ring, other.ring
    return (set(a.members), a.points, a.seed) == (set(b.members), b.points, b.seed)


@dataclass(frozen=True)
class MovedShare(Share):
    """A node's rows where only the routing table changed: its own but for keys that leave, and those of keys
    that come. Of others' files only the key groups of these are read, where they are known.

    Attributes
    ----------
    moves : Moves
    """

    moves: Any = None

    def of(self, batch: pa.RecordBatch, file_node: int) -> pa.RecordBatch:
        moves, words = self.moves, self.words(batch)
        here = moves.source == file_node
        if file_node == self.node:
            mine = ~np.isin(words, moves.words[here])
        else:
            mine = np.isin(words, moves.words[here & (moves.destination == self.node)])
        return self.taken(batch, words, mine, file_node)

    def groups(self, file_node: int, keys: int) -> set[int] | None:
        if file_node == self.node or not self.whole_key(keys):
            return None
        moves = self.moves
        found = moves.groups[(moves.source == file_node) & (moves.destination == self.node)]
        return None if (found == NO_GROUP).any() else set(found.tolist())


@dataclass
class Moved:
    """What a node took over from other nodes' files, counted.

    Attributes
    ----------
    before, after : grouping or None
        The maps in force; None: the hash.
    """

    before: Any
    after: Any
    keys: dict[str, set[int]] = field(default_factory=lambda: {"plan": set(), "ring": set()})
    rows: dict[str, int] = field(default_factory=lambda: {"plan": 0, "ring": 0})
    bytes: dict[str, float] = field(default_factory=lambda: {"plan": 0.0, "ring": 0.0})

    def count(self, batch: pa.RecordBatch, words: Words) -> None:
        """Rows that came."""
        by_ring = np.ones(len(words), dtype=bool)
        if isinstance(self.before, Assignment) and isinstance(self.after, Assignment):
            between = self.before.on(self.after.ring)
            by_ring = np.not_equal(self.before.route_words(words), between.route_words(words))
        sizes = row_bytes(batch)
        for why, mine in (("ring", by_ring), ("plan", ~by_ring)):
            self.keys[why].update(words[mine].tolist())
            self.rows[why] += int(mine.sum())
            self.bytes[why] += float(sizes[mine].sum())

    def said(self) -> dict[str, dict[str, int]]:
        """For the driver: by the plan and by the ring, keys, rows and bytes."""
        return {
            why: {"keys": len(self.keys[why]), "rows": self.rows[why], "bytes": round(self.bytes[why])}
            for why in self.keys
        }
