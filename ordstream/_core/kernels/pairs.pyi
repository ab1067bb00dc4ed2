from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

class FlatKernel(KernelOwner):
    def __init__(self, operator: Operator, makes_pairs: bool) -> None: ...
