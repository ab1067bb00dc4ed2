"""Rebalancing plans: MinTable (Algorithm 2), MinMig (Algorithm 3), Mixed (Algorithm 4) and its brute-force
form (section 3).

Each runs the three phases. I, cleaning: keys of the routing table go back to their hash destination
(virtually). II, preparing: from each overloaded instance the prefix by ψ that brings it to L_max goes into
the candidate set C. III, assigning: LLFD.

All are pure functions of the statistics and the parameters. Each ends, whatever the input: where some key
alone exceeds L_max, or costs are too coarse, the plan is the best found and `Plan.limiting` is the key in
the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ordstream.balance.mixed.llfd import CANDIDATE, Positions, Rows, llfd
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.statistics import Destinations, Floats, Statistics, overload, summed_by
from ordstream.balance.parameters import check_numbers
from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of

#: Of `Mixed.protocol`.
PROTOCOLS = ("hold", "pause")


@dataclass(frozen=True)
class Mixed:
    """The policy as a value; the defaults are those of Table 2.

    Parameters
    ----------
    theta : float
        θ_max >= 0: no instance shall have more than (1 + θ_max) times the mean load.
    table : int or None
        A_max >= 0: entries of the routing table. None: no bound.
    beta : float
        β >= 0, the migration selection factor in γ = c^β / S.
    degree : int
        R = 2^r, the degree of discretisation where records are planned on (`compact.plan_compact`).
    window : int
        w >= 1: intervals whose state a key has, for the `StateWindow` that S(k, w) comes from: in plans from
        statistics of the caller's. Runs (`balance=`) take 1 only: they move the state that there is.
    points, seed : int
        Of the ring of consistent hashing (`ConsistentHash`).
    protocol : str
        How keys move between processes. "hold": the new process holds the moved keys' rows until their state
        is there, and goes on with all others. "pause": as Fig. 5 has it, to compare: behind the new table no
        row is given out until every process has acknowledged the move.
    payback : float
        >= 0: keys move once the imbalance has cost so many times what their move is expected to cost. 0: as
        soon as a plan is due, as the paper has it.

    Raises
    ------
    PlanError
        A parameter is out of range.
    """

    theta: float = 0.08
    table: int | None = 3_000
    beta: float = 1.5
    degree: int = 8
    window: int = 1
    points: int = 1_024
    seed: int = 0
    protocol: str = "hold"
    payback: float = 1.0

    def __post_init__(self) -> None:
        if not is_one_of(self.protocol, PROTOCOLS):
            raise PlanError(
                f"Mixed: protocol is one of {', '.join(map(repr, PROTOCOLS))}, not {self.protocol!r:.80}"
            )
        check_numbers(
            self, ("theta", "beta", "table", "payback"), ("degree", "window", "points", "seed"), "table"
        )
        if not 0 <= self.theta < np.inf:
            raise PlanError(f"Mixed: theta must be finite and not negative, not {self.theta}")
        if self.table is not None and (self.table < 0 or self.table % 1):
            raise PlanError(
                "Mixed: table, the size of the routing table, must be a whole number from 0, or None, not "
                f"{self.table}"
            )
        if not 0 <= self.beta < np.inf:
            raise PlanError(f"Mixed: beta must be finite and not negative, not {self.beta}")
        if not 0 <= self.payback < np.inf:
            raise PlanError(f"Mixed: payback must be finite and not negative, not {self.payback}")
        if self.degree < 1 or self.degree & (self.degree - 1):
            raise PlanError(
                f"Mixed: the degree of discretisation R must be a power of 2 (1, 2, ...), not {self.degree}"
            )
        if self.window < 1:
            raise PlanError(f"Mixed: the window w must be at least 1 interval, not {self.window}")
        if self.points < 1:
            raise PlanError(f"Mixed: an instance needs at least 1 point on the ring, not {self.points}")

    def ring(self, instances: int | Sequence[int]) -> ConsistentHash:
        """h over these instances. PlanError where they are none."""
        return ConsistentHash(instances, self.points, self.seed)

    def plan(self, statistics: Statistics) -> Plan:
        """`mixed` with these parameters."""
        return mixed(statistics, self)


@dataclass(frozen=True, eq=False)
class Plan:
    """A new assignment F' and what it costs.

    Attributes
    ----------
    statistics : Statistics
        What it was made from.
    item, destination, number : arrays
        F': so many keys of each element go to a destination. Where an element is one key, element i is row
        i.
    theta_max, a_max
        Bounds it was made for.
    cleaned : int
        n, the entries moved back in Phase I.
    trials : int
        How many n were tried.
    placements, evictions, tried : int
        Of Phase III, over all trials: keys (groups) taken out of C, keys put back by Adjust, instances on
        which Adjust looked for E.
    limiting : int or None
        Element of the key that keeps the plan from its bounds on load: the dearest that alone exceeds L_max,
        or else that no instance accepted. None: every placement was accepted.
    """

    statistics: Statistics
    item: Positions
    destination: Destinations
    number: npt.NDArray[np.int64]
    theta_max: float
    a_max: int | None
    cleaned: int = 0
    trials: int = 1
    placements: int = 0
    evictions: int = 0
    tried: int = 0
    limiting: int | None = None

    @cached_property
    def loads(self) -> Floats:
        """L(d) under F', by the statistics."""
        weight = self.statistics.cost[self.item] * self.number
        return self.statistics.on_top(summed_by(self.destination, weight, self.statistics.instances))

    @property
    def theta(self) -> float:
        """max L(d)/L̄ - 1 under F'."""
        return overload(self.loads)

    @cached_property
    def table_size(self) -> int:
        """N_A' = |{k: F'(k) != h(k)}|."""
        return int(self.number[self.destination != self.statistics.hashed[self.item]].sum())

    @cached_property
    def moved(self) -> npt.NDArray[np.bool_]:
        """Rows of Δ(F, F')."""
        return np.not_equal(self.destination, self.statistics.placed[self.item])

    @property
    def keys_moved(self) -> int:
        """|Δ(F, F')|."""
        return int(self.number[self.moved].sum())

    @cached_property
    def migration(self) -> float:
        """M = Σ S(k, w) over Δ(F, F') (equation 2)."""
        return float((self.statistics.state[self.item] * self.number)[self.moved].sum())

    @property
    def migration_share(self) -> float:
        """M as a share of all state; 0 where there is none."""
        return self.migration / self.statistics.total_state if self.statistics.total_state else 0.0

    @property
    def balanced(self) -> bool:
        """No instance exceeds L_max."""
        return bool(self.loads.max() <= self.statistics.limit(self.theta_max))

    @property
    def table_fits(self) -> bool:
        """N_A' <= A_max."""
        return self.a_max is None or self.table_size <= self.a_max

    @property
    def feasible(self) -> bool:
        """Both constraints of problem (3) hold."""
        return self.balanced and self.table_fits

    @property
    def rank(self) -> tuple[bool, int, float, float, int]:
        """Less is better: feasible first, then entries beyond A_max, load beyond L_max, migration, n."""
        over = 0 if self.a_max is None else max(0, self.table_size - self.a_max)
        beyond = max(0.0, float(self.loads.max()) - self.statistics.limit(self.theta_max))
        return (not self.feasible, over, beyond, self.migration, self.cleaned)


