"""Seeded streams as the papers build them: items by a distribution, relabelled, with execution times and
arrivals.

Every function is a pure function of its arguments and the generator's state:
`numpy.random.default_rng(seed)` gives the same stream again. Sources: DKG, section 5.1; POSG, section V-A;
LAS, section V.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError

Items = npt.NDArray[np.int64]


def zipf_probabilities(n: int, alpha: float) -> npt.NDArray[np.float64]:
    """p_i proportional to 1/i^alpha for the items of rank i = 1..n; alpha = 0 is uniform, alpha >= 0."""
    if n < 1 or not 0 <= alpha < np.inf:
        raise PlanError(f"a Zipf distribution needs n >= 1 and alpha >= 0, not n={n}, alpha={alpha}")
    weights = np.arange(1, n + 1, dtype=np.float64) ** -alpha
    return np.asarray(weights / weights.sum())


def draw(probabilities: npt.NDArray[np.float64], m: int, rng: np.random.Generator) -> Items:
    """m independent items 0..n-1 with these probabilities.

    Their counts are drawn first (multinomial), then put into random order: the same distribution as drawing
    one by one, faster.
    """
    if m < 0:
        raise PlanError(f"the length of a stream cannot be {m}")
    counts = rng.multinomial(m, probabilities)
    return rng.permutation(np.repeat(np.arange(len(counts), dtype=np.int64), counts))


def zipf(m: int, n: int, alpha: float, rng: np.random.Generator) -> Items:
    """m tuples over items 0..n-1, item i with probability proportional to 1/(i + 1)^alpha."""
    return draw(zipf_probabilities(n, alpha), m, rng)


def uniform(m: int, n: int, rng: np.random.Generator) -> Items:
    """m tuples over items 0..n-1, all equally probable."""
    if n < 1:
        raise PlanError(f"the number of items cannot be {n}")
    return rng.integers(0, n, m, dtype=np.int64)


def normal(m: int, n: int, mean: float, deviation: float, rng: np.random.Generator) -> Items:
    """m tuples over items 0..n-1: a normal variable rounded, drawn again where it falls outside."""
    if n < 1 or deviation <= 0 or not 0 <= mean <= n - 1:
        raise PlanError(
            f"need n >= 1, deviation > 0 and 0 <= mean <= n - 1, not n={n}, deviation={deviation}, "
            f"mean={mean}"
        )
    items = np.rint(rng.normal(mean, deviation, m))
    while (outside := (items < 0) | (items > n - 1)).any():
        items[outside] = np.rint(rng.normal(mean, deviation, int(outside.sum())))
    return items.astype(np.int64)


#: Rows and columns of the four grids over a field, from coarse to fine (after DEBS 2013's third query).
GRIDS = ((1, 2), (8, 13), (16, 25), (64, 100))


def grid_cells(
    readings: int, rng: np.random.Generator, players: int = 16, resting: int = 12
) -> tuple[Items, Items, Items]:
    """Positions of sensors on a field, four tuples per reading: the cell of each of four grids (DKG, section
    5.3).

    Synthetic trajectories, all sensors read in turn: players walk at random, reflected at the borders;
    others, such as spare balls, rest at one spot. Players spend 61.5 % of the time in the half where that
    spot is, so by default the most frequent key, that half in the coarsest grid, is about 1/5 of the tuples,
    and the spot's cell in each other grid a tenth.

    Parameters
    ----------
    readings : int
        Position readings; 4 tuples each.
    rng : numpy.random.Generator
    players, resting : int
        Sensors of each kind; players >= 1.

    Returns
    -------
    (int64 array, int64 array, int64 array)
        granularity 0..3, row and column of each tuple: the composite key.
    """
    if readings < 0 or players < 1 or resting < 0:
        raise PlanError(f"cannot read {players} players and {resting} resting sensors {readings} times")
    turns = -(-readings // (players + resting))
    steps = rng.normal(0.0, 0.1, (turns, players, 2))
    steps[:1] += rng.random((min(turns, 1), players, 2)) * 2
    walked = np.cumsum(steps, axis=0) % 2.0
    walked = np.minimum(walked, 2.0 - walked)  # reflected: uniform over the unit square in the long run
    along = walked[..., 0]
    # Stretched so that the first half of the field gets 61.5 %.
    walked[..., 0] = np.where(along < 0.615, along * (0.5 / 0.615), 0.5 + (along - 0.615) * (0.5 / 0.385))
    spot = np.broadcast_to(np.array([0.21, 0.94]), (turns, resting, 2))
    along, across = np.concatenate([walked, spot], axis=1).reshape(-1, 2)[:readings].T
    rows = [np.minimum(across * rows, rows - 1) for rows, _ in GRIDS]
    columns = [np.minimum(along * columns, columns - 1) for _, columns in GRIDS]
    granularity = np.tile(np.arange(len(GRIDS), dtype=np.int64), readings)
    return (
        granularity,
        np.stack(rows, axis=1).astype(np.int64).ravel(),
        np.stack(columns, axis=1).astype(np.int64).ravel(),
    )


def cell_numbers(granularity: Items, row: Items, column: Items) -> Items:
    """The composite keys of `grid_cells` as one integer: cells numbered through all grids, from 0."""
    columns = np.array([columns for _, columns in GRIDS])
    first = np.concatenate([[0], np.cumsum([rows * columns for rows, columns in GRIDS])])
    return np.asarray(first[granularity] + row * columns[granularity] + column, dtype=np.int64)


def relabelling(n: int, universe: int, rng: np.random.Generator) -> Items:
    """Labels of items 0..n-1: an injective random map into 1..universe (DKG, section 5.1: universe = 100
    n).
    """
    if universe < n:
        raise PlanError(f"{n} items cannot get different labels out of {universe}")
    return rng.choice(universe, size=n, replace=False).astype(np.int64) + 1


def execution_times(n: int, classes: npt.ArrayLike, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Execution time of each of n items: each time of `classes` is given to n / len(classes) items, chosen
    at random.

    POSG, section V-A: 64 times from 1 to 64 ms over 4,096 items. Where the classes do not divide n, the
    first ones get one more.
    """
    times = np.asarray(classes, dtype=np.float64)
    if times.ndim != 1 or not len(times):
        raise PlanError("execution times need at least one class")
    return rng.permutation(np.resize(times, n))


def even_arrivals(m: int, gap: float) -> npt.NDArray[np.float64]:
    """Arrivals 0, gap, 2 gap, ..."""
    if not 0 <= gap < np.inf:
        raise PlanError(f"the gap between arrivals must be finite and >= 0, not {gap}")
    return np.arange(m, dtype=np.float64) * gap


def provisioned_gap(mean_work: float, instances: int, provisioning: float = 1.0) -> float:
    """Gap between arrivals at which `instances` have `provisioning` times the capacity that is needed (POSG,
    section V-A).

    1.0: exactly enough; below 1 the operator is under-provisioned. gap = provisioning * mean work / k.
    """
    if instances < 1 or not (0 < provisioning < np.inf and 0 <= mean_work < np.inf):
        raise PlanError(
            f"cannot provision {instances} instances at {provisioning} for a mean work of {mean_work}"
        )
    return provisioning * mean_work / instances
