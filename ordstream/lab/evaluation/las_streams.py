"""What LAS's experiments share: their streams, one run of a shedder, and tables over many streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance.cost_learner import CostLearner
from ordstream._core.lab.las_policy import Shedding
from ordstream.balance.las import AverageLatency, MaximumLatency
from ordstream.balance.sketches import ExecutionTimes
from ordstream.lab.evaluation.experiment import (
    Curve,
    Options,
)
from ordstream.lab.simulation import streams
from ordstream.lab.simulation.queues import Outcome, run_operator

Floats = npt.NDArray[np.float64]
FULL, LAS, STRAW, NOTHING = "Full Knowledge", "LAS", "Straw-Man", "no shedding"
ESTIMATORS = {FULL: "full-knowledge", LAS: "las", STRAW: "straw-man", NOTHING: "none"}
N, ALPHA, CLASSES = 4_096, 1.0, 64
M = 100_000
WINDOW, MU, EPSILON, DELTA = 1_024, 0.05, 0.05, 0.1
TAU = 200.0
#: Admitted tuples between two synchronisations; las-tau shows what 1,024 and none but after new matrices
#: cost.
SYNC = 64


@dataclass(frozen=True)
class Stream:
    """A stream in front of one operator: key, execution time and arrival of each tuple."""

    keys: npt.NDArray[np.int64]
    times: Floats
    arrivals: Floats


@dataclass(frozen=True)
class Setting:
    """Parameters of a shedder."""

    tau: float = TAU
    maximum: bool = False
    epsilon: float = EPSILON
    window: int = WINDOW
    sync_every: int = SYNC
    warm: Stream | None = None  # what a saved model was learnt on


def shed(stream: Stream, algorithm: str, setting: Setting, estimates: Floats | None = None) -> Outcome:
    """Run a stream through a shedder and its operator; `estimates` (m) gets what each tuple was expected
    to wait.
    """
    estimator = ESTIMATORS[algorithm]
    goal = (MaximumLatency if setting.maximum else AverageLatency)(setting.tau)
    further: dict[str, Any] = {}
    if estimator in ("las", "straw-man"):
        model = ExecutionTimes(setting.epsilon, DELTA)
        learner = CostLearner(ExecutionTimes(setting.epsilon, DELTA).matrices, setting.window, MU)
        if setting.warm is not None:
            model.update_many(setting.warm.keys, setting.warm.times)
        further = {"learner": learner, "model": model.matrices, "sync_every": setting.sync_every}
    elif estimator == "full-knowledge":
        further = {"known": stream.times}
    policy = Shedding(estimator, goal.compiled(), estimates=estimates, **further)
    return run_operator(policy, 1, stream.arrivals, stream.times, stream.keys)


def sizes(options: Options, m: int | None, tuples: int = M, keys: int = N) -> tuple[int, int]:
    """(m, n): those asked for, else the experiment's own."""
    return m or options.tuples or tuples, options.keys or keys


def zipf_stream(rng: np.random.Generator, m: int, load: float, n: int = N) -> tuple[Stream, Stream]:
    """A stream in POSG's setting, and one to learn a model from: same keys and times, other tuples."""
    cost = streams.execution_times(n, np.arange(1, CLASSES + 1), rng)
    learnt = streams.zipf(4 * WINDOW, n, ALPHA, rng)
    keys = streams.zipf(m, n, ALPHA, rng)
    gap = streams.provisioned_gap(float(cost[keys].mean()), 1, 1.0 / load)
    return (
        Stream(keys, cost[keys], streams.even_arrivals(m, gap)),
        Stream(learnt, cost[learnt], streams.even_arrivals(len(learnt), gap)),
    )


def figures(outcome: Outcome) -> tuple[float, float, float]:
    """Dropped share, mean queueing latency and its 99th percentile."""
    waited = outcome.queuing[outcome.admitted]
    return 1.0 - float(outcome.admitted.mean()), float(waited.mean()), float(np.percentile(waited, 99))


def spread(found: list[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Mean, minimum and maximum over streams."""
    values = np.array(found)
    return values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def curves(
    xs: Any, found: list[Any], names: tuple[str, ...], figure: int, scale: float = 1.0
) -> list[Curve]:
    """One curve per algorithm of arrays (x, algorithm, figure) per stream."""
    mean, low, high = spread(found)
    return [
        Curve(name, xs, mean[:, j, figure] * scale, low[:, j, figure] * scale, high[:, j, figure] * scale)
        for j, name in enumerate(names)
    ]


def rows_over(
    x: str, xs: Any, found: list[Any], names: tuple[str, ...]
) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the CSV: means over streams."""
    mean, _, _ = spread(found)
    labels = ("dropped", "mean latency ms", "p99 latency ms")
    columns = [x] + [f"{name} {label}" for name in names for label in labels]
    return columns, [[at, *mean[i].ravel().tolist()] for i, at in enumerate(xs)]
