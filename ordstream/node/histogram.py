"""Histograms of durations that add up exactly: log-linear buckets, 128 to each power of two.

Up to 255 ns each duration has a bucket of its own; above, a bucket is at most 1/128 of its values wide. So
a quantile that is read from a histogram is off by at most `BOUND` of itself, whatever was added to what in
which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

#: A bucket's lowest value in nanoseconds: how many durations are in it. Sparse.
Histogram = dict[int, int]

PER_OCTAVE = 128
#: Largest relative error of a quantile: half a bucket.
BOUND = 1 / (2 * PER_OCTAVE)
# So many durations take less time one by one than NumPy's calls do.
FEW = 48
# The bits of a duration are counted in a float64, which is exact up to here: 104 days.
_MOST_NS = (1 << 53) - 1


def histogram(values: npt.ArrayLike) -> Histogram:
    """The histogram of durations.

    Parameters
    ----------
    values : array of int
        Nanoseconds; what is below 0 counts as 0, what is beyond 104 days as 104 days.
    """
    durations = np.asarray(values, dtype=np.int64)
    if len(durations) > FEW:
        lows, counts = np.unique(_lows(durations), return_counts=True)
        return dict(zip(lows.tolist(), counts.tolist(), strict=True))
    found: Histogram = {}
    for duration in sorted(durations.tolist()):
        low = _low(min(max(duration, 0), _MOST_NS))
        found[low] = found.get(low, 0) + 1
    return found


def _low(duration: int) -> int:
    """`_lows` of one duration, which is within its bounds."""
    dropped = max(duration.bit_length() - PER_OCTAVE.bit_length(), 0)
    return duration >> dropped << dropped


def _lows(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lowest value of each value's bucket."""
    clipped = np.clip(values, 0, _MOST_NS)
    _, bits = np.frexp(clipped.astype(np.float64))
    dropped = np.maximum(bits.astype(np.int64) - PER_OCTAVE.bit_length(), 0)
    return (clipped >> dropped) << dropped


def _width(low: int) -> int:
    """How many values a bucket has."""
    return 1 << max(low.bit_length() - PER_OCTAVE.bit_length(), 0)


def added(histograms: Iterable[Mapping[int, int]]) -> Histogram:
    """The histogram of all their durations together."""
    total: Histogram = {}
    for one in histograms:
        for low, count in one.items():
            total[low] = total.get(low, 0) + count
    return dict(sorted(total.items()))


def quantiles(found: Mapping[int, int], at: Sequence[float]) -> list[float]:
    """Quantiles in nanoseconds, interpolated as by `numpy.percentile`, within `BOUND` of the durations' own.

    Parameters
    ----------
    found : mapping
        A histogram with at least one duration.
    at : sequence of float
        Percentages, 0..100.
    """
    lows = sorted(found)
    middles = np.array([low + (_width(low) - 1) / 2 for low in lows])
    behind = np.cumsum([found[low] for low in lows])  # durations up to the end of each bucket
    ranks = (int(behind[-1]) - 1) * np.asarray(at, dtype=np.float64) / 100
    below = middles[np.searchsorted(behind, np.floor(ranks), side="right")]
    above = middles[np.searchsorted(behind, np.ceil(ranks), side="right")]
    between: list[float] = (below + (above - below) * (ranks - np.floor(ranks))).tolist()
    return between
