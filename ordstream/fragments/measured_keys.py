"""What the keys of one node process cost, as it is measured while rows pass (Mixed paper, section 2.1).

* Tuples: of one chunk in `SAMPLED` all are counted; up to the first report of every one, so that the first
  plan, which is to come soon, knows all there is.
* Time: of some turns the calls of the function are timed, each by itself, where the first operator has the
  only one and calls it once per row; else now and then one row runs alone (`MeasuredNode`). Both so seldom
  that they cost `BUDGET` of the node's time. Times are the CPU's, and are kept in matrices as POSG's, so
  those of rare keys mix.
* Bytes of state: at each report the rows of state of some keys are looked at, the dearest and others in
  turn; what was never looked at counts as the mean.

Nothing here grows with the keys that the node holds: it knows the names of as many as a report has.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from ordstream.balance.keys import NULL_WORD, Words, integers_of, key_words
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.key_costs import NAMED, KeyCounts, row_bytes, summed
from ordstream.fragments.merging import TagMerge
from ordstream.fragments.moving_route import MovingRoute
from ordstream.fragments.polled_node import PolledNode
from ordstream.fragments.time_marks import PlacedRows, TimeMark
from ordstream.ground.numbers import integers, mask
from ordstream.ground.slices import without_view
from ordstream.operators.operator import Operator
from ordstream.operators.row_clock import SomeCalls

#: One chunk in so many is looked at for its keys.
SAMPLED = 16
#: Part of the time that measuring may cost, and what a row costs beside its own time, in seconds: one that
#: runs alone, at least, and one whose function is timed.
BUDGET = 0.02
ALONE_S = 1e-4
CLOCK_S = 4e-6
LEAST_S = 1e-8
NO_WORDS: Words = np.zeros(0, dtype=np.uint64)
#: Keys whose state is looked at for a report.
STATES = 128
#: Keys whose columns are remembered, in reports' worth.
REMEMBERED = 4
#: Rows that wait to be looked at for new keys, about, and batches: each is there as a whole.
MET_ROWS, MET_BATCHES = 1 << 14, 64


class _Seldom(SomeCalls):
    """Times one call in `between` on average, at random: rows may come in turns."""

    def __init__(self, names: Sequence[str], key: Sequence[int], chance: random.Random) -> None:
        super().__init__(time.thread_time, names, key)
        self._chance = chance
        self.between = CLOCK_S / (BUDGET * ALONE_S)

    def untimed(self) -> int:
        return self._chance.randint(0, max(0, int(2 * self.between) - 2))


class MeasuredNode(PolledNode):
    """A node that times a row now and then.

    Attributes
    ----------
    timed : list of (list of pyarrow.Array or of list, list of float)
        Columns of the keys of rows that were, and their seconds; its owner takes them.
    """

    def __init__(
        self, fragment: Fragment, merge: TagMerge, options: Mapping[str, Any], *given: Any, seed: int = 0
    ) -> None:
        self.timed: list[tuple[list[Any], list[float]]] = []
        self._keys = fragment.key or ()
        self._chance = random.Random(seed)
        self._clock = _Seldom(fragment.source.names, self._keys, self._chance)
        one_thread = not options.get("workers")
        plain = one_thread and all(_comes_back(fragment.source.field(index).type) for index in self._keys)
        each = fragment.timing_rows(self._clock) if plain else None
        self._each = each is not None
        self._before = 1  # rows before the next one that runs alone
        self._work_s = ALONE_S  # of a row, about
        self._single: deque[pa.RecordBatch] = deque()  # the row that runs alone in this step
        super().__init__(each or fragment, merge, options, *given)
        self._polled.times_cpu = True

    def _most_rows(self, count: int) -> int:
        most = super()._most_rows(count)
        return most if self._each else min(most, self._before or 1)

    def _next_rows(self) -> Any:
        first = self._fitted[0]
        if self._before == 0 and isinstance(first, PlacedRows):
            # a row runs alone without the marks around it: what they make operators do is not its time
            self._fitted.popleft()
            self._fitted.extendleft(reversed(first.parted()))
        rows = super()._next_rows()
        if self._stream.workers or isinstance(rows, TimeMark):
            return rows
        if self._each:
            self._clock.between = CLOCK_S / (BUDGET * self._work_s)
            return rows
        count = rows.num_rows
        if count == 0:
            return rows
        if self._before == 0 and self._polled.worked_off:
            self._single.append(rows)
            each = int(max(ALONE_S, 2 * self._step_s) / (BUDGET * self._work_s))
            each += int(sum(one.call_s for one in self._calls) / (BUDGET * self._row_s))
            # not every s-th: rows may come in turns
            self._before = self._chance.randint(1, max(2, 2 * each))
        else:
            self._before = max(0, self._before - count)
        return rows

    def _goes_on(self) -> bool:
        # a row that is to run alone waits for the step behind, also where only a mark stands in front of it
        return self._ready() and (self._each or self._before > 0 or self._polled.worked_off)

    def _more(self) -> bool:
        return super()._more() and (self._each or (self._before > 0 and not self._single))

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        """As `PolledNode.poll`."""
        pace = self._row_s
        found = super().poll()
        if self._fed:  # by the core's own time: a step beside it takes longer than a few rows
            work_s = self._polled.cpu_s / self._fed
            self._work_s += (max(work_s, LEAST_S) - self._work_s) / 4
        if self._single:
            row = self._single.popleft()
            self.timed.append(([row.column(index) for index in self._keys], [self._polled.cpu_s]))
            self._row_s = pace  # it is that of rows that run together
        if self._clock.rows:
            self._take_timed()
        return found

    def _take_timed(self) -> None:
        columns = [list(values) for values in zip(*self._clock.rows, strict=True)]
        self.timed.append((columns, list(self._clock.seconds)))
        self._clock.clear()


def _comes_back(kind: pa.DataType) -> bool:
    """A key of this type is the same once it was a Python value."""
    return bool(pat.is_integer(kind) or pat.is_string(kind) or pat.is_binary(kind) or pat.is_boolean(kind))


class MeasuredKeys:
    """See the module.

    Parameters
    ----------
    route : MovingRoute
        Says what the key of a row is.
    node : int
    """

    def __init__(self, route: MovingRoute, node: int) -> None:
        self._route, self._node = route, node
        kinds = [route.schema.field(index).type for index in route.key]
        self._kinds = [without_view(one) for one in kinds]
        # an integer is its own word, and need not be remembered; but for one whose word is that of null
        self._kind = kinds[0] if len(kinds) == 1 and pat.is_integer(kinds[0]) else None
        self._counts = KeyCounts()
        self._times = [ExecutionTimes(), ExecutionTimes()]  # of the last interval, of this one
        self._batches = self._looked = self._all = 0
        self._reported = False
        self._known = NO_WORDS
        self._columns: pa.RecordBatch | None = None  # the keys' columns, in the order of `_known`
        self._met: list[tuple[Words, Sequence[pa.Array]]] = []  # rows whose keys may be new: looked at later
        self._met_rows = 0
        self._bytes: dict[int, float] = {}

    def saw(self, rows: pa.RecordBatch) -> None:
        """Rows that the node takes."""
        self._batches += 1
        self._all += rows.num_rows
        due = self._batches % SAMPLED == 1 or self._looked < self._all // (2 * SAMPLED)
        if due or not self._reported:
            self._looked += rows.num_rows
            words = self._route.words(rows)
            self._counts.add(words)
            self._remember(words, [rows.column(index) for index in self._route.key])

    def took(self, timed: list[tuple[list[Any], list[float]]]) -> None:
        """Rows that were timed (`MeasuredNode.timed`)."""
        for columns, seconds in timed:
            self._times[1].update_many(
                key_words(columns[0] if len(columns) == 1 else tuple(columns)), seconds
            )

    # ---------------------------------------------------------------------------------------- keys' columns

    def _remember(self, words: Words, columns: Sequence[pa.Array]) -> None:
        if self._kind is not None:
            unclear = words == np.uint64(NULL_WORD)
            if not unclear.any():
                return
            words, columns = words[unclear], [columns[0].filter(mask(unclear))]
        # each to its own type: rows that came, and states, may have others
        self._met.append((words, [one.cast(kind) for one, kind in zip(columns, self._kinds, strict=True)]))
        self._met_rows += len(words)
        if self._met_rows >= MET_ROWS or len(self._met) >= MET_BATCHES:
            self._fold()

    def _fold(self) -> None:
        """Look at the rows whose keys may be new."""
        if not self._met:
            return
        words = np.concatenate([one for one, _ in self._met])
        columns = [pa.chunked_array(parts) for parts in zip(*[held for _, held in self._met], strict=True)]
        self._met, self._met_rows = [], 0
        met, first = np.unique(words, return_index=True)
        new = ~np.isin(met, self._known)
        if not new.any():
            return
        taken = integers(first[new])
        arrays = [column.take(taken).combine_chunks() for column in columns]
        added = pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])
        known = np.concatenate([self._known, met[new]])
        both = [added] if self._columns is None else [self._columns, added]
        order = np.argsort(known, kind="stable")
        self._known = known[order]
        self._columns = pa.Table.from_batches(both).take(integers(order)).combine_chunks().to_batches()[0]

    def arrived(self, words: Words, columns: Sequence[pa.Array]) -> None:
        """Keys whose state came here, with their columns in the order of the route's key."""
        self._remember(words, columns)

    def columns_of(self, words: Words) -> pa.RecordBatch | None:
        """The columns of these keys, in any order; None where one of them is not known."""
        if self._kind is None:
            return self._remembered(words)
        unclear = words == np.uint64(NULL_WORD)
        clear = integers_of(words[~unclear], self._kind)
        found = None if clear is None else pa.RecordBatch.from_arrays([clear], names=["0"])
        if found is None or not unclear.any():
            return found
        rest = self._remembered(words[unclear])
        return None if rest is None else pa.concat_batches([found, rest])

    def _remembered(self, words: Words) -> pa.RecordBatch | None:
        self._fold()
        if self._columns is None or not np.isin(words, self._known).all():
            return None
        return self._columns.take(integers(np.searchsorted(self._known, words)))

    # ---------------------------------------------------------------------------------------- the report

    def report(
        self,
        interval: int,
        busy: float,
        kept: Words,
        rows_of: Callable[[pa.RecordBatch], list[tuple[Words, pa.RecordBatch]]] | None,
    ) -> tuple[Report, Floats]:
        """What the keys cost since the last call, and seconds of a tuple of each as measured (0: not known).

        Parameters
        ----------
        interval : int
        busy : float
            Seconds for which the node worked.
        kept : uint64 array
            Keys that are named in any case: those in the routing table.
        rows_of : callable, optional
            Columns of keys -> keys and rows of their state, by operator. None: it can't be looked at now.
        """
        self._counts.fold()
        words, tuples = self._counts.words, self._counts.counts
        share = self._looked / self._all if self._looked else 1.0
        seconds = tuples * (busy * share / max(1, self._looked))
        self._look_at_states(words, tuples, rows_of)
        report = Report(
            self._node, interval, words, tuples, seconds.astype(np.float64), self._sizes(words), share
        ).heaviest(NAMED, kept)
        both = ExecutionTimes()
        for one in self._times:
            both.merge(one)
        times = np.zeros(len(report.keys))
        if both.tuples:
            times = np.where(report.tuples > 0, both.estimate_many(report.keys), 0.0)
        self._times = [self._times[1], ExecutionTimes()]
        self._counts = KeyCounts()
        self._all = self._looked = 0
        self._reported = True
        self._forget(report.keys, kept)
        return report, times

    def _look_at_states(
        self,
        words: Words,
        tuples: npt.NDArray[np.int64],
        rows_of: Callable[[pa.RecordBatch], list[tuple[Words, pa.RecordBatch]]] | None,
    ) -> None:
        if rows_of is None or not len(words):
            return
        dearest = words[np.argsort(-tuples, kind="stable")[: STATES // 2]]
        others = words[~np.isin(words, np.array([*self._bytes], dtype=np.uint64))]
        asked = np.union1d(dearest, others[: STATES // 2])
        columns = self.columns_of(asked)
        if columns is None:
            return
        held, sizes = summed([(of, row_bytes(rows)) for of, rows in rows_of(columns)])
        self._bytes |= dict.fromkeys(asked.tolist(), 0.0)
        self._bytes |= dict(zip(held.tolist(), sizes.tolist(), strict=True))

    def _sizes(self, words: Words) -> npt.NDArray[np.int64]:
        mean = float(np.mean([*self._bytes.values()])) if self._bytes else 1.0
        return np.rint([self._bytes.get(word, mean) for word in words.tolist()]).astype(np.int64)

    def _forget(self, named: Words, kept: Words) -> None:
        self._fold()
        if max(len(self._known), len(self._bytes)) <= REMEMBERED * NAMED:
            return
        stay = np.union1d(named, kept)
        if self._columns is not None:
            stays = np.isin(self._known, stay)
            self._columns, self._known = self._columns.filter(mask(stays)), self._known[stays]
        known = set(stay.tolist())
        self._bytes = {word: size for word, size in self._bytes.items() if word in known}


def named_rows(operator: Operator, at: tuple[int, ...], columns: pa.RecordBatch) -> pa.RecordBatch | None:
    """Keys as an operator's state names them: rows of its `state_schema` of which only the key's columns
    are filled. None: its key has more columns than these.

    Parameters
    ----------
    operator : Operator
    at : tuple of int
        Column of its state -> where each column of the key is (`node_state.key_columns`).
    columns : pyarrow.RecordBatch
        Of the keys.
    """
    if sorted(at) != list(range(len(operator.key))):
        return None
    schema, count = operator.state_schema(), columns.num_rows
    assert schema is not None
    arrays = [
        columns.column(at.index(place)).cast(one.type) if place in at else pa.nulls(count, one.type)
        for place, one in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
