"""Least-Load Fit Decreasing with Adjust (Algorithm 1), over keys and, in the compact form, over groups of
equal keys.

Candidates are taken in descending order of cost, so an eviction puts back only keys that come later: a key
is placed at most once, and is evicted only before that. So the phase ends after at most K placements, and a
placed key is never moved again.

What the text leaves open: E is the prefix, by the criterion ψ, of the keys on d that cost less than k, as
short as makes k fit; instances are tried by (load, number); equal costs by their position. Where no instance
accepts, k goes to the least loaded one and nothing is evicted ("forced"). A key that alone exceeds L_max
("oversized") fits nowhere: it goes to the least loaded instance without another such key, and all others
leave that instance, which makes the largest load as small as it can be there.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import key_route
from ordstream.balance.mixed.statistics import Floats, Statistics, summed_by

Positions = npt.NDArray[np.int64]

#: Destination of a row in the candidate set C.
CANDIDATE = -1

#: A group of more equal keys than this per instance is placed by levels, not key by key.
LEVELS_FROM = 4


class Rows:
    """A placement in the making: `number` keys of element `item` at `destination`. One writer.

    Where an element is one key, row i is element i. Only groups of the compact form are split over several
    rows.
    """

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.item: Positions = np.arange(len(statistics), dtype=np.int64)
        self.destination = statistics.placed.copy()
        self.number = statistics.counts.copy()

    def copy(self) -> Rows:
        """An independent placement that begins as this one."""
        made = Rows.__new__(Rows)
        made.statistics, made.item = self.statistics, self.item
        made.destination, made.number = self.destination.copy(), self.number.copy()
        return made

    @property
    def cost(self) -> Floats:
        """Cost of one key of each row."""
        return self.statistics.cost if self.statistics.number is None else self.statistics.cost[self.item]

    def loads(self) -> Floats:
        """L of each instance; candidates count nowhere."""
        placed = self.destination >= 0
        own = summed_by(
            self.destination[placed], (self.cost * self.number)[placed], self.statistics.instances
        )
        return self.statistics.on_top(own)

    def move(self, rows: Positions, numbers: npt.NDArray[np.int64], destination: npt.ArrayLike) -> None:
        """Send `numbers` keys of each of these rows to a destination (one, or one each); what is left of
        a row stays where it was.
        """
        to = np.broadcast_to(np.asarray(destination, dtype=np.int32), rows.shape)
        whole = numbers == self.number[rows]
        self.destination[rows[whole]] = to[whole]
        if not whole.all():
            rows, numbers, to = rows[~whole], numbers[~whole], to[~whole]
            np.subtract.at(self.number, rows, numbers)
            self.item = np.concatenate([self.item, self.item[rows]])
            self.destination = np.concatenate([self.destination, to])
            self.number = np.concatenate([self.number, numbers])


@dataclass
class Assigned:
    """What Phase III counted.

    Attributes
    ----------
    placements : int
        Keys, or groups, taken out of C; evictions: keys that Adjust put back into it.
    tried : int
        Calls of Adjust that needed an exchangeable set, one per instance tried.
    limiting : int or None
        Element of the dearest key whose placement was forced; None: every placement was accepted.
    """

    placements: int = 0
    evictions: int = 0
    tried: int = 0
    limiting: int | None = None


@dataclass
class _Residents:
    """Keys on one instance that may be evicted, by ψ: rows, their cost, and how many of each are left."""

    rows: Positions
    cost: Floats
    left: npt.NDArray[np.int64]
    #: Distinct ascending costs, and the sum of all that cost less than each: an upper bound of what can be
    #: evicted.
    ascending: list[float] = field(default_factory=list)
    below: list[float] = field(default_factory=list)

    def bound(self, cost: float) -> float:
        """At most this much load can be evicted for a key of this cost."""
        return self.below[bisect.bisect_left(self.ascending, cost)]

    def eligible(self, cost: float) -> Positions:
        """Keys under conditions (i) and (ii), by ψ; those without cost make no room."""
        return np.flatnonzero((self.cost < cost) & (self.cost > 0) & (self.left > 0))


class _Assigning:
    def __init__(self, rows: Rows, psi: Floats, theta_max: float) -> None:
        self.rows, self.psi = rows, psi
        self.statistics = rows.statistics
        self.limit = self.statistics.limit(theta_max)
        self.loads: list[float] = rows.loads().tolist()
        self.heap = [(load, d) for d, load in enumerate(self.loads)]
        heapq.heapify(self.heap)
        self.counted = Assigned()
        self.moves: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.pending: list[tuple[float, int, int, int]] = []  # evicted: (-cost, element, row, number)
        self.residents: dict[int, _Residents] = {}
        # Loads of C do not count among residents, whatever is placed later: a placed key is never evicted.
        self.oversized: set[int] = set(_oversized_on(rows, self.limit).tolist())

    def on(self, d: int) -> _Residents:
        if d not in self.residents:
            # Placements are carried out at the end, so that these are the keys of d before the phase.
            rows = np.flatnonzero(self.rows.destination == d)
            item = self.rows.item[rows]
            order = np.lexsort((item, -self.psi[item]))
            rows, item = rows[order], item[order]
            cost, left = self.statistics.cost[item], self.rows.number[rows].copy()
            ascending = np.argsort(cost, kind="stable")
            sums = np.concatenate([[0.0], np.cumsum((cost * left)[ascending])])
            self.residents[d] = _Residents(rows, cost, left, cost[ascending].tolist(), sums.tolist())
        return self.residents[d]

    def run(self) -> None:
        candidates = np.flatnonzero(self.rows.destination == CANDIDATE)
        item = self.rows.item[candidates]
        cost = self.statistics.cost[item]
        order = np.lexsort((item, -cost))
        columns = (-cost[order], item[order], candidates[order], self.rows.number[candidates[order]])
        given = zip(*(column.tolist() for column in columns), strict=True)
        # Evicted keys come back among the candidates in descending order of cost.
        following = next(given, None)
        while following is not None or self.pending:
            if self.pending and (following is None or self.pending[0] < following):
                taken = heapq.heappop(self.pending)
            else:
                assert following is not None
                taken, following = following, next(given, None)
            self.place(-taken[0], taken[1], taken[2], taken[3])
        rows, numbers, destinations = (np.array(part, dtype=np.int64) for part in self.moves)
        if len(rows):
            _send(self.rows, rows, numbers, destinations)

    def place(self, cost: float, item: int, row: int, number: int) -> None:
        """Place `number` keys of one cost, one after the other; several at once only where that gives
        the same.
        """
        self.counted.placements += 1
        if number > LEVELS_FROM * self.statistics.instances and 0 < cost <= self.limit:
            number -= self.fill(cost, row, number)
        while number:
            load, d = self.heap[0]
            if load != self.loads[d]:  # an old entry: evictions made the instance lighter
                heapq.heappop(self.heap)
                continue
            if load + cost <= self.limit:
                self.put(d, cost, row, 1)
            elif cost > self.limit:
                self.put_oversized(cost, item, row)
            else:
                self.put_adjusted(cost, item, row)
            number -= 1

    def put(self, d: int, cost: float, row: int, number: int) -> None:
        self.loads[d] += cost * number
        if self.heap[0][1] == d:
            heapq.heapreplace(self.heap, (self.loads[d], d))
        else:
            heapq.heappush(self.heap, (self.loads[d], d))
        for part, value in zip(self.moves, (row, number, d), strict=True):
            part.append(value)

    def fill(self, cost: float, row: int, number: int) -> int:
        """Place as many of the keys as stay below one level on all instances: what least-loaded-first
        does with equal keys.
        """
        loads = np.array(self.loads)
        room = np.maximum(np.floor((self.limit - loads) / cost), 0.0)

        def below(level: float) -> Floats:
            return np.clip(np.ceil((level - loads) / cost), 0.0, room)

        low, high = float(loads.min()), self.limit
        if below(high).sum() > number:
            for _ in range(60):
                middle = (low + high) / 2
                if below(middle).sum() > number:
                    high = middle
                else:
                    low = middle
        else:
            low = high
        counts = below(low).astype(np.int64)
        for d in np.flatnonzero(counts).tolist():
            self.put(d, cost, row, int(counts[d]))
        self.heap = [(load, d) for d, load in enumerate(self.loads)]
        heapq.heapify(self.heap)
        return int(counts.sum())

    def put_adjusted(self, cost: float, item: int, row: int) -> None:
        """Adjust on each instance in ascending order of load; none: forced."""
        instances = sorted(range(len(self.loads)), key=lambda d: (self.loads[d], d))
        for d in instances:
            needed = self.loads[d] + cost - self.limit
            self.counted.tried += 1
            if self.evicted(d, cost, needed):
                self.put(d, cost, row, 1)
                return
        self.forced(item)
        self.put(instances[0], cost, row, 1)

    def put_oversized(self, cost: float, item: int, row: int) -> None:
        self.forced(item)
        instances = sorted(range(len(self.loads)), key=lambda d: (self.loads[d], d))
        free = [d for d in instances if d not in self.oversized]
        if free:
            self.oversized.add(free[0])
            self.evict_all(free[0], cost)
        self.put((free or instances)[0], cost, row, 1)

    def forced(self, item: int) -> None:
        known = self.counted.limiting
        if known is None or self.statistics.cost[item] > self.statistics.cost[known]:
            self.counted.limiting = item

    def evicted(self, d: int, cost: float, needed: float) -> bool:
        """Conditions (i) to (iii): move the exchangeable set E of d into C, if there is one."""
        there = self.on(d)
        if there.bound(cost) < needed:
            return False
        eligible = there.eligible(cost)
        sums = np.cumsum(there.cost[eligible] * there.left[eligible])
        if not len(sums) or sums[-1] < needed:
            return False
        last = int(np.searchsorted(sums, needed))
        self.take(d, there, eligible[:last], there.left[eligible[:last]])
        rest = needed - (float(sums[last - 1]) if last else 0.0)
        one = eligible[last : last + 1]
        keys = min(int(there.left[one[0]]), max(1, int(np.ceil(rest / there.cost[one[0]]))))
        self.take(d, there, one, np.array([keys]))
        return True

    def evict_all(self, d: int, cost: float) -> None:
        there = self.on(d)
        eligible = there.eligible(cost)
        self.take(d, there, eligible, there.left[eligible])

    def take(self, d: int, there: _Residents, positions: Positions, numbers: npt.NDArray[np.int64]) -> None:
        for position, number in zip(positions.tolist(), numbers.tolist(), strict=True):
            row, cost = int(there.rows[position]), float(there.cost[position])
            there.left[position] -= number
            self.loads[d] -= cost * number
            self.counted.evictions += number
            heapq.heappush(self.pending, (-cost, int(self.rows.item[row]), row, number))


def llfd(rows: Rows, psi: Floats, theta_max: float) -> Assigned:
    """Phase III: place every candidate (destination `CANDIDATE`) of `rows`, in place.

    Parameters
    ----------
    rows : Rows
    psi : float array (elements)
        The criterion: larger is evicted first; equals by their position.
    theta_max : float

    Returns
    -------
    Assigned

    Cost: O(c log N_D) for c candidates where all fit as they come (in the core); else per eviction one pass
    over an instance's keys.
    """
    found = _all_fit(rows, theta_max)
    if found is None:
        assigning = _Assigning(rows, psi, theta_max)
        assigning.run()
        found = assigning.counted
    return found


def _all_fit(rows: Rows, theta_max: float) -> Assigned | None:
    """Where no candidate ever needs Adjust, LLFD is greedy scheduling from the loads there are: done in
    the core. None: it does.
    """
    if rows.statistics.number is not None:
        return None
    candidates = np.flatnonzero(rows.destination == CANDIDATE)
    loads = rows.loads()
    n = len(loads)
    if not len(candidates):
        return Assigned()
    if loads.min() <= 0:
        # the core begins with empty instances; each one's load goes first and finds its own only if it is
        # not 0
        return None
    cost = rows.statistics.cost[candidates]
    order = np.argsort(-cost, kind="stable")
    placed, sums = key_route.least_loaded(np.concatenate([loads, cost[order]]), n)
    received = np.unique(placed[n:])
    if (sums[received] > rows.statistics.limit(theta_max)).any():
        return None
    rows.destination[candidates[order]] = placed[n:]
    return Assigned(placements=len(candidates))


def _oversized_on(rows: Rows, limit: float) -> npt.NDArray[np.int32]:
    return rows.destination[(rows.cost > limit) & (rows.destination >= 0)]


def _send(
    rows: Rows, moved: Positions, numbers: npt.NDArray[np.int64], destinations: npt.NDArray[np.int64]
) -> None:
    """Carry out placements in order. A key that Adjust evicted and placed appears once: where it was
    placed.
    """
    if rows.statistics.number is None:
        rows.destination[moved] = destinations
        return
    # Of a row, several parts may go to several destinations; its last part takes the row itself when nothing
    # is left.
    order = np.lexsort((destinations, moved))
    moved, numbers, destinations = moved[order], numbers[order], destinations[order]
    pairs = moved * rows.statistics.instances + destinations
    starts = np.flatnonzero(np.concatenate([[True], np.diff(pairs) != 0]))
    moved, destinations = moved[starts], destinations[starts]
    numbers = np.add.reduceat(numbers, starts)
    rows.number[: len(rows.number)] = rows.number - np.bincount(
        moved, weights=numbers, minlength=len(rows.number)
    ).astype(np.int64)
    rows.item = np.concatenate([rows.item, rows.item[moved]])
    rows.destination = np.concatenate([rows.destination, destinations.astype(np.int32)])
    rows.number = np.concatenate([rows.number, numbers])
    left = rows.number > 0
    rows.item, rows.destination, rows.number = rows.item[left], rows.destination[left], rows.number[left]
