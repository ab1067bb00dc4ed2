"""Readj, the rival: keys go back where hashing puts them, then the best single moves and swaps of heavy keys
(Gedik, VLDB J. 2014).

As the Mixed paper describes it (section 5, "Baseline Approaches"): σ decides which keys take part, those
with c(k) >= σ L̄.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ordstream.balance.mixed.planners import Plan
from ordstream.balance.mixed.statistics import ROUNDING, Statistics
from ordstream.errors import PlanError

#: σ that `readj` tries: from keys of half an instance's load on.
SIGMAS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)


@dataclass(frozen=True, eq=False)
class ReadjPlan(Plan):
    """A plan of Readj.

    Attributes
    ----------
    sigma : float
        The σ it was made with.
    pairs : int
        Moves and swaps that were weighed.
    """

    sigma: float = 0.0
    pairs: int = 0


def readj_once(statistics: Statistics, theta_max: float, sigma: float) -> ReadjPlan:
    """Readj with one σ.

    A table key goes back where that does not overload its hash destination, dearest first. Then, while the
    fullest instance exceeds L_max: of all moves of its heavy keys and all swaps with other instances' heavy
    keys the one after which the fuller of the two instances has least; until none makes it less. Each step
    lowers the sum of the squares of loads, so it ends.
    """
    if not sigma >= 0:
        raise PlanError(f"sigma must not be negative, not {sigma}")
    if statistics.number is not None:
        raise PlanError("Readj works on keys, not on records")
    cost, limit, mean = statistics.cost, statistics.limit(theta_max), statistics.mean
    destination = statistics.placed.copy()
    loads = statistics.loads()
    entries = np.flatnonzero(destination != statistics.hashed)
    pairs = 0
    for key in entries[np.argsort(-cost[entries], kind="stable")].tolist():
        home = int(statistics.hashed[key])
        pairs += 1
        if loads[home] + cost[key] <= limit:
            loads[destination[key]] -= cost[key]
            loads[home] += cost[key]
            destination[key] = home
    heavy = np.flatnonzero((cost >= sigma * mean) & (cost > 0))
    others = np.arange(statistics.instances)
    steps = 0
    while len(heavy) and loads.max() > limit:
        full = int(np.argmax(loads))
        mine = heavy[destination[heavy] == full]
        theirs = heavy[destination[heavy] != full]
        # A single move is a swap with nothing.
        partner = np.concatenate([destination[theirs], others[others != full]])
        given = np.concatenate([cost[theirs], np.zeros(len(others) - 1)])
        pairs += len(mine) * len(partner)
        best, chosen = float(loads[full]) - max(ROUNDING * mean, 0.0), None
        for key in mine.tolist():
            moved = cost[key] - given
            after = np.maximum(loads[full] - moved, loads[partner] + moved)
            at = int(np.argmin(after)) if len(after) else -1
            if at >= 0 and after[at] < best:
                best, chosen = float(after[at]), (key, at)
        if chosen is None:
            break
        key, at = chosen
        to = int(partner[at])
        loads[full] += given[at] - cost[key]
        loads[to] += cost[key] - given[at]
        destination[key] = to
        if at < len(theirs):
            destination[theirs[at]] = full
        steps += 1
    dearest = int(np.argmax(cost)) if len(cost) else None
    stuck = bool(loads.max() > limit)
    return ReadjPlan(
        statistics, np.arange(len(cost)), destination, statistics.counts, theta_max, None,
        placements=steps, limiting=dearest if stuck else None, sigma=sigma, pairs=pairs,
    )  # fmt: skip


def readj(statistics: Statistics, theta_max: float, sigmas: Sequence[float] = SIGMAS) -> ReadjPlan:
    """The best of several σ: a balanced plan first, of those the one with least migration; else the least
    load.

    Readj has no bound on the routing table. `pairs` counts those of the plan returned alone.
    """
    if not sigmas:
        raise PlanError("Readj needs at least one sigma")
    found = [readj_once(statistics, theta_max, sigma) for sigma in sigmas]
    return min(
        found,
        key=lambda plan: (
            not plan.balanced,
            plan.migration if plan.balanced else float(plan.loads.max()),
            -plan.sigma,
        ),
    )
