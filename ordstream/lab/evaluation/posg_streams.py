"""POSG's streams, and the theorem's expectation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ordstream._core.lab.posg_policies import FullKnowledge, LeastOutstanding, Posg, RoundRobin
from ordstream._core.lab.simulator import Policy
from ordstream.balance.posg import POSG
from ordstream.lab.simulation.queues import Outcome, run_operator

Floats = npt.NDArray[np.float64]
WINDOW = 1_024


@dataclass(frozen=True)
class Setting:
    """Parameters of one point of a figure; times in ms. `alpha` = 0: uniform."""

    alpha: float = 1.0
    provisioning: float = 1.0
    w_max: float = 64.0
    w_n: int = 64
    k: int = 5
    epsilon: float = 0.05
    m: int = 32_768


@dataclass(frozen=True)
class Stream:
    """One stream: the items of its tuples, their execution times, arrivals, and the tuples that a warm
    scheduler learnt from.
    """

    setting: Setting
    items: npt.NDArray[np.int64]
    times: Floats
    arrivals: Floats
    learning: npt.NDArray[np.int64]
    learning_times: Floats
    hash_seed: int

    def parameters(self) -> POSG:
        return POSG(self.setting.k, window=WINDOW, epsilon=self.setting.epsilon, seed=self.hash_seed)

    def posg(self, warm: bool) -> Posg:
        """POSG's two sides, to be run over this stream."""
        parameters = self.parameters()
        scheduler = parameters.scheduler()
        if warm:
            models = [parameters.times() for _ in range(self.setting.k)]
            for index, model in enumerate(models):
                model.update_many(
                    self.learning[index :: self.setting.k], self.learning_times[index :: self.setting.k]
                )
            scheduler.deploy(models)
        return Posg(scheduler.core, [parameters.instance(index).learner for index in range(self.setting.k)])

    def policy(self, algorithm: str) -> Policy:
        """A fresh policy for a name of `ALGORITHMS`."""
        if algorithm.startswith("POSG"):
            return self.posg(warm=algorithm == "POSG")
        if algorithm == "Full Knowledge":
            return FullKnowledge(self.times.reshape(len(self.times), -1))
        return RoundRobin() if algorithm == "Round-Robin" else LeastOutstanding()

    def run(self, policy: Policy) -> Outcome:
        return run_operator(policy, self.setting.k, self.arrivals, self.times, self.items)


def theorem_4_3(w_v: Floats, total: float, n: int, columns: int) -> Floats:
    """E{W_v/C_v} when all items are equally frequent: `total` is S, the sum of all items' execution
    times.
    """
    return np.asarray(
        (total - w_v) / (n - 1) - columns * (total - n * w_v) / (n * (n - 1)) * (1 - (1 - 1 / columns) ** n)
    )


BEFORE = (1.05, 1.025, 1.0, 0.975, 0.95)
AFTER = (0.90, 0.95, 1.0, 1.05, 1.10)


def changing(given: Stream, m: int, change: int) -> Stream:
    """The stream with execution times per instance, that change at tuple `change`."""
    factors = np.where(np.arange(m)[:, None] < change, np.array(BEFORE), np.array(AFTER))
    return replace(given, times=given.times[:, None] * factors)
