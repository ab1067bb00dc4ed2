"""What keys cost: counting their tuples, the bytes of their state, and what a tuple of each takes.

Nodes tell of their keys (`ordstream.balance.mixed.report`); whoever hears them all puts their times
together (`costed`). Streams in Spark do so behind each epoch, node processes at each report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.balance.keys import Words
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats
from ordstream.ground import numbers

#: Keys that a node names, and that the controller knows by name, beside those in the routing table.
NAMED = 4_096
#: Words after which counts are added up.
FOLD = 1 << 20


class KeyCounts:
    """Tuples by key. One writer.

    Attributes
    ----------
    words : uint64 array, ascending
    counts : int array
        As of the last `fold`.
    """

    def __init__(self) -> None:
        self.words: Words = np.zeros(0, dtype=np.uint64)
        self.counts: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._new: list[Words] = []
        self._waiting = 0

    def add(self, words: Words) -> None:
        """Tuples with these keys."""
        self._new.append(words)
        self._waiting += len(words)
        if self._waiting >= FOLD:
            self.fold()

    def fold(self) -> None:
        """Add up what came since the last time."""
        if self._new:
            met, counts = np.unique(np.concatenate(self._new), return_counts=True)
            self.words, self.counts = summed([(self.words, self.counts), (met, counts)])
            self._new, self._waiting = [], 0


def summed(parts: Sequence[tuple[Words, npt.NDArray[Any]]]) -> tuple[Words, npt.NDArray[Any]]:
    """Keys, ascending, and their sums over all parts."""
    words = np.concatenate([np.zeros(0, dtype=np.uint64), *(one for one, _ in parts)])
    values = np.concatenate([np.zeros(0, dtype=np.int64), *(one for _, one in parts)])
    keys, at = np.unique(words, return_inverse=True)
    sums = np.bincount(at, weights=values, minlength=len(keys))
    return keys, sums.astype(values.dtype)


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
    """About how many bytes each row has: of strings and lists their own length, else the columns' width."""
    found = np.zeros(batch.num_rows)
    for column in batch.columns:
        found += _widths(column)
    return found


def _widths(column: pa.Array) -> npt.NDArray[np.float64]:
    kind, count = column.type, len(column)
    if not count:
        return np.zeros(0)
    if pat.is_string(kind) or pat.is_binary(kind) or pat.is_large_string(kind) or pat.is_large_binary(kind):
        return _lengths(pc.binary_length(column)) + 4
    if pat.is_list(kind) or pat.is_large_list(kind):
        items = column.flatten()
        each = float(_widths(items).mean()) if len(items) else 0.0
        return _lengths(pc.list_value_length(column)) * each + 4
    if pat.is_struct(kind):
        return np.asarray(sum(_widths(one) for one in column.flatten()))
    try:
        return np.full(count, kind.bit_width / 8)
    except ValueError:
        return np.full(count, column.nbytes / count)


def _lengths(column: pa.Array) -> npt.NDArray[np.float64]:
    return np.where(numbers.truth(column.is_null()), 0.0, numbers.values(column))


def costed(
    reports: Sequence[Report], found: Sequence[Floats], known: Mapping[int, float]
) -> tuple[list[Report], dict[int, float]]:
    """The reports of one interval with what their tuples cost, and the times found in it by key.

    A tuple costs what its key's take where they were measured, and what is left of all nodes' CPU time, the
    same for every tuple: a node gives that to its tuples alike, so a difference between nodes is not their
    keys'.

    A key's time is the lesser of those found in the last two intervals: what holds up a process, another
    one or a collection of garbage, only adds to it, and would else move keys. Where there are not two, it
    is the median over all tuples.

    Parameters
    ----------
    reports : sequence of Report
        Their seconds: a node's, the same for each of its tuples.
    found : sequence of float array
        Of each report's keys: seconds of a tuple as measured; 0: not known.
    known : dict of int to float
        Key word -> the time found in the interval before.
    """
    keys = np.concatenate([np.zeros(0, dtype=np.uint64), *(one.keys for one in reports)]).tolist()
    times = np.concatenate([np.zeros(0), *found])
    weights = np.concatenate([np.zeros(0), *(one.tuples for one in reports)])
    typical = _median(times[times > 0], weights[times > 0])
    now = {key: time for key, time in zip(keys, times.tolist(), strict=True) if time > 0}
    tuples = sum(int(one.tuples.sum()) + one.rest[0] for one in reports)
    seconds = sum(float(one.seconds.sum()) + one.rest[1] for one in reports)
    taken = []
    for one in reports:
        each = [
            min(now[key], known[key]) if key in now and key in known else typical
            for key in one.keys.tolist()
        ]
        taken.append(one.tuples * np.array(each, dtype=np.float64))
    inside = sum(float(one.sum()) for one in taken) + typical * sum(one.rest[0] for one in reports)
    left = max((seconds - inside) / max(1, tuples), 1e-9)
    costs = [
        replace(
            one,
            seconds=np.asarray(inside_one + one.tuples * left, dtype=np.float64),
            rest=(one.rest[0], one.rest[0] * (typical + left), one.rest[2]),
        )
        for one, inside_one in zip(reports, taken, strict=True)
    ]
    return costs, now


def _median(values: Floats, weights: Floats) -> float:
    """The weighted median; 0 of nothing."""
    if not len(values):
        return 0.0
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(upto, upto[-1] / 2))])
