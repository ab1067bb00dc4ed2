from collections.abc import Sequence

from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class KeptRowsKernel(KernelOwner):
    def __init__(
        self, operator: Operator, mode: str, n: int, kept: Sequence[int], beside: Sequence[int] = ()
    ) -> None: ...
