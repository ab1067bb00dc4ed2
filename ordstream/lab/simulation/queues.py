"""One operator in virtual time: k instances with FIFO queues, a policy asked per tuple (section V-A of
POSG).

The papers' figures come from here: what an experiment needs is a stream
(`ordstream.lab.simulation.streams`), the execution time of each tuple, and a policy. The loop is compiled
(`_core/lab/simulator`), so streams of 500,000 tuples take well under a second beside what the policy costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.lab.simulator import Policy, simulate
from ordstream.balance.keys import key_words
from ordstream.errors import PlanError

__all__ = ["Outcome", "Policy", "Routed", "run_operator"]


@dataclass(frozen=True)
class Outcome:
    """What became of each tuple. Times are in the unit of the arrivals.

    Attributes
    ----------
    arrival : float64 array (m)
    instance : int32 array (m)
        Who executed it; -1: dropped.
    start, end : float64 array (m)
        Of its execution; NaN: dropped.
    """

    arrival: npt.NDArray[np.float64]
    instance: npt.NDArray[np.int32]
    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]

    @property
    def admitted(self) -> npt.NDArray[np.bool_]:
        """Per tuple: not dropped."""
        return self.instance >= 0

    @property
    def completion(self) -> npt.NDArray[np.float64]:
        """Completion time end - arrival per tuple (queuing and execution; POSG, section II); NaN:
        dropped.
        """
        return np.asarray(self.end - self.arrival)

    @property
    def queuing(self) -> npt.NDArray[np.float64]:
        """start - arrival per tuple: the queuing latency (LAS); NaN: dropped."""
        return np.asarray(self.start - self.arrival)

    def mean_completion(self, first: int = 0) -> float:
        """L-bar: mean completion time of the admitted tuples from number `first` on; NaN when there are
        none.
        """
        found = self.completion[first:]
        found = found[self.admitted[first:]]
        return float(found.mean()) if len(found) else float("nan")

    def tuples(self, instances: int) -> npt.NDArray[np.int64]:
        """Tuples executed by each instance."""
        return np.bincount(self.instance[self.admitted], minlength=instances).astype(np.int64)

    def busy(self, instances: int) -> npt.NDArray[np.float64]:
        """Time each instance spent executing."""
        admitted = self.admitted
        spent = (self.end - self.start)[admitted]
        return np.bincount(self.instance[admitted], weights=spent, minlength=instances).astype(np.float64)


class Routed(Policy):
    """A policy for routes that are known in advance: tuple i goes to `instances[i]`.

    Parameters
    ----------
    instances : int array (m)
        As `Grouping.route` gives them; -1 drops.
    """

    def __init__(self, instances: npt.ArrayLike) -> None:
        self._routes: list[int] = np.asarray(instances, dtype=np.int32).tolist()

    def submit(self, i: int, word: int, now: float) -> int:
        return self._routes[i]


def run_operator(
    policy: Policy,
    instances: int,
    arrivals: npt.ArrayLike,
    times: npt.ArrayLike,
    keys: Any = None,
) -> Outcome:
    """Send a stream through a policy to the instances of one operator, in virtual time.

    Tuple i is executed by its instance after the tuples that came there before it: start = max(arrival, end
    of the one before), end = start + its time there. At one instant executions are reported first (lowest
    instance first), then messages arrive (in the order sent), then tuples.

    Parameters
    ----------
    policy : Policy
        `submit(i, word, now)` gives the instance of tuple i, or -1 to drop it; `executed` and `received`
        hear of executions and of messages sent by `send(at, tag)`. A subclass in Python, or in Cython of
        `ordstream._core.lab.simulator.Policy`.
    instances : int
        k >= 1.
    arrivals : float array (m)
        Arrival times, finite, not decreasing, in any unit.
    times : float array (m) or (m, k)
        Execution time of each tuple, the same on every instance or one per instance; finite, >= 0, in the
        unit of `arrivals`.
    keys : column of keys (m), optional
        What `key_words` accepts; the policy sees words. Default: the tuples' numbers.

    Returns
    -------
    Outcome

    Raises
    ------
    PlanError
        Shapes or values do not fit.
    ValueError
        The policy names an instance that does not exist, or sends a message into the past.
    """
    arrival = np.ascontiguousarray(arrivals, dtype=np.float64)
    time = np.ascontiguousarray(times, dtype=np.float64)
    if arrival.ndim != 1:
        raise PlanError(f"arrivals have one dimension, not {arrival.ndim}")
    if not 1 <= instances <= 1 << 20:
        raise PlanError(f"the number of instances must be 1 to 2^20, not {instances}")
    m = len(arrival)
    if time.shape not in ((m,), (m, instances)):
        raise PlanError(f"execution times of shape {time.shape} fit neither ({m},) nor ({m}, {instances})")
    if m and not (np.isfinite(arrival).all() and (np.diff(arrival) >= 0).all()):
        raise PlanError("arrivals must be finite and must not decrease")
    if not (np.isfinite(time).all() and (time >= 0).all()):
        raise PlanError("execution times must be finite and not negative")
    words = np.arange(m, dtype=np.uint64) if keys is None else key_words(keys)
    if len(words) != m:
        raise PlanError(f"{len(words)} keys but {m} arrivals")
    placed, start, end = simulate(
        policy, instances, arrival, time if time.ndim == 2 else time[:, None], words
    )
    return Outcome(arrival, placed, start, end)
