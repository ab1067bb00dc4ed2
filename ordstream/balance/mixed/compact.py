"""Compact representation: keys that agree in everything a planner looks at become one six-field record
(section 4).

A record is (d', d, d_h, v_c, v_S, #): next destination or none, present destination, hash destination,
discretised cost and state size of one key, number of keys. Equal but for # they are merged. Plans are made
from records as from keys (`Statistics.number`); afterwards concrete keys are picked among those a record
stands for, by the criterion ψ over their true values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.mixed.discretise import discretised
from ordstream.balance.mixed.planners import Mixed, Plan, mixed
from ordstream.balance.mixed.statistics import ROUNDING, Floats, Statistics, summed_by
from ordstream.errors import PlanError

#: The six fields, as they go to the controller: 36 bytes a record. `to` is -1 where no destination is
#: chosen.
RECORD = np.dtype(
    [("to", "<i4"), ("at", "<i4"), ("hashed", "<i4"), ("cost", "<f8"), ("state", "<f8"), ("number", "<i8")]
)

#: What one key takes on the way to the controller without records: its word, cost and state size.
KEY_BYTES = 24
#: Of `unit_of`: parts of the smallest value that may be the unit, and values that most of them fail at.
PARTS, FEW = 1_024, 64


def merged(records: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Records that agree in all but # as one, with the sum of #; sorted by the other five fields."""
    if not len(records):
        return records.copy()
    fields = ("to", "at", "hashed", "cost", "state")
    ordered = records[np.lexsort([records[name] for name in reversed(fields)])]
    different = np.zeros(len(ordered), dtype=bool)
    different[0] = True
    for name in fields:
        different[1:] |= ordered[name][1:] != ordered[name][:-1]
    starts = np.flatnonzero(different)
    result: npt.NDArray[Any] = ordered[starts].copy()
    result["number"] = np.add.reduceat(ordered["number"], starts)
    return result


class Compact:
    """The records of an interval, and which keys each stands for.

    Each instance discretises the costs and state sizes of its own keys, so that its own load is estimated
    within R units of cost (`discretised`, `unit_of`).

    Parameters
    ----------
    statistics : Statistics
        By key.
    degree : int
        R = 2^r; 0: values as they are ("original key space" has a record for each value that occurs).

    Attributes
    ----------
    statistics : Statistics
        By key, as given.
    records : Statistics
        One element per record; costs, and the load that stays, in units of `cost_unit`, states of
        `state_unit`. So a plan over them does not depend on the units that were given.
    record_of : int array (K)
        Record of each key.
    cost, state : float arrays (K)
        Of each key, discretised, in these units.
    cost_unit, state_unit : float
        `unit_of` the costs and the states; 1.0 where R is 0.

    Raises
    ------
    PlanError
        The statistics are those of records already, or R is not a power of 2.
    """

    def __init__(self, statistics: Statistics, degree: int) -> None:
        if statistics.number is not None:
            raise PlanError("these statistics are of records already")
        self.statistics, self.degree = statistics, degree
        cost, state = statistics.cost, statistics.state
        self.cost_unit = self.state_unit = 1.0
        if degree:
            self.cost_unit, self.state_unit = unit_of(cost), unit_of(state)
            cost = by_instance(statistics, in_units(cost, self.cost_unit), degree)
            state = by_instance(statistics, in_units(state, self.state_unit), degree)
        self.cost, self.state = cost, state
        codes = statistics.placed.astype(np.int64) * statistics.instances + statistics.hashed
        for column in (cost, state):
            values, code = np.unique(column, return_inverse=True)
            codes = codes * len(values) + code
            # kept small: the product of all ranges need not fit 64 bits
            _, codes = np.unique(codes, return_inverse=True)
        first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]
        self.record_of = codes
        self.records = Statistics(
            cost[first],
            state[first],
            statistics.hashed[first],
            statistics.instances,
            statistics.placed[first],
            np.bincount(codes, minlength=len(first)).astype(np.int64),
            None if statistics.fixed is None else statistics.fixed / self.cost_unit,
        )

    def __len__(self) -> int:
        return len(self.records)

    @property
    def nbytes(self) -> int:
        """Bytes of all records on the way to the controller."""
        return len(self) * RECORD.itemsize

    def as_array(self, plan: Plan | None = None) -> npt.NDArray[Any]:
        """The six fields (`RECORD`) as they are reported (d' = d), or after a plan."""
        given = self.records
        item = np.arange(len(given)) if plan is None else plan.item
        found = np.empty(len(item), dtype=RECORD)
        found["to"] = given.placed if plan is None else plan.destination
        found["at"], found["hashed"] = given.placed[item], given.hashed[item]
        found["cost"], found["state"] = given.cost[item], given.state[item]
        found["number"] = given.counts if plan is None else plan.number
        return merged(found)

    def estimation_error(self, destination: npt.NDArray[Any]) -> Floats:
        """|L̂(d) - L(d)| / L(d) of each instance with load under destinations by key, where L̂ is by the
        discretised costs. Both have the load that stays (`Statistics.fixed`).
        """
        true = self.statistics.loads(destination)
        of_keys = summed_by(destination, self.cost, self.statistics.instances)
        estimated = self.statistics.on_top(of_keys * self.cost_unit)
        some = true > 0
        return np.asarray(np.abs(estimated - true)[some] / true[some])

    def expand(self, plan: Plan, psi: Floats) -> Plan:
        """The plan over keys that a plan over `records` stands for.

        Parameters
        ----------
        plan : Plan
        psi : float array (K)
            The criterion by key: of those that a record stands for, the ones with the largest move.

        Returns
        -------
        Plan
            With the true loads, table and migration cost. Its discretised loads and its table size are those
            of `plan`.
        """
        if plan.statistics is not self.records:
            raise PlanError("this plan was not made from these records")
        staying = ~plan.moved
        rows = np.lexsort((plan.destination, staying, plan.item))
        keys = np.lexsort((-psi, self.record_of))
        destination = np.empty(len(self.statistics), dtype=np.int32)
        destination[keys] = np.repeat(plan.destination[rows], plan.number[rows])
        limiting = plan.limiting
        if limiting is not None:
            its = np.flatnonzero(self.record_of == limiting)
            limiting = int(its[np.argmax(self.statistics.cost[its])])
        given = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
        by_key = {
            "statistics": self.statistics,
            "item": np.arange(len(self.statistics)),
            "destination": destination,
            "number": self.statistics.counts,
            "limiting": limiting,
        }
        return Plan(**{**given, **by_key})


