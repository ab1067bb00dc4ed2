from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ordstream._core.balance.count_min import TimeMatrices
from ordstream._core.balance.hashing import TwoUniversal

SCHEDULER_STATES: tuple[str, str, str, str]

class Scheduler:
    hashes: TwoUniversal
    k: int
    resync: int
    routed: int
    epoch: int
    received: int
    synchronised: int
    c_hat: npt.NDArray[np.float64]
    frequency: npt.NDArray[np.int64]
    work: npt.NDArray[np.float64]
    total_time: npt.NDArray[np.float64]
    mean_time: npt.NDArray[np.float64]
    version: npt.NDArray[np.int64]
    delta: npt.NDArray[np.float64]
    def __init__(self, hashes: TwoUniversal, k: int, resync: int, first: int = 0) -> None: ...
    @property
    def state(self) -> str: ...
    def receive_matrices(self, op: int, version: int, m: TimeMatrices) -> None: ...
    def receive_reply(self, op: int, epoch: int, difference: float) -> None: ...
    def deploy(self, models: Sequence[TimeMatrices], c_hat: npt.NDArray[np.float64]) -> None: ...
    def route(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]: ...
    def take_requests(self) -> list[tuple[int, int, int, float]]: ...
    def estimates(self, words: npt.NDArray[np.uint64], op: int) -> npt.NDArray[np.float64]: ...
    def copy(self) -> Scheduler: ...

def greedy(times: npt.NDArray[np.float64], k: int, c: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]: ...
