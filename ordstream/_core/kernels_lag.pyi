from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class LagKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
