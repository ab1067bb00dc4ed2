from typing import Any

import numpy as np
import numpy.typing as npt

class StreamSummary:
    capacity: int
    used: int
    total: int
    def __init__(self, capacity: int) -> None: ...
    def update(
        self, words: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64] | None = None
    ) -> npt.NDArray[np.int64]: ...
    def update_key(self, key: Any, count: int = 1) -> int: ...
    def estimate(self, word: int) -> int: ...
    def state(
        self,
    ) -> tuple[
        npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]
    ]: ...
    def load(
        self,
        words: npt.NDArray[np.uint64],
        counts: npt.NDArray[np.int64],
        errors: npt.NDArray[np.int64],
        total: int,
    ) -> None: ...
    @property
    def least(self) -> int: ...
