from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class FillGapsKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...
