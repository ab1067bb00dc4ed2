"""How unevenly work is spread: load vectors, percentage of imbalance λ, standard deviation σ (DKG,
equation 1 and section 5.1).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError

Loads = npt.NDArray[np.float64]


def tuple_loads(routes: npt.ArrayLike, instances: int, weights: npt.ArrayLike | None = None) -> Loads:
    """Load of each instance: its tuples, or the sum of their weights.

    Parameters
    ----------
    routes : int array (m)
        As `route` gives them.
    instances : int
        k.
    weights : float array (m), optional
        Cost of each tuple. Default: 1.

    Returns
    -------
    float64 array (k)
    """
    found = np.asarray(routes)
    if not len(found):
        found = found.astype(np.int64)  # an empty list has no type that says something
    elif not (found.min() >= 0 and found.max() < instances):
        raise PlanError(f"a route lies outside 0 to {instances - 1}")
    return np.bincount(found, weights=weights, minlength=instances).astype(np.float64)


def imbalance(loads: npt.ArrayLike) -> float:
    """λ = (max/mean - 1) * 100: the share of an instance's power that is lost because work is spread
    unevenly, in per cent.

    0: all equal; 100 (k - 1): all on one. 0.0 when there is no load at all.
    """
    found = np.asarray(loads, dtype=np.float64)
    mean = found.mean()
    return float((found.max() / mean - 1) * 100) if mean > 0 else 0.0


def deviation(loads: npt.ArrayLike) -> float:
    """σ: the population standard deviation of the loads."""
    return float(np.asarray(loads, dtype=np.float64).std())


def regression(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[float, float]:
    """(a, b) of the least-squares line y = a x + b (DKG, Table 1)."""
    a, b = np.polyfit(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), 1)
    return float(a), float(b)
