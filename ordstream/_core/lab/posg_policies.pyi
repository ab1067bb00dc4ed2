import numpy as np
import numpy.typing as npt

from ordstream._core.balance.cost_learner import CostLearner
from ordstream._core.balance.posg import Scheduler
from ordstream._core.lab.simulator import Policy

class Posg(Policy):
    scheduler: Scheduler
    learners: list[CostLearner]
    delay: float
    run_from: int
    messages: int
    matrices_at: list[tuple[int, int]]
    def __init__(self, scheduler: Scheduler, learners: list[CostLearner], delay: float = 0.0) -> None: ...

class RoundRobin(Policy): ...

class FullKnowledge(Policy):
    def __init__(self, times: npt.NDArray[np.float64]) -> None: ...

class LeastOutstanding(Policy):
    delay: float
    def __init__(self, delay: float = 0.0) -> None: ...
