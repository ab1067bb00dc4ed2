"""The synthetic workload of the Mixed paper (section 5), and rebalancing runs over it.

Setting (Table 2): K keys whose frequencies follow Zipf-z, N_D instances, snapshots of the frequencies per
interval. From one interval to the next frequencies are swapped between keys of a random instance and keys of
others until that instance's load has changed by f L̄ (section 5). "Instance" is by hashing here, so that
every algorithm meets the same stream. A swap is one that brings the load nearer; the direction is random
where it can go down that far. A tuple costs 1 and leaves 1 in the state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ordstream.balance.mixed import (
    PLANNERS,
    Mixed,
    Plan,
    StateWindow,
    Statistics,
    min_mig,
    min_table,
    mixed,
    readj,
)
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.statistics import Destinations, Floats
from ordstream.lab.simulation import streams

#: Intervals of a run, after the first plan (which moves keys away from hashing alone, and is not counted).
INTERVALS = 40

Planner = Callable[[Statistics, Mixed], Plan]


@dataclass(frozen=True)
class Setting:
    """Parameters of one point of a figure: Table 2's defaults."""

    keys: int = 10_000
    skew: float = 0.85
    fluctuation: float = 1.0
    instances: int = 15
    theta_max: float = 0.08
    beta: float = 1.5
    a_max: int | None = 3_000
    window: int = 1
    tuples: int | None = None

    @property
    def parameters(self) -> Mixed:
        return Mixed(self.theta_max, self.a_max, self.beta, window=self.window)

    @property
    def tuples_per_interval(self) -> int:
        """100 per key unless given."""
        return 100 * self.keys if self.tuples is None else self.tuples


def frequencies(setting: Setting, rng: np.random.Generator) -> Floats:
    """g(k) of one snapshot: Zipf's expected counts, at least 1 each, given to keys at random."""
    expected = streams.zipf_probabilities(setting.keys, setting.skew) * setting.tuples_per_interval
    return np.asarray(rng.permutation(np.maximum(1.0, np.rint(expected))))


