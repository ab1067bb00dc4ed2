"""What the reports of all nodes add up to, by key: cost and state, how sure the loads are, and whether there
is enough to plan by.

Costs fade as in `ordstream.balance.memory`: by half for every so many new tuples and every so many
intervals, but never below what an estimate needs. So with many tuples an interval it is the last interval
that counts, as in the paper, and with few it is as many intervals as it takes. A key's state is what was
last reported.

What nodes do not name key by key is known by node (`rest`), and so is what `bound` forgets the names of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ordstream.balance.keys import Words
from ordstream.balance.memory import HalfLife
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats, summed_by
from ordstream.balance.serial_form import packed, unpacked

#: Standard deviations within which a load is known where a plan is made.
SURE = 2.0
#: θ below which more tuples are not asked for: whole keys seldom allow a better balance.
FINEST = 0.02
#: Old costs count half after so many times the tuples that an estimate needs, and after so many intervals.
TIMES, INTERVALS = 4.0, 8.0
#: Tuples that are none.
FADED = 0.01


def needed(theta: float, instances: int) -> int:
    """Tuples from which every instance's load is known within θ (`SURE` standard deviations): with tuples
    of like cost an instance's N / N_D tuples tell its load within sqrt(N_D / N).
    """
    return math.ceil(instances * (SURE / max(theta, FINEST)) ** 2)


class Evidence:
    """Statistics by key, over the reports so far. One writer.

    Parameters
    ----------
    least : int
        Tuples that a plan needs (`needed`).

    Attributes
    ----------
    keys : uint64 array (K), ascending
    tuples, cost : float arrays (K)
        Tuples looked at, and seconds of all tuples, faded.
    state : float array (K)
        Bytes as last reported.
    fresh : float
        Tuples since `restart`.
    rest : mapping of int to float array (3)
        Node -> tuples, cost and square of its keys that have no name here.
    """

    def __init__(self, least: int) -> None:
        self.least = least
        self.keys: Words = np.zeros(0, dtype=np.uint64)
        self.tuples, self.cost, self.state = (np.zeros(0) for _ in range(3))
        self.square: Floats = np.zeros(0)  # of the costs' variances: Σ (cost of a tuple)^2
        self.fresh = 0.0
        self.rest: dict[int, Floats] = {}

    @property
    def total(self) -> float:
        """Tuples that the costs stand for, old ones for less."""
        return float(self.tuples.sum()) + sum(float(one[0]) for one in self.rest.values())

    @property
    def enough(self) -> bool:
        """There are as many tuples as a plan needs, and as many were seen since the last restart."""
        return self.total >= self.least * (1 - 1e-9) and self.fresh >= self.least

    @property
    def noise(self) -> float:
        """Variance of a key's count over the count: 1, and less where older counts have faded."""
        known = (self.cost > 0) & (self.square > 0)
        if not known.any():
            return 1.0
        return float(np.median(self.tuples[known] * self.square[known] / self.cost[known] ** 2))

    def restart(self) -> None:
        """No plan before as many new tuples were seen as a plan needs."""
        self.fresh = 0.0

    def add(self, reports: list[Report]) -> None:
        """Take in the reports of one interval, of different nodes."""
        new = float(sum(int(one.tuples.sum()) + one.rest[0] for one in reports))
        if new:
            left = HalfLife(TIMES * self.least, INTERVALS).left(self.total, new, self.least)
            self.tuples, self.cost = self.tuples * left, self.cost * left
            self.square = self.square * left**2
            self.rest = {node: one * [left, left, left**2] for node, one in self.rest.items()}
            self.fresh += new
        met = [one.keys for one in reports]
        keys = np.unique(np.concatenate([self.keys, *met])) if met else self.keys
        old = np.searchsorted(keys, self.keys)
        columns = []
        for held in (self.tuples, self.cost, self.square, self.state):
            column = np.zeros(len(keys))
            column[old] = held
            columns.append(column)
        tuples, cost, square, state = columns
        if met:
            state[np.searchsorted(keys, np.unique(np.concatenate(met)))] = 0
        for one in reports:
            at = np.searchsorted(keys, one.keys)
            tuples[at] += one.tuples
            cost[at] += one.seconds / one.sampled
            # of equal tuples: n (s/n)^2, times the square of what each stands for
            each = np.divide(one.seconds**2, one.tuples, out=np.zeros(len(at)), where=one.tuples > 0)
            square[at] += each / one.sampled**2
            state[at] += one.state
            if one.rest[0]:
                count, seconds, _ = one.rest
                more = [count, seconds / one.sampled, seconds**2 / count / one.sampled**2]
                self.rest[one.node] = self.rest.get(one.node, np.zeros(3)) + more
        # what has faded is nothing: fractions without end would become too small to divide by
        gone = tuples < FADED
        tuples[gone] = cost[gone] = square[gone] = 0.0
        kept = ~gone | (state > 0)
        self.keys = keys[kept]
        self.tuples, self.cost, self.square, self.state = (
            one[kept] for one in (tuples, cost, square, state)
        )

    def bound(self, most: int, kept: Words, node_of: Callable[[Words], npt.NDArray[np.int32]]) -> None:
        """Keep the names of at most so many keys, those that cost most, and of those in `kept`; the others
        count for the node that they belong to.
        """
        if len(self.keys) <= most:
            return
        named = np.isin(self.keys, kept)
        named[np.lexsort((self.keys, -self.state, -self.cost))[:most]] = True
        nodes = node_of(self.keys[~named])
        columns = [one[~named] for one in (self.tuples, self.cost, self.square)]
        for node in np.unique(nodes).tolist():
            more = [float(one[nodes == node].sum()) for one in columns]
            self.rest[node] = self.rest.get(node, np.zeros(3)) + more
        self.keys = self.keys[named]
        self.tuples, self.cost, self.square, self.state = (
            one[named] for one in (self.tuples, self.cost, self.square, self.state)
        )

    def spread_rest(self, nodes: Sequence[int]) -> None:
        """Nodes came or went: keys without a name are spread by the ring, evenly."""
        total = sum(self.rest.values(), np.zeros(3))
        self.rest = {node: total / len(nodes) for node in nodes} if total.any() else {}

    def rest_by(self, nodes: Sequence[int], even: bool) -> tuple[Floats, Floats]:
        """Cost and square of the keys without a name at each of these nodes; `even`: spread over them."""
        held = Evidence(self.least)
        held.rest = dict(self.rest)
        if even:
            held.spread_rest(nodes)
        rows = np.array([held.rest.get(node, np.zeros(3)) for node in nodes])
        return rows[:, 1], rows[:, 2]

    def deviations(
        self, destination: npt.NDArray[np.int32], instances: int, rest: Floats | None = None
    ) -> Floats:
        """Standard deviation of each instance's load, from how many tuples it is known by. `rest`: square
        of the keys without a name, by instance.
        """
        return np.sqrt(summed_by(destination, self.square, instances) + (0.0 if rest is None else rest))

    def to_bytes(self) -> bytes:
        """All of it as bytes (`ordstream.balance.serial_form`)."""
        arrays = {name: getattr(self, name) for name in ("keys", "tuples", "cost", "square", "state")}
        rest = [[node, *self.rest[node]] for node in sorted(self.rest)]
        arrays["rest"] = np.array(rest, dtype=np.float64).reshape(len(rest), 4)
        return packed("Evidence", {"least": self.least, "fresh": self.fresh}, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Evidence:
        """What `to_bytes` was called on. SketchBytesError for other bytes."""
        values, arrays = unpacked("Evidence", data)
        made = cls(int(values["least"]))
        made.fresh = float(values["fresh"])
        made.rest = {int(row[0]): row[1:] for row in arrays.pop("rest")}
        for name, array in arrays.items():
            setattr(made, name, array)
        return made
