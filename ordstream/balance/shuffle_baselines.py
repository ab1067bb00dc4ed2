"""What POSG is compared with: Round-Robin, greedy with full knowledge, and the least outstanding tuples.

Same interface as POSG where it fits: `route(keys)`, in order, gives an int32 array. For the simulator each has a policy
(`ordstream._core.lab.posg_policies`). Source: POSG, section V-A (Round-Robin, Full Knowledge); least outstanding is the usual reactive
scheduler (POSG, section III).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import posg
from ordstream.balance.grouping import Instances
from ordstream.balance.keys import key_words
from ordstream.balance.posg import MAX_INSTANCES
from ordstream.errors import PlanError


def _checked(instances: int) -> int:
    if not 1 <= instances <= MAX_INSTANCES:
        raise PlanError(f"the number of instances must be 1 to 2^20, not {instances}")
    return instances


class RoundRobin:
    """Tuple i to instance (first + i) mod k.

    Parameters
    ----------
    instances : int
        k.
    first : int
        Of the first tuple.
    """

    splits_keys = True

    def __init__(self, instances: int, first: int = 0) -> None:
        self.instances = _checked(instances)
        self._next = first % instances

    def route(self, keys: Any) -> Instances:
        """Instances of a column of tuples, whatever their keys; goes on where the last call ended."""
        m = len(key_words(keys))
        routes: Instances = ((np.arange(m, dtype=np.int64) + self._next) % self.instances).astype(np.int32)
        self._next = (self._next + m) % self.instances
        return routes


class FullKnowledge:
    """Greedy Online Scheduler with the true execution times: to the arg min of C, the lowest of equals.

    No scheduler can know them; it is what POSG would do without error. Its makespan is at most (2 - 1/k) times the best
    possible (Theorem 4.2).

    Parameters
    ----------
    instances : int
        k.
    """

    splits_keys = True

    def __init__(self, instances: int) -> None:
        self.instances = _checked(instances)
        self._c = np.zeros(instances)

    @property
    def cumulated(self) -> npt.NDArray[np.float64]:
        """C: execution time of all tuples sent to each instance. A copy."""
        return self._c.copy()

    def route(self, times: npt.ArrayLike) -> Instances:
        """Instances of tuples with these execution times: (m), or (m, k) where instances differ.

        Raises
        ------
        PlanError
            Another shape, or a time that is negative or not finite.
        """
        known = np.ascontiguousarray(times, dtype=np.float64)
        if known.ndim == 1:
            known = known.reshape(-1, 1)
        if known.ndim != 2 or known.shape[1] not in (1, self.instances):
            raise PlanError(f"execution times of shape {np.shape(times)} fit neither (m,) nor (m, {self.instances})")
        if not (np.isfinite(known).all() and (known >= 0).all()):
            raise PlanError("execution times must be finite and not negative")
        return posg.greedy(known, self.instances, self._c)


class LeastOutstanding:
    """To the instance with the fewest tuples sent and not yet reported as executed, the lowest of equals.

    Parameters
    ----------
    instances : int
        k.
    """

    splits_keys = True

    def __init__(self, instances: int) -> None:
        self.instances = _checked(instances)
        self._outstanding = np.zeros(instances)

    @property
    def outstanding(self) -> npt.NDArray[np.int64]:
        """Tuples per instance. A copy."""
        return self._outstanding.astype(np.int64)

    def route(self, keys: Any) -> Instances:
        """Instances of a column of tuples, whatever their keys; all count as outstanding afterwards."""
        # "Fewest tuples" is greedy with one unit of work per tuple: exact in float64 up to 2^53.
        return posg.greedy(np.ones((len(key_words(keys)), 1)), self.instances, self._outstanding)

    def executed(self, instance: int, tuples: int = 1) -> None:
        """Instance `instance` reports executed tuples.

        Raises
        ------
        ValueError
            There is no such instance, or it has fewer outstanding.
        """
        if not 0 <= instance < self.instances:
            raise ValueError(f"instance must be 0 to {self.instances - 1}, not {instance}")
        if not 0 <= tuples <= self._outstanding[instance]:
            raise ValueError(f"instance {instance} reports {tuples} executed tuples; {int(self._outstanding[instance])} are outstanding")
        self._outstanding[instance] -= tuples
