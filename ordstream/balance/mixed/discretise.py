"""Discretisation of costs and state sizes: half-linear-half-exponential representatives, chosen so that
deviations cancel (section 4.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError

Floats = npt.NDArray[np.float64]


def representatives(largest: float, degree: int) -> Floats:
    """HLHE, first step: ceil(x_1/R) R, ..., 2R, R (the linear part), then R/2, ..., 2, 1 (the exponential
    part); decreasing.

    Parameters
    ----------
    largest : float
        x_1 >= 0, the largest value.
    degree : int
        R = 2^r, the degree of discretisation.

    Returns
    -------
    float64 array
        ceil(x_1/R) + r values, at least R itself.

    Raises
    ------
    PlanError
        R is not a power of 2, or x_1 is not a finite number >= 0.
    """
    if degree < 1 or degree & (degree - 1):
        raise PlanError(f"the degree of discretisation R must be a power of 2 (1, 2, 4, ...), not {degree}")
    if not 0 <= largest < np.inf:
        raise PlanError(f"the largest value must be finite and not negative, not {largest}")
    linear = np.arange(max(1, int(np.ceil(largest / degree))), 0, -1, dtype=np.float64) * degree
    return np.concatenate([linear, degree / 2.0 ** np.arange(1, degree.bit_length())])


def discretised(values: npt.ArrayLike, degree: int) -> Floats:
    """HLHE with the second step: each value becomes one of its two neighbours, so that deviations cancel.

    Values are taken in decreasing order (equal ones in theirs). With δ = Σ(x - φ(x)) over those before, x
    takes the larger neighbour
    if δ > 0, else the smaller; a value that is a representative stays. After each step |δ| <= R.
    A value below 1 lies between 0 and 1.

    Parameters
    ----------
    values : float array
        Not negative; in units in which values that matter are at least 1 (tuples, bytes). Whole numbers stay
        as they are at R = 1.
    degree : int
        R = 2^r.

    Returns
    -------
    float64 array
        φ(x) of each value, in the order given.

    Raises
    ------
    PlanError
        As for `representatives`; a value is negative or not finite.
    """
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not (np.isfinite(given).all() and (given >= 0).all()):
        raise PlanError("values to discretise must be a column of finite numbers that are not negative")
    representatives(0.0, degree)  # PlanError for what is no degree
    if not len(given):
        return given.copy()
    order = np.argsort(-given, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(given[order]) != 0]))
    counts = np.diff(np.append(starts, len(given)))
    distinct = given[order][starts]
    below, above = _neighbours(distinct, degree)
    exact = above == distinct
    # Within a run of equal values the rule keeps δ in (-up, down]: how many took the larger neighbour has a
    # closed form.
    down, up = distinct - below, above - distinct
    before = np.empty(len(distinct))
    deviation = 0.0
    for i in np.flatnonzero(~exact).tolist():
        before[i] = deviation
        deviation = _after(deviation, float(down[i]), float(up[i]), int(counts[i]))
    run = np.repeat(np.arange(len(distinct)), counts)
    found = distinct[run]
    open_ = ~exact[run]
    number = (np.arange(len(given)) - starts[run])[open_]
    run = run[open_]
    larger = _taken_up(before[run], down[run], up[run], number + 1) > _taken_up(
        before[run], down[run], up[run], number
    )
    found[open_] = np.where(larger, above[run], below[run])
    result = np.empty(len(given))
    result[order] = found
    return result


def _neighbours(values: Floats, degree: int) -> tuple[Floats, Floats]:
    """The largest of 0 and `representatives` that is at most each value, and the smallest that is at least
    it. Computed: a list of all would be as long as the largest value is of times R.
    """
    linear = values >= degree
    _, exponent = np.frexp(values)
    power = np.where(values < 1, 0.0, np.ldexp(1.0, exponent - 1))
    below = np.where(linear, np.floor(values / degree) * degree, power)
    higher = np.where(values < 1, 1.0, np.ldexp(1.0, exponent))
    above = np.where(linear, np.ceil(values / degree) * degree, higher)
    return below, np.where(below == values, values, above)


def _taken_up(before: Floats, down: Floats, up: Floats, steps: npt.NDArray[np.int64]) -> Floats:
    """How many of the first `steps` equal values take the larger neighbour, from deviation `before` on."""
    return np.clip(np.ceil((before + steps * down - down) / (down + up)), 0, steps)


def _after(before: float, down: float, up: float, steps: int) -> float:
    larger = min(max(float(np.ceil((before + steps * down - down) / (down + up))), 0.0), float(steps))
    return before + steps * down - larger * (down + up)
