from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class FlatKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
