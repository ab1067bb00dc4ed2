import numpy as np
import numpy.typing as npt

from ordstream._core.balance.cost_learner import CostLearner
from ordstream._core.balance.count_min import TimeMatrices
from ordstream._core.balance.las import Check
from ordstream._core.lab.simulator import Policy

ESTIMATORS: dict[str, int]

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
