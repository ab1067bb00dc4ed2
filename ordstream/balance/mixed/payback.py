"""Whether a move pays: what the imbalance that it ends has cost so far, against what the move is expected to
cost.

To balance at once is to pay a move for an imbalance that may be over before. So a plan is looked at over the
intervals since the last move: how much sooner they would have been done had it been in force. Where that
has come to what the move costs, keys move; until then the plan is put off. This is rent or buy (ski rental;
Karlin, Manasse, Rudolph and Sleator, 1988): whatever comes, imbalance and move together cost at most twice
what they would to somebody who knows it all beforehand, as far as the estimates are right. Of a plan its
best parts are weighed as well: the first 1, 2, 4, ... keys, those that take off most load for their cost
first.

An interval takes as long as its fullest node, or as all work takes on the processors there are, if that is
more: with more nodes than processors an even split may win nothing. Where nodes are tasks that get the
processors in turn, it takes as long as these do one behind the other. What of it is the same under every
table (a job's start, say) is told as the interval's whole time: a gain that is next to nothing of that is
none.

What a move costs is learnt from the moves made: seconds for each, for each key and for each byte. A model of
three numbers is drawn towards first guesses (`FIRST`), so that few moves are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.keys import Words
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats, summed_by
from ordstream.balance.mixed.table import Assignment
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked

#: Seconds that a move takes, each key of it, and each byte of state, before any was made.
FIRST = (0.02, 5e-5, 2e-8)
#: Moves that are remembered, and how many of them the first guess weighs as much as.
MOVES, FIRST_WEIGHS = 16, 0.5
#: No cost is learnt to be less than this part of the first guess.
LEAST = 0.05
#: Intervals that are kept apart; older ones are added up.
INTERVALS = 8
#: Intervals from which it is known what one takes beside its nodes' work.
USUAL = 3
#: A gain below this part of the intervals' whole time is none.
NOTHING = 0.01


class MoveCosts:
    """What a move of so many keys and bytes costs. One writer.

    Attributes
    ----------
    moves : list of (int, float, float)
        Keys, bytes and seconds of the last moves.
    """

    def __init__(self) -> None:
        self.moves: list[tuple[int, float, float]] = []
        self._each = np.array(FIRST)

    @property
    def each(self) -> tuple[float, float, float]:
        """Seconds of a move, of a key, of a byte."""
        fixed, key, byte = self._each.tolist()
        return fixed, key, byte

    def of(self, keys: npt.ArrayLike, size: npt.ArrayLike) -> Floats:
        """Seconds of moves of so many keys and bytes."""
        fixed, key, byte = self.each
        return np.asarray(fixed + key * np.asarray(keys) + byte * np.asarray(size), dtype=np.float64)

    def learn(self, keys: int, size: float, seconds: float) -> None:
        """A move was made."""
        self.moves = [*self.moves, (keys, size, max(0.0, seconds))][-MOVES:]
        first = np.array(FIRST)
        parts = np.array([[1, count, held] for count, held, _ in self.moves]) * first
        took = np.array([took for *_, took in self.moves])
        # all together so many times what was guessed, and each of the three about as many
        times = FIRST_WEIGHS + float((took / parts.sum(axis=1)).sum())
        first *= max(LEAST, times / (FIRST_WEIGHS + len(took)))
        parts = np.array([[1, count, held] for count, held, _ in self.moves]) * first
        # in parts of what is expected: a large move says no more than a small one. Not of what it took:
        # a move that took long would count less, and it is the mean that counts
        scale = parts.sum(axis=1)
        parts, took = parts / scale[:, None], took / scale
        # least squares with no factor below `LEAST`, coordinate by coordinate
        factors = np.ones(3)
        for _ in range(100):
            for at in range(3):
                left = took - parts @ factors + parts[:, at] * factors[at]
                best = (parts[:, at] @ left + FIRST_WEIGHS) / (parts[:, at] @ parts[:, at] + FIRST_WEIGHS)
                factors[at] = max(LEAST, float(best))
        self._each = np.maximum(first * factors, LEAST * np.array(FIRST))


@dataclass(eq=False)
class Interval:
    """What the nodes did between two reports.

    Attributes
    ----------
    keys : uint64 array
        Ascending; those that are known by name.
    cost : float array
        Seconds of each.
    rest : float array
        Seconds of each node's other work, in the order of their numbers.
    beside : float
        Seconds of work on the same processors that no node did.
    whole : float
        Seconds from report to report where the nodes may have been idle; 0: not known.
    """

    keys: Words
    cost: Floats
    rest: Floats
    beside: float = 0.0
    whole: float = 0.0

    def with_(self, other: Interval) -> Interval:
        """Both as one."""
        keys, at = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        cost = summed_by(at, np.concatenate([self.cost, other.cost]), len(keys))
        beside, whole = self.beside + other.beside, self.whole + other.whole
        return Interval(keys, cost, self.rest + other.rest, beside, whole)

    def bounded(self, most: int, places: Callable[[Words], npt.NDArray[Any]]) -> Interval:
        """With the names of at most so many keys, those that cost most; what others cost is other work of
        their nodes. `places`: of keys, where in `rest` their nodes are.
        """
        if len(self.keys) <= most:
            return self
        kept = np.zeros(len(self.keys), dtype=np.bool_)
        kept[np.argsort(-self.cost, kind="stable")[:most]] = True
        more = summed_by(places(self.keys)[~kept], self.cost[~kept], len(self.rest))
        return replace(self, keys=self.keys[kept], cost=self.cost[kept], rest=self.rest + more)


@dataclass(frozen=True)
class Weighed:
    """A plan, or a part of it, against its cost.

    Attributes
    ----------
    keys : int
        The first so many of the keys that were given.
    gain : float
        Seconds by which the intervals would have been done sooner: those from whichever on this is most.
    cost : float
        Seconds that the move is expected to cost.
    """

    keys: int
    gain: float
    cost: float


class Payback:
    """See the module. One writer.

    Parameters
    ----------
    times : float
        > 0; a plan is carried out once its gain has come to so many times its cost (`Mixed.payback`).
    processors : int, optional
        That the nodes share. None: each has its own.
    in_turn : bool
        Nodes get a processor in the order of their numbers, each until it is done, as Spark's tasks do; else
        all of them work at the same time.

    Attributes
    ----------
    costs : MoveCosts
    past : list of Interval
        Since the last move.
    plans, put_off : int
        Plans that were weighed, and those that were not carried out.
    gain, cost : float
        Seconds, of all plans carried out.
    """

    def __init__(self, times: float = 1.0, processors: int | None = None, in_turn: bool = False) -> None:
        self.times, self.processors, self.in_turn = times, processors, in_turn
        self.costs = MoveCosts()
        self.past: list[Interval] = []
        self.plans = self.put_off = 0
        self.gain = self.cost = 0.0
        self._around: deque[tuple[Mapping[int, float], float, float]] = deque()  # of intervals to come

    def around(self, nodes: Mapping[int, float], beside: float = 0.0, whole: float = 0.0) -> None:
        """Of the next interval of which nothing was told yet: what its nodes did for other operators, in
        seconds, and as of `Interval`. Its reports may be taken in later.
        """
        self._around.append((dict(nodes), beside, whole))

    def add(self, reports: Sequence[Report], table: Assignment, most: int | None) -> None:
        """The reports of an interval, of different nodes, and the table in force since the last move; of an
        interval the names of `most` keys are kept, and of all older ones together as well.
        """
        met = [one.keys for one in reports]
        none: Words = np.zeros(0, dtype=np.uint64)
        keys, at = np.unique(np.concatenate([none, *met]), return_inverse=True)
        seconds = np.concatenate([np.zeros(0), *(one.seconds / one.sampled for one in reports)])
        cost = summed_by(at, seconds, len(keys))
        others, beside, whole = self._around.popleft() if self._around else ({}, 0.0, 0.0)
        rest = {one.node: one.rest[1] / one.sampled for one in reports}
        members = np.array(sorted(table.ring.members))
        loads = [rest.get(one, 0.0) + others.get(one, 0.0) for one in members.tolist()]
        made = Interval(keys, cost, np.array(loads), beside, whole)

        def places(words: Words) -> npt.NDArray[Any]:
            return np.searchsorted(members, table.route_words(words))

        if most is not None:
            made = made.bounded(most, places)
        self.past.append(made)
        if len(self.past) > INTERVALS:
            older = self.past[0].with_(self.past[1])
            self.past[:2] = [older if most is None else older.bounded(most, places)]

    def usual(self, table: Assignment) -> float | None:
        """Seconds that an interval takes beside its nodes' work, the median of those since the last
        move; None: of too few. `table`: in force since.
        """
        known = self.past[1:] if len(self.past) == INTERVALS else self.past  # the first may be several
        if len(known) < USUAL:
            return None
        members = np.array(sorted(table.ring.members))
        found = [
            one.whole
            - self._seconds(one, np.searchsorted(members, table.route_words(one.keys)), len(members))
            for one in known
        ]
        return float(np.median(found))

    def figures(self) -> dict[str, Any]:
        """For a report."""
        fixed, key, byte = self.costs.each
        return {
            "plans": self.plans,
            "put_off": self.put_off,
            "gain_seconds": self.gain,
            "cost_seconds": self.cost,
            "lost_seconds": sum(lost for *_, lost in self.costs.moves),
            "seconds_a_move": fixed,
            "seconds_a_key": key,
            "seconds_a_byte": byte,
        }

    def restart(self) -> None:
        """A move was made, or given up."""
        self.past = []

    def weigh(
        self, before: Assignment, keys: Words, to: npt.NDArray[np.int32], size: Floats
    ) -> list[Weighed]:
        """The first 1, 2, 4, ... of the keys that a plan moves, and all.

        Parameters
        ----------
        before : Assignment
            In force.
        keys : uint64 array
            In the order in which they are to be taken.
        to : int32 array
        size : float array
            Bytes of state of each.
        """
        counts = [1 << power for power in range(max(0, len(keys) - 1).bit_length())] + [len(keys)]
        costs = self.costs.of(counts, np.cumsum(size)[np.array(counts) - 1])
        gains, whole = np.zeros(len(counts)), 0.0
        best, part = np.zeros(len(counts)), np.zeros(len(counts))
        for one in reversed(self.past):
            gains += self._gains(one, before, keys, to, counts)
            whole += one.whole
            better = gains > best
            best[better] = gains[better]
            part[better] = gains[better] / whole if whole else 1.0
        best[part < NOTHING] = 0.0
        return [Weighed(*one) for one in zip(counts, best.tolist(), costs.tolist(), strict=True)]

    def _gains(
        self, one: Interval, before: Assignment, keys: Words, to: npt.NDArray[np.int32], counts: list[int]
    ) -> Floats:
        """By how much sooner an interval were done with so many of the keys moved."""
        members = np.array(sorted(before.ring.members))
        now = np.searchsorted(members, before.route_words(one.keys))
        order = np.argsort(keys, kind="stable")
        at = np.minimum(np.searchsorted(keys, one.keys, sorter=order), len(keys) - 1)
        rank = np.where(keys[order[at]] == one.keys, order[at], len(keys))
        then = now.copy()
        moves = rank < len(keys)
        then[moves] = np.searchsorted(members, to[rank[moves]])
        first = self._seconds(one, now, len(members))
        return np.array(
            [first - self._seconds(one, np.where(rank < count, then, now), len(members)) for count in counts]
        )

    def _seconds(self, one: Interval, at: npt.NDArray[Any], nodes: int) -> float:
        """How long the interval takes with its keys at these nodes."""
        return self.seconds(summed_by(at, one.cost, nodes) + one.rest, one.beside)

    def seconds(self, loads: Floats, beside: float = 0.0) -> float:
        """How long nodes take together, in the order of their numbers, with so many seconds of work each."""
        fullest = float(loads.max(initial=0.0))
        if self.processors is None or (self.in_turn and len(loads) <= self.processors):
            return fullest
        if self.in_turn:
            free = [0.0] * self.processors
            for load in loads.tolist():
                heapreplace(free, free[0] + load)
            return max(free)
        return max(fullest, (float(loads.sum()) + beside) / min(self.processors, len(loads) + 1))

    # ------------------------------------------------------------------------------------------- as bytes

    def to_bytes(self) -> bytes:
        """What was learnt and seen, not the parameters."""
        values: dict[str, Any] = {
            "moves": self.costs.moves,
            "counts": [self.plans, self.put_off, self.gain, self.cost],
            "past": [[one.beside, one.whole] for one in self.past],
        }
        arrays: dict[str, npt.NDArray[Any]] = {}
        for number, one in enumerate(self.past):
            arrays |= {f"{name}{number}": getattr(one, name) for name in ("keys", "cost", "rest")}
        return packed("Payback", values, arrays)

    def read(self, data: bytes) -> None:
        """Go on from what `to_bytes` gave. SketchBytesError for other bytes."""
        values, arrays = unpacked("Payback", data)
        try:
            self.plans, self.put_off, self.gain, self.cost = values["counts"]
            self.costs = MoveCosts()
            for keys, size, seconds in values["moves"]:
                self.costs.learn(keys, size, seconds)
            self.past = [
                Interval(
                    arrays[f"keys{number}"], arrays[f"cost{number}"], arrays[f"rest{number}"], beside, whole
                )
                for number, (beside, whole) in enumerate(values["past"])
            ]
        except (KeyError, ValueError, TypeError) as error:
            raise SketchBytesError(f"the bytes of this Payback cannot be read: {error}") from error
