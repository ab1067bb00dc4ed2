from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class JoinLookupKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...
    @property
    def repeated(self) -> tuple[int, int] | None: ...
