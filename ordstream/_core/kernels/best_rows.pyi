from typing import Any

from ordstream._core.ground.kernel import KernelOwner

class BestRowsKernel(KernelOwner):
    def __init__(self, operator: Any) -> None: ...
