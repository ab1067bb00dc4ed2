"""What DKG's experiments share: their streams, all maps of one stream, and tables over many streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.baselines import optimal_approximation, single_instance, universal
from ordstream.balance.dkg import DKG, Cost, cost_function
from ordstream.balance.grouping import KeyMap
from ordstream.balance.metrics import deviation, imbalance, tuple_loads
from ordstream.balance.space_saving import SpaceSaving
from ordstream.lab.evaluation.experiment import (
    Curve,
)
from ordstream.lab.simulation import streams

N, M, VALIDATION = 10_000, 80_000, 20_000
THETA, MU = 0.1, 2
KS = tuple(range(1, 11))


@dataclass(frozen=True)
class Stream:
    """One stream: labels of the items, and the items of the training and the validation tuples in order."""

    labels: npt.NDArray[np.int64]
    training: npt.NDArray[np.int64]
    validation: npt.NDArray[np.int64]
    hash_seed: int

    def loads(self, key_map: KeyMap, cost: Cost = "linear") -> npt.NDArray[np.float64]:
        """Load of each instance by the validation tuples."""
        frequency = np.bincount(self.validation, minlength=len(self.labels)).astype(np.float64)
        return tuple_loads(key_map.route(self.labels), key_map.instances, cost_function(cost)(frequency))


def stream(seed: int, number: int, alpha: float) -> Stream:
    """Stream `number` of a seed: Zipf-alpha."""
    rng = np.random.default_rng([seed, number])
    labels = streams.relabelling(N, 100 * N, rng)
    items = streams.zipf(M + VALIDATION, N, alpha, rng)
    return Stream(labels, items[:M], items[M:], int(rng.integers(2**62)))


class Trainer:
    """Builds DKG's maps for one stream; shares what does not depend on k, µ and variant."""

    def __init__(self, given: Stream, m: int = M) -> None:
        self.stream, self.m = given, m
        self.training = given.labels[given.training[:m]]
        self.frequency = np.bincount(given.training[:m], minlength=len(given.labels))
        self._summaries: dict[float, SpaceSaving] = {}

    def summary(self, epsilon: float) -> SpaceSaving:
        if epsilon not in self._summaries:
            self._summaries[epsilon] = SpaceSaving(epsilon)
            self._summaries[epsilon].update_many(self.training)
        return self._summaries[epsilon]

    def build(self, k: int, **parameters: Any) -> KeyMap:
        """The map that learning from the m training tuples gives."""
        chosen = DKG(m=self.m, seed=self.stream.hash_seed, **{"theta": THETA, "mu": MU, **parameters})
        learner = chosen.learner(k)
        learner.summary = self.summary(chosen.counter_error)
        cells = learner.hashes.cells(self.stream.labels.view(np.uint64))
        learner.bucket_counts = np.bincount(
            cells, weights=self.frequency, minlength=len(learner.bucket_counts)
        ).astype(np.int64)
        return learner.build()


def measure_over_k(seed: int, number: int, alpha: float, cost: Cost) -> npt.NDArray[np.float64]:
    """(λ, σ) of each algorithm for each k: array (len(KS), 4, 2)."""
    given = stream(seed, number, alpha)
    trainer = Trainer(given)
    validation = given.labels[given.validation]
    found = []
    for k in KS:
        maps = [
            optimal_approximation(validation, k, cost, given.hash_seed),
            universal(k, given.hash_seed),
            trainer.build(k, cost=cost),
            single_instance(k),
        ]
        loads = [given.loads(key_map, cost) for key_map in maps]
        found.append([(imbalance(one), deviation(one)) for one in loads])
    return np.array(found)


@dataclass(frozen=True)
class Spread:
    """Minimum, mean and maximum over streams of values with one name, by x."""

    low: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: npt.NDArray[np.float64]) -> Spread:
        """`values`: (streams, len(x))."""
        return cls(values.min(axis=0), values.mean(axis=0), values.max(axis=0))


def spreads(found: list[npt.NDArray[np.float64]], names: tuple[str, ...], metric: int) -> dict[str, Spread]:
    values = np.array(found)
    return {name: Spread.of(values[:, :, j, metric]) for j, name in enumerate(names)}


def wide(x_name: str, xs: Any, by_name: dict[str, Spread]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows: x, then Best Case, Mean and Worst Case of each algorithm."""
    columns = [x_name] + [
        f"{name} {part}" for name in by_name for part in ("Best Case", "Mean", "Worst Case")
    ]
    rows = [
        [x] + [float(part[i]) for one in by_name.values() for part in (one.low, one.mean, one.high)]
        for i, x in enumerate(xs)
    ]
    return columns, rows


def curves(xs: Any, by_name: dict[str, Spread], worst: tuple[str, ...]) -> list[Curve]:
    made = []
    for name, one in by_name.items():
        if name in worst:
            made.append(Curve(f"{name} Mean", xs, one.mean, one.low, one.high))
            made.append(Curve(f"{name} Worst Case", xs, one.high, style="--s"))
        else:
            made.append(Curve(name, xs, one.mean))
    return made
