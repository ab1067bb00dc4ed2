"""Kernels of the parametric operators (see `parametric.pyx`)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.ground.kernel import KernelOwner

class ParametricKernel(KernelOwner):
    def __init__(self, operator: Any) -> None: ...

def work_ns(multiplications: int, matrix: npt.NDArray[np.float64]) -> int: ...
