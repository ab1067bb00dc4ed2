"""What the controller knows of the keys when it plans: cost, state size, hash destination and present
destination (section 2.1).

One element stands for one key, or in the compact form (section 4) for `number` keys that agree in all of
these.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError

Floats = npt.NDArray[np.float64]
Destinations = npt.NDArray[np.int32]

#: Relative room for sums of floats taken in another order, in every comparison of a load with L_max.
ROUNDING = 1e-12

#: Times the sum of all that floats must have room for: L_max is above it, and costs may be rounded up.
ROOM = 4.0


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of one interval, by key.

    Parameters
    ----------
    cost : float array (K)
        c(k) >= 0, what the key's tuples of the last interval cost, in any unit.
    state : float array (K)
        S(k, w) >= 0, bytes (or tuples) of state over the last w intervals.
    hashed : int array (K)
        h(k).
    current : int array (K)
        F(k). Default: `hashed`, an empty routing table.
    instances : int
        N_D: destinations lie in 0..N_D - 1.
    number : int array (K), optional
        How many keys each element stands for, at least 1. Default: 1.
    fixed : float array (N_D), optional
        Load of each instance that no element stands for, keys that were not told one by one: it stays
        where it is. Default: none.

    Raises
    ------
    PlanError
        Lengths differ, a number is negative or not finite, or a destination lies outside 0..N_D - 1.
    """

    cost: Floats
    state: Floats
    hashed: Destinations
    instances: int
    current: Destinations | None = None
    number: npt.NDArray[np.int64] | None = None
    fixed: Floats | None = None

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise PlanError(f"the number of instances must be at least 1, not {self.instances}")
        for name in ("cost", "state"):
            _put(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        _put(self, "hashed", _destinations("hashed", self.hashed, self.instances))
        given = self.hashed if self.current is None else self.current
        _put(self, "current", _destinations("current", given, self.instances))
        if self.number is not None:
            number = np.asarray(self.number)
            if number.dtype.kind not in "iu" or (len(number) and number.min() < 1):
                raise PlanError("an element stands for a whole number of keys, at least 1")
            _put(self, "number", number.astype(np.int64))
        if self.fixed is not None:
            fixed = np.asarray(self.fixed, dtype=np.float64)
            if fixed.shape != (self.instances,) or not (np.isfinite(fixed) & (fixed >= 0)).all():
                raise PlanError(
                    f"fixed needs one load, finite and not negative, for each of {self.instances} instances"
                )
            _put(self, "fixed", fixed)
        columns = (self.cost, self.state, self.hashed, self.placed, self.counts)
        if any(column.shape != (len(self.cost),) for column in columns):
            raise PlanError(
                "the columns of the statistics have different lengths: "
                f"{[column.shape for column in columns]}"
            )
        for name, column in (("cost", self.cost), ("state", self.state)):
            wrong = np.flatnonzero(~(np.isfinite(column) & (column >= 0)))
            if len(wrong):
                raise PlanError(
                    f"the {name} of the key at {wrong[0]} is {column[wrong[0]]}; it must be finite and not "
                    "negative"
                )
            # a planner adds these up, and would go on with infinite loads
            with np.errstate(over="ignore"):
                whole = float((column * self.counts).sum()) * ROOM
                if name == "cost" and self.fixed is not None:
                    whole += float(self.fixed.sum()) * ROOM
            if not np.isfinite(whole):
                raise PlanError(f"the {name} of all keys together is not finite; give it in a larger unit")

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def placed(self) -> Destinations:
        """F(k)."""
        assert self.current is not None  # __post_init__ puts one
        return self.current

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Keys per element."""
        return np.ones(len(self.cost), dtype=np.int64) if self.number is None else self.number

    @cached_property
    def weight(self) -> Floats:
        """Cost of each element: c times its number of keys."""
        return self.cost if self.number is None else self.cost * self.number

    @property
    def total(self) -> float:
        """Σ c."""
        return float(self.weight.sum()) + (0.0 if self.fixed is None else float(self.fixed.sum()))

    @property
    def mean(self) -> float:
        """L̄, the mean load of the instances."""
        return self.total / self.instances

    @cached_property
    def total_state(self) -> float:
        """Σ S(k, w)."""
        return float((self.state * self.counts).sum())

    @property
    def table_size(self) -> int:
        """N_A of F: keys whose destination is not their hash destination."""
        return int(self.counts[self.placed != self.hashed].sum())

    def limit(self, theta_max: float) -> float:
        """L_max = (1 + θ_max) L̄, with room for rounding."""
        return (1 + theta_max) * self.mean * (1 + ROUNDING)

    def loads(self, destination: npt.NDArray[Any] | None = None) -> Floats:
        """L(d) of each instance under F, or under other destinations."""
        to = self.placed if destination is None else destination
        return self.on_top(summed_by(to, self.weight, self.instances))

    def on_top(self, loads: Floats) -> Floats:
        """Loads of the elements with those that stay."""
        return loads if self.fixed is None else loads + self.fixed

    def theta(self, destination: npt.NDArray[Any] | None = None) -> float:
        """max L(d)/L̄ - 1, the overload of the fullest instance (only overload is bounded, section 3); 0
        without load.
        """
        return overload(self.loads(destination))

    def gamma(self, beta: float) -> Floats:
        """γ(k, w) = c(k)^β / S(k, w), the migration priority index (section 3.2). Without cost 0, with
        cost and no state infinite.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.cost > 0, self.cost**beta / self.state, 0.0)


def summed_by(instance: npt.NDArray[Any], weights: Floats, instances: int) -> Floats:
    """Sum of the weights at each instance; zeros, not an array of integers, where there is none."""
    return np.bincount(instance, weights=weights, minlength=instances).astype(np.float64)


def overload(loads: Floats) -> float:
    """max/mean - 1 of loads; 0 where there is no load."""
    mean = loads.mean()
    return float(loads.max() / mean - 1) if mean > 0 else 0.0


class StateWindow:
    """S(k, w): sum of each key's state over the last w intervals (section 2.1). One writer.

    Parameters
    ----------
    window : int
        w >= 1.
    """

    def __init__(self, window: int = 1) -> None:
        if window < 1:
            raise PlanError(f"the window w must be at least 1 interval, not {window}")
        self._held: deque[Floats] = deque(maxlen=window)

    def add(self, state: npt.ArrayLike) -> Floats:
        """Take in s_i(k) of one more interval, for the same keys as before; returns S(k, w)."""
        given = np.asarray(state, dtype=np.float64)
        if self._held and given.shape != self._held[0].shape:
            raise PlanError(f"an interval has {len(given)} keys, those before it {len(self._held[0])}")
        self._held.append(given)
        return np.asarray(np.sum(self._held, axis=0))


def _put(of: object, name: str, value: Any) -> None:
    object.__setattr__(of, name, value)


def _destinations(name: str, given: Any, instances: int) -> Destinations:
    found = np.asarray(given)
    if len(found) and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= instances):
        raise PlanError(f"destinations ({name}) must be whole numbers from 0 to {instances - 1}")
    return found.astype(np.int32)
