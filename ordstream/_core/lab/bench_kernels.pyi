"""Kernels for benchmarks only (see `bench_kernels.pyx`)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.ground.kernel import KernelOwner

class SpinKernel(KernelOwner):
    def __init__(self, operator: Any) -> None: ...

class CountsKernel(KernelOwner):
    def __init__(self, operator: Any) -> None: ...

KERNELS: dict[str, type[KernelOwner]]

def loop(
    values: npt.NDArray[np.int64],
    results: npt.NDArray[np.int64],
    rounds: int,
    spins: int,
    keys: npt.NDArray[np.int64] | None = None,
    counts: npt.NDArray[np.int64] | None = None,
) -> int: ...
