from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage

class ScanKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...

class AggregateKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
