from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class OrderedKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
