"""A controller that moves keys at every report, to random nodes: nothing is balanced, all is moved."""

from __future__ import annotations

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
