"""What the papers' groupings are compared with, each once.

Of keys (DKG, sections 5.1 and 6): Modulo, Universal, O-apx, SIA, PKG; they have the interface of
`ordstream.balance.grouping.Grouping`. Of tuples whatever their key (POSG, sections III and V-A):
Round-Robin, greedy with full knowledge, and the least outstanding tuples; `route(keys)`, in order, gives
an int32 array. The simulator's forms of the latter are policies of the laboratory
(`ordstream._core.lab.posg_policies`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import hashing, key_route, posg
from ordstream.balance.dkg import Cost, cost_function, schedule
from ordstream.balance.grouping import Instances, KeyMap
from ordstream.balance.keys import key_words
from ordstream.balance.parameters import MOST_INSTANCES
from ordstream.errors import PlanError


def _checked(instances: int, most: int = 2**31 - 1) -> int:
    if not 1 <= instances <= most:
        up_to = "at least 1" if most > MOST_INSTANCES else "1 to 2^20"
        raise PlanError(f"the number of instances must be {up_to}, not {instances}")
    return instances


class Modulo:
    """key mod k: what many systems do. An integer key as it is (negative ones as unsigned 64-bit), others by
    their word.

    Parameters
    ----------
    instances : int
        k.
    """

    splits_keys = False

    def __init__(self, instances: int) -> None:
        self.instances = _checked(instances)

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple."""
        return (key_words(keys) % np.uint64(self.instances)).astype(np.int32)


def universal(instances: int, seed: int = 0) -> KeyMap:
    """Universal: a hash function from keys to the k instances, drawn from a 2-universal family by `seed`."""
    return KeyMap(instances, hashing.TwoUniversal(1, _checked(instances), seed), np.arange(instances))


def single_instance(instances: int) -> KeyMap:
    """SIA: every tuple to instance 0. λ is 100 (k - 1): the worst there is."""
    return KeyMap(_checked(instances), hashing.TwoUniversal(1, 1), [0])


def optimal_approximation(keys: Any, instances: int, cost: Cost = "linear", seed: int = 0) -> KeyMap:
    """O-apx: LPT over the exact frequencies of every key of the very tuples to be routed.

    Its largest load is at most (4/3 - 1/(3k)) times that of the best assignment of whole keys. Ties: by key
    word, then the lowest instance. A key that is not in `keys` goes where `universal` with the seed would
    send it.

    Parameters
    ----------
    keys : column of keys
        The tuples to be routed.
    instances : int
        k.
    cost : "linear", "quadratic" or a function
        As for `DKG`.
    """
    words, counts = np.unique(key_words(keys), return_counts=True)
    placed, _ = schedule(cost_function(cost)(counts.astype(np.float64)), _checked(instances))
    return KeyMap.of_words(
        instances, hashing.TwoUniversal(1, instances, seed), np.arange(instances), words, placed
    )


class PKG:
    """Partial key grouping (Nasir et al., ICDE 2015): the less loaded of the two instances that two hash
    functions give a key.

    One object per source: load is what this source has sent. Ties go to the first choice; the two may
    coincide. A key is split over at most two instances, so the operator's partial results must be merged.

    Parameters
    ----------
    instances : int
        k.
    seed : int
        Of the two functions (MurmurHash3's finaliser with two seeds).
    """

    splits_keys = True

    def __init__(self, instances: int, seed: int = 0) -> None:
        self.instances = _checked(instances)
        self._seed = seed & 0xFFFFFFFFFFFFFFFF
        self._received = np.zeros(instances, dtype=np.int64)

    @property
    def received(self) -> npt.NDArray[np.int64]:
        """Tuples sent to each instance so far."""
        return self._received.copy()

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple, in order; counts them."""
        return key_route.route_two_choices(key_words(keys), self._received, self._seed)


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
        self.instances = _checked(instances, MOST_INSTANCES)
        self._next = first % instances

    def route(self, keys: Any) -> Instances:
        """Instances of a column of tuples, whatever their keys; goes on where the last call ended."""
        m = len(key_words(keys))
        routes: Instances = ((np.arange(m, dtype=np.int64) + self._next) % self.instances).astype(np.int32)
        self._next = (self._next + m) % self.instances
        return routes


class FullKnowledge:
    """Greedy Online Scheduler with the true execution times: to the arg min of C, the lowest of equals.

    No scheduler can know them; it is what POSG would do without error. Its makespan is at most (2 - 1/k)
    times the best possible (Theorem 4.2).

    Parameters
    ----------
    instances : int
        k.
    """

    splits_keys = True

    def __init__(self, instances: int) -> None:
        self.instances = _checked(instances, MOST_INSTANCES)
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
            raise PlanError(
                f"execution times of shape {np.shape(times)} fit neither (m,) nor (m, {self.instances})"
            )
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
        self.instances = _checked(instances, MOST_INSTANCES)
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
            raise ValueError(
                f"instance {instance} reports {tuples} executed tuples; {int(self._outstanding[instance])} "
                "are outstanding"
            )
        self._outstanding[instance] -= tuples
