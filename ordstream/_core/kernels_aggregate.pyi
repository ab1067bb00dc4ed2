from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class ScanKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...

class AggregateKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
