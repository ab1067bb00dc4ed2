from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class AnchoredPairsKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...

class PairUpKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
