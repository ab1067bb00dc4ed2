from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance.hashing import TwoUniversal

class DeployedMap:
    hashes: TwoUniversal
    instances: int
    heavy_words: int
    def __init__(
        self,
        instances: int,
        hashes: TwoUniversal,
        buckets: npt.NDArray[Any],
        words: npt.NDArray[Any],
        first: npt.NDArray[Any],
        second: npt.NDArray[Any],
    ) -> None: ...
    def route(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]: ...
    def route_loaded(
        self, words: npt.NDArray[np.uint64], received: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]: ...

def route_two_choices(
    words: npt.NDArray[np.uint64], received: npt.NDArray[np.int64], seed: int
) -> npt.NDArray[np.int32]: ...
def least_loaded(
    loads: npt.NDArray[np.float64], instances: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