class Snapshots:
    """Frequencies of interval after interval. One reader."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        self.setting, self.rng = setting, rng
        ring = ConsistentHash(setting.instances, seed=int(rng.integers(2**31)))
        self.ring = ring
        self.hashed: Destinations = ring.route(np.arange(setting.keys))
        self.current = frequencies(setting, rng)

    def following(self) -> Floats:
        """Fluctuate; returns the new frequencies (a copy)."""
        if self.setting.fluctuation > 0 and self.setting.instances > 1:
            d = int(self.rng.integers(self.setting.instances))
            wanted = self.setting.fluctuation * float(self.current.sum()) / self.setting.instances
            down = bool(self.rng.integers(2))
            self.change(d, wanted, down)
        return self.current.copy()

    def change(self, d: int, wanted: float, down: bool) -> None:
        """Swap until the load of d has changed by at least `wanted`, or as far as it goes."""
        mine, others = np.flatnonzero(self.hashed == d), np.flatnonzero(self.hashed != d)
        if not len(mine) or not len(others):
            return
        if down:
            # The most it can go down: its keys get the least frequencies there are.
            least = np.sort(self.current)[: len(mine)].sum()
            down = bool(self.current[mine].sum() - least >= wanted)
        sign = -1.0 if down else 1.0
        done, idle = 0.0, 0
        while done < wanted and idle < 20:
            pairs = min(len(mine), len(others))
            a = self.rng.permutation(mine)[:pairs]
            b = self.rng.choice(others, pairs, replace=False)
            gain = sign * (self.current[b] - self.current[a])
            useful = gain > 0
            a, b, gain = a[useful], b[useful], gain[useful]
            idle = idle + 1 if not len(gain) else 0
            upto = int(np.searchsorted(done + np.cumsum(gain), wanted)) + 1
            a, b = a[:upto], b[:upto]
            self.current[a], self.current[b] = self.current[b], self.current[a]
            done += float(gain[:upto].sum())


#: What a rebalancing is measured by; one value per rebalancing each.
MEASURES = (
    "theta before",
    "theta",
    "migration",
    "keys moved",
    "table",
    "cpu",
    "placements",
    "evictions",
    "trials",
    "fits",
    "balanced",
    "pairs",
    "avoidable",
)


def planner(name: str) -> Planner:
    """A planner by its name in the figures."""
    if name == "Readj":
        return lambda statistics, parameters: readj(statistics, parameters.theta)
    return PLANNERS[name]


def measured(statistics: Statistics, parameters: Mixed, plan: Plan, cpu: float) -> tuple[float, ...]:
    """The values of `MEASURES`. "fits": no single key exceeds L_max; "avoidable": the table exceeds
    A_max where MinTable's would not.
    """
    bound = parameters.table
    avoidable = bound is not None and plan.table_size > bound >= min_table(statistics, parameters).table_size
    fits = float(statistics.cost.max()) <= statistics.limit(parameters.theta)
    return (
        statistics.theta(),
        plan.theta,
        plan.migration_share,
        plan.keys_moved,
        plan.table_size,
        cpu,
        plan.placements,
        plan.evictions,
        plan.trials,
        fits,
        plan.balanced,
        getattr(plan, "pairs", 0),
        avoidable,
    )


def timed_plan(make: Planner, statistics: Statistics, parameters: Mixed) -> tuple[Plan, float]:
    """A plan and the CPU seconds it took on this thread."""
    begin = time.thread_time()
    plan = make(statistics, parameters)
    return plan, time.thread_time() - begin


def rebalancings(
    seed: int, number: int, setting: Setting, names: tuple[str, ...], intervals: int = INTERVALS
) -> dict[str, npt.NDArray[np.float64]]:
    """Each algorithm over the same stream; it plans in each interval whose load exceeds θ_max under its
    assignment.

    Returns
    -------
    dict of name -> float64 array (rebalancings, len(MEASURES))
    """
    rng = np.random.default_rng([seed, number])
    given = Snapshots(setting, rng)
    window = StateWindow(setting.window)
    for _ in range(setting.window - 1):
        window.add(given.following())
    placed: dict[str, Destinations] = {name: given.hashed for name in names}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    for interval in range(intervals + 1):
        cost = given.following()
        state = window.add(cost)
        for name in names:
            statistics = Statistics(cost, state, given.hashed, setting.instances, placed[name])
            over = statistics.theta() > setting.theta_max
            if not over and (setting.a_max is None or statistics.table_size <= setting.a_max):
                continue
            plan, cpu = timed_plan(planner(name), statistics, setting.parameters)
            placed[name] = plan.destination
            if interval:
                found[name].append(measured(statistics, setting.parameters, plan, cpu))
    return {name: np.array(values).reshape(-1, len(MEASURES)) for name, values in found.items()}


def brute_force_beside(
    seed: int, number: int, setting: Setting, intervals: int, every: int
) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    """Mixed over a stream, and in each `every`-th interval brute force from the very same state: pairs
    of `MEASURES`.
    """
    rng = np.random.default_rng([seed, number])
    given = Snapshots(setting, rng)
    window = StateWindow(setting.window)
    placed, found = given.hashed, []
    for interval in range(1, intervals + 1):
        cost = given.following()
        statistics = Statistics(cost, window.add(cost), given.hashed, setting.instances, placed)
        if statistics.theta() <= setting.theta_max:
            continue
        plan, cpu = timed_plan(mixed, statistics, setting.parameters)
        if interval % every == 0:
            best, longer = timed_plan(PLANNERS["Mixed_BF"], statistics, setting.parameters)
            pair = ((plan, cpu), (best, longer))
            found.append(tuple(measured(statistics, setting.parameters, one, took) for one, took in pair))
        placed = plan.destination
    return [(a, b) for a, b in found]


def table_growth(seed: int, number: int, setting: Setting, adjustments: int) -> npt.NDArray[np.int64]:
    """N_A of MinMig after each of so many intervals (Figure 18)."""
    rng = np.random.default_rng([seed, number])
    given = Snapshots(setting, rng)
    placed, sizes = given.hashed, []
    for _ in range(adjustments):
        cost = given.following()
        plan = min_mig(Statistics(cost, cost, given.hashed, setting.instances, placed), setting.parameters)
        placed = plan.destination
        sizes.append(plan.table_size)
    return np.array(sizes, dtype=np.int64)
