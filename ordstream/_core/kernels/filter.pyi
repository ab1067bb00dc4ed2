from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage

class FilterKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
