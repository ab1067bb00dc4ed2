"""What a node of a stream tells of its keys after an epoch: tuples, seconds and bytes of state of each key
that costs most, the rest as one sum (`ordstream.balance.mixed.report`).

All tuples are counted. Where the fragment runs a function, its time is measured by key (`timed_calls`; in
matrices as POSG's, so the times of rare keys mix). The task's CPU time is told as if each tuple took the
same: the driver puts the two together (`balancing`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.state import key_groups
from ordstream.balance.keys import Words, key_words
from ordstream.balance.mixed.report import Report
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments.exchange import Route
from ordstream.fragments.key_costs import NAMED, KeyCounts, row_bytes, summed
from ordstream.fragments.time_marks import TimeMark
from ordstream.snapshots.snapshot import StateRows
from ordstream.spark.streaming.stored_state import Share

#: Key group of a key that has no state, or whose operators have keys of their own.
NO_GROUP = -1


class KeyCosts:
    """Counts the tuples of each key on their way into a node. One writer.

    Parameters
    ----------
    route : Route
        By which they came: says what their key is.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._counts = KeyCounts()

    def watch(self, rows: Iterator[pa.RecordBatch | TimeMark]) -> Iterator[pa.RecordBatch | TimeMark]:
        """The rows, counted; marks pass."""
        for batch in rows:
            if not isinstance(batch, TimeMark):
                self._counts.add(key_words(self._route.keys(batch)))
            yield batch

    def said(
        self,
        node: int,
        epoch: int,
        took: tuple[float, ExecutionTimes | None],
        states: Mapping[str, StateRows],
        shares: Mapping[str, Share],
        kept: Words,
    ) -> dict[str, Any]:
        """The node's report, what a tuple of each of its keys took in the function (seconds; 0: not known),
        and the key groups of its keys, for the driver.

        Parameters
        ----------
        node, epoch : int
        took : (float, ExecutionTimes or None)
            CPU time of the epoch, in seconds; and what a function took by key, in nanoseconds.
        states : mapping of str to StateRows
            As the epoch leaves them.
        shares : mapping of str to Share
            Operator -> which columns of its state the route's key is.
        kept : uint64 array
            Keys that are named in any case: those in the routing table.
        """
        self._counts.fold()
        words, counts = self._counts.words, self._counts.counts
        sizes = [_bytes_by_key(rows, shares[name]) for name, rows in states.items()]
        held, size = summed(sizes)
        keys = np.union1d(words, held)
        tuples = np.zeros(len(keys), dtype=np.int64)
        tuples[np.searchsorted(keys, words)] = counts
        state = np.zeros(len(keys))
        state[np.searchsorted(keys, held)] = size
        seconds, times = took
        cost = np.asarray(tuples * (seconds / max(1, int(tuples.sum()))), dtype=np.float64)
        report = Report(node, epoch, keys, tuples, cost, np.rint(state).astype(np.int64))
        report = report.heaviest(NAMED, kept)
        groups = np.full(len(report.keys), NO_GROUP, dtype=np.int32)
        for name, rows in states.items():
            if shares[name].whole_key(rows.keys):
                _find_groups(rows, shares[name], report.keys, groups)
        each = np.zeros(len(report.keys))
        if times is not None and times.tuples:
            each = np.where(report.tuples > 0, times.estimate_many(report.keys) * 1e-9, 0.0)
        return {
            "times": base64.b64encode(each.astype("<f8").tobytes()).decode("ascii"),
            "report": base64.b64encode(report.to_bytes()).decode("ascii"),
            "groups": base64.b64encode(groups.astype("<i4").tobytes()).decode("ascii"),
        }


def _bytes_by_key(rows: StateRows, share: Share) -> tuple[Words, npt.NDArray[Any]]:
    return summed([(share.words(batch), row_bytes(batch)) for batch in rows.batches()])


def _find_groups(rows: StateRows, share: Share, keys: Words, groups: npt.NDArray[np.int32]) -> None:
    """Fill in the key groups of the keys that have rows."""
    for batch in rows.batches():
        words, first = np.unique(share.words(batch), return_index=True)
        wanted = np.isin(words, keys[groups == NO_GROUP])
        words, first = words[wanted], first[wanted]
        if not len(words):
            continue
        part = batch.select(list(range(rows.keys))).take(pa.array(first))
        groups[np.searchsorted(keys, words)] = key_groups.groups(part)