def unit_of(values: Floats) -> float:
    """The unit that values are discretised in, so that the smallest above 0 is at least 1 ("after
    normalization", section 4.2): of values that are multiples of one the largest such, at most `PARTS` in
    the smallest; of others the smallest. So counts stay whole numbers, whatever a count is told in.

    Parameters
    ----------
    values : float array
        Finite and not negative.

    Returns
    -------
    float
        1.0 where no value is above 0.
    """
    some = np.unique(values[values > 0])
    if not len(some):
        return 1.0
    of_least = some / some[0]
    tried = of_least[:FEW, np.newaxis] * np.arange(1, PARTS + 1)
    for parts in (np.flatnonzero(_near(tried, np.rint(tried)).all(axis=0)) + 1).tolist():
        if _near(of_least * parts, np.rint(of_least * parts)).all():
            return float(some[0]) / parts
    return float(some[0])


def _near(values: Floats, whole: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(values - whole) <= ROUNDING * whole)


def plan_compact(statistics: Statistics, parameters: Mixed | None = None) -> Plan:
    """Mixed over the records of R = `parameters.degree`, expanded to keys (section 4.1); loads and θ of the
    plan are the true ones.

    They may exceed the bound that the discretised loads keep, the more the larger R is. The units of costs
    and of states do not matter.

    Parameters
    ----------
    statistics : Statistics
        By key.
    parameters : Mixed, optional

    Raises
    ------
    PlanError
        The statistics are those of records.
    """
    chosen = Mixed() if parameters is None else parameters
    compact = Compact(statistics, chosen.degree)
    return compact.expand(mixed(compact.records, chosen), statistics.gamma(chosen.beta))


def in_units(values: Floats, unit: float) -> Floats:
    """Values in a unit; multiples of it are whole, whatever the last bit says."""
    found = values / unit
    whole = np.rint(found)
    return np.where(_near(found, whole), whole, found)


def by_instance(statistics: Statistics, values: Floats, degree: int) -> Floats:
    """Values discretised by each key's present instance on its own."""
    order = np.argsort(statistics.placed, kind="stable")
    bounds = np.searchsorted(statistics.placed[order], np.arange(statistics.instances + 1))
    found = np.empty(len(values))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found[order[start:end]] = discretised(values[order[start:end]], degree)
    return found
