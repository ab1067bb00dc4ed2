import numpy as np
import numpy.typing as npt

from ordstream._core.balance.cost_learner import CostLearner
from ordstream._core.balance.count_min import TimeMatrices
from ordstream._core.lab.simulator import Policy

ESTIMATORS: dict[str, int]
KINDS: dict[str, int]

class Check:
    limit: float
    latency_sum: float
    admitted: int
    dropped: int
    def __init__(self, kind: str, limit: float, most_dropped: float = 1.0) -> None: ...
    def drops(self, latency: float) -> bool: ...
    def admit(self, latency: float) -> None: ...
    def drop(self) -> None: ...

class Balance:
    informed: bool
    cumulated: float
    blind: int
    def __init__(self, sync_every: int = 1024) -> None: ...
    def backlog(self, elapsed: float) -> float: ...
    def admit(self, latency: float, elapsed: float, time: float) -> float | None: ...
    def answer(self, carried: float, elapsed: float) -> bool: ...
    def renewed(self) -> None: ...

class Shedding(Policy):
    check: Check
    learner: CostLearner | None
    cumulated: float
    blind: int
    updates: int
    synchronised: int
    informed_from: int
    def __init__(
        self,
        estimator: str,
        check: Check,
        *,
        learner: CostLearner | None = None,
        model: TimeMatrices | None = None,
        known: npt.NDArray[np.float64] | None = None,
        sync_every: int = 1024,
        delay: float = 0.0,
        estimates: npt.NDArray[np.float64] | None = None,
    ) -> None: ...
