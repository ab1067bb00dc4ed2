from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class AnchoredPairsKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...

class PairUpKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...