def min_table(statistics: Statistics, parameters: Mixed | None = None) -> Plan:
    """Algorithm 2: clean the whole table, ψ = highest cost first. The result depends on h and c alone,
    not on F.
    """
    chosen = Mixed() if parameters is None else parameters
    return _Trials(statistics, chosen, statistics.cost).plan(statistics.table_size)


def min_mig(statistics: Statistics, parameters: Mixed | None = None) -> Plan:
    """Algorithm 3: clean nothing, ψ = largest γ first. The identity where no instance is overloaded;
    A_max bounds nothing here.
    """
    chosen = Mixed() if parameters is None else parameters
    return _Trials(statistics, chosen, statistics.gamma(chosen.beta)).plan(0)


def mixed(statistics: Statistics, parameters: Mixed | None = None) -> Plan:
    """Algorithm 4: MinMig after n entries, those with the least state, were moved back; n grows by what the
    last table had too much.

    n begins at 0 and ends at the latest with the whole table, where the plan is MinTable's but for ψ. Where
    that table does not fit either, MinTable's own plan is tried (appendix B: "acts as MinTable"), and the
    best of all trials is taken (`Plan.rank`).

    Returns
    -------
    Plan
    """
    chosen = Mixed() if parameters is None else parameters
    trials = _Trials(statistics, chosen, statistics.gamma(chosen.beta))
    entries, n = statistics.table_size, 0
    found = [trials.plan(0)]
    while chosen.table is not None and not found[-1].table_fits and n < entries:
        n = min(entries, n + found[-1].table_size - chosen.table)
        found.append(trials.plan(n))
    if found[-1].table_fits:  # Algorithm 4 returns the first trial whose table does
        return _summed(found, found[-1])
    found.append(min_table(statistics, chosen))
    return _summed(found, min(found, key=_rank))


def mixed_brute_force(
    statistics: Statistics, parameters: Mixed | None = None, tried: Iterable[int] | None = None
) -> Plan:
    """Mixed with every n from 0 to N_A, and MinTable: a feasible plan first, of those the one with least
    migration (`Plan.rank`).

    So it is feasible whenever Mixed is, and then never dearer. Cost: N_A + 2 plans.

    Parameters
    ----------
    statistics : Statistics
    parameters : Mixed, optional
    tried : iterable of int, optional
        These n in place of every one, and no MinTable; those that Mixed tries are not among them by
        themselves.
    """
    chosen = Mixed() if parameters is None else parameters
    trials = _Trials(statistics, chosen, statistics.gamma(chosen.beta))
    found = [trials.plan(n) for n in (range(statistics.table_size + 1) if tried is None else tried)]
    if tried is None:
        found.append(min_table(statistics, chosen))
    if not found:
        raise PlanError("brute force needs at least one number of entries to try")
    return _summed(found, min(found, key=_rank))


