from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage

class AnchoredPairsKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...

class PairUpKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
