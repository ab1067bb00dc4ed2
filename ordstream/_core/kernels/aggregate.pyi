from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class ScanKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...

class AggregateKernel(KernelOwner):
    def __init__(self, operator: Operator) -> None: ...
