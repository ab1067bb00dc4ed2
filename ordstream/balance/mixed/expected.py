"""What keys may be expected to have, where few of their tuples were counted.

A plan picks keys with high costs, and among keys of like frequency those have them that came often by
chance: the plan would move less than it counts on. So counts are drawn towards those that other keys of the
instance have, by as much as chance explains (Tweedie's formula, on the square roots of the counts, whose
variance is the same everywhere): equal keys become equal, and a key that stands apart stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.mixed.statistics import Floats, summed_by

#: Counts above this say enough by themselves.
MANY = 100_000
#: Width of the density's kernel, and step of the grid that it is looked up on, in standard deviations.
WIDTH, STEP = 0.5, 0.125


def expected(
    cost: Floats, tuples: Floats, noise: float, placed: npt.NDArray[np.integer[Any]], instances: int
) -> Floats:
    """The costs, drawn together; each instance's sum stays.

    Parameters
    ----------
    cost : float array
        By key.
    tuples : float array
        That each is known by.
    noise : float
        Variance of a count over the count: 1 where tuples were counted once, less where counts have faded.
    placed : int array
        Instance of each key.
    instances : int
    """
    found = cost.copy()
    known = (tuples > 0) & (tuples <= MANY) & (cost > 0)
    for instance in range(instances):
        mine = np.flatnonzero(known & (placed == instance))
        if len(mine) > 1:
            found[mine] *= _drawn(tuples[mine], noise) / tuples[mine]
    # what a sum lacks now goes to the keys that were drawn: those that stand apart keep what they have
    drawn = np.abs(found - cost)
    lacks, by = (summed_by(placed, one, instances) for one in (cost - found, drawn))
    each = np.divide(lacks, by, out=np.zeros(instances), where=by > 0)
    found = np.maximum(found + each[placed] * drawn, 0.0)
    before, after = (summed_by(placed, one, instances) for one in (cost, found))
    return np.asarray(found * np.divide(before, after, out=np.ones(instances), where=after > 0)[placed])


def _drawn(tuples: Floats, noise: float) -> Floats:
    """The counts, drawn together."""
    roots = 2 * np.sqrt(tuples + 3 / 8)
    deviation = np.sqrt(max(noise, 1e-6))
    at = np.rint((roots - roots.min()) / (STEP * deviation)).astype(np.int64)
    reach = round(4 * WIDTH / STEP)
    offsets = np.arange(-reach, reach + 1) * STEP
    kernel = np.exp(-0.5 * (offsets / WIDTH) ** 2)
    many = np.pad(np.bincount(at).astype(np.float64), reach)
    density = np.convolve(many, kernel, "same")[reach:][at]
    slope = np.convolve(many, -offsets / WIDTH**2 * kernel, "same")[reach:][at]
    roots = roots + deviation * (1 + WIDTH**2) * slope / density
    return np.asarray(np.maximum((roots / 2) ** 2 - 3 / 8, 0.01 * tuples))
