from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage

class ProjectKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
