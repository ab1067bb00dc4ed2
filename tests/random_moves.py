"""A controller that moves keys at every report, to random nodes: nothing is balanced, all is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ordstream as od
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.table import Assignment


class RandomMoves(Controller):
    """See the module.

    Parameters
    ----------
    seed, nodes : int
    """

    def __init__(self, seed: int, nodes: int) -> None:
        super().__init__(od.Mixed(), nodes)
        self._random = np.random.default_rng(seed)

    def decide(self) -> Move | None:
        self._collect()
        keys = self.evidence.keys
        if self.pending is not None or not len(keys):
            return None
        to = self._random.integers(0, self.assignment.instances, len(keys)).astype(np.int32)
        return self._propose(Assignment(self.assignment.ring, keys, to), self.assignment)


class GivenMoves(Controller):
    """A controller that moves given keys (integers) at its reports, one after the other.

    Parameters
    ----------
    nodes : int
    moves : sequence of (keys, nodes)
    policy : Mixed
    """

    def __init__(self, nodes: int, moves: Sequence[tuple[Any, Any]], policy: od.Mixed | None = None) -> None:
        super().__init__(policy or od.Mixed(), nodes)
        self._moves = list(moves)

    def decide(self) -> Move | None:
        self._collect()
        if self.pending is not None or not self._moves:
            return None
        keys, to = self._moves.pop(0)
        words = np.asarray(keys, dtype=np.int64).view(np.uint64)
        held, at = self.assignment.table
        kept = ~np.isin(held, words)
        table = np.concatenate([held[kept], words]), np.concatenate([at[kept], np.asarray(to, np.int32)])
        return self._propose(Assignment(self.assignment.ring, *table), self.assignment)
