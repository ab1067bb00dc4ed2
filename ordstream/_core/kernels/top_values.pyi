from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage

class TopValuesKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