#: The planners of the paper by name.
PLANNERS: dict[str, Callable[[Statistics, Mixed], Plan]] = {
    "MinTable": min_table,
    "MinMig": min_mig,
    "Mixed": mixed,
    "Mixed_BF": mixed_brute_force,
}


def _rank(plan: Plan) -> tuple[bool, int, float, float, int]:
    return plan.rank


def _summed(found: list[Plan], best: Plan) -> Plan:
    """The best of several trials, with the work of all."""
    values = {
        name: sum(getattr(one, name) for one in found)
        for name in ("trials", "placements", "evictions", "tried")
    }
    return Plan(**{name: getattr(best, name) for name in Plan.__dataclass_fields__} | values)


class _Trials:
    """The three phases, for several n over the same statistics."""

    def __init__(self, statistics: Statistics, parameters: Mixed, psi: Floats) -> None:
        self.statistics, self.parameters, self.psi = statistics, parameters, psi
        self.limit = statistics.limit(parameters.theta)
        self.rows = Rows(statistics)

    @cached_property
    def entries(self) -> Positions:
        """Elements in the routing table, those with the least state first (η)."""
        given = self.statistics
        found = np.flatnonzero(given.placed != given.hashed)
        return found[np.argsort(given.state[found], kind="stable")]

    def plan(self, n: int) -> Plan:
        """Clean n entries, prepare, assign."""
        rows = self.rows.copy()
        if n:
            self.clean(rows, n)
        # An empty table, by itself or cleaned: all is where the hash puts it.
        hashed = rows.copy() if n == self.statistics.table_size and n else None
        loads = rows.loads()
        for d in np.flatnonzero(loads > self.limit).tolist():
            self.prepare(rows, d, float(loads[d]))
        counted = llfd(rows, self.psi, self.parameters.theta)
        statistics = self.statistics
        dearest = int(np.argmax(statistics.cost)) if len(statistics) else None
        too_dear = dearest is not None and statistics.cost[dearest] > self.limit
        made = Plan(
            statistics,
            rows.item,
            rows.destination,
            rows.number,
            self.parameters.theta,
            self.parameters.table,
            cleaned=n,
            placements=counted.placements,
            evictions=counted.evictions,
            tried=counted.tried,
            limiting=dearest if too_dear else counted.limiting,
        )
        if not made.balanced and (hashed is not None or (not n and made.moved.any())):
            before = statistics.loads() if hashed is None else hashed.loads()
            if made.loads.max() >= before.max():
                return self.unchanged(made, hashed)
        return made

    def unchanged(self, made: Plan, hashed: Rows | None) -> Plan:
        """What phase III began with, F itself or the hash: the plan found moves keys and leaves the fullest
        instance no lighter.
        """
        given = self.statistics
        if hashed is None:
            kept = {"item": np.arange(len(given)), "destination": given.placed, "number": given.counts}
        else:
            kept = {"item": hashed.item, "destination": hashed.destination, "number": hashed.number}
        return Plan(**{name: getattr(made, name) for name in Plan.__dataclass_fields__} | kept)

    def clean(self, rows: Rows, n: int) -> None:
        """Phase I."""
        entries = self.entries
        upto = np.cumsum(self.statistics.counts[entries])
        full = int(np.searchsorted(upto, n, side="right"))
        rest = n - (int(upto[full - 1]) if full else 0)
        chosen, numbers = entries[:full], self.statistics.counts[entries[:full]]
        if rest:
            chosen, numbers = entries[: full + 1], np.append(numbers, rest)
        rows.move(chosen, numbers, self.statistics.hashed[chosen])

    def prepare(self, rows: Rows, d: int, load: float) -> None:
        """Phase II for an overloaded instance. The dearest key that alone exceeds L_max stays: it would
        overload any instance.
        """
        there = np.flatnonzero(rows.destination == d)
        item = rows.item[there]
        order = np.lexsort((item, -self.psi[item]))
        there, item = there[order], item[order]
        cost, left = self.statistics.cost[item], rows.number[there].copy()
        if len(cost) and cost.max() > self.limit:
            left[int(np.argmax(cost))] -= 1
        useful = (cost > 0) & (left > 0)
        there, cost, left = there[useful], cost[useful], left[useful]
        sums = np.cumsum(cost * left)
        needed = load - self.limit
        last = int(np.searchsorted(sums, needed))
        if last < len(sums):
            rest = needed - (float(sums[last - 1]) if last else 0.0)
            left[last] = min(int(left[last]), max(1, int(np.ceil(rest / cost[last]))))
        rows.move(there[: last + 1], left[: last + 1], CANDIDATE)
