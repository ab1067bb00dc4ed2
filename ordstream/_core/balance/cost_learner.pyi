import numpy as np
import numpy.typing as npt

from ordstream._core.balance.count_min import TimeMatrices

class CostLearner:
    matrices: TimeMatrices
    window: int
    tolerance: float
    stabilizing: int
    eta: float
    sent: int
    def __init__(self, matrices: TimeMatrices, window: int = 1024, tolerance: float = 0.05) -> None: ...
    def update(self, word: int, time: float) -> bool: ...
    def update_many(
        self, words: npt.NDArray[np.uint64], times: npt.NDArray[np.float64]
    ) -> list[TimeMatrices]: ...
    def reset(self) -> None: ...
