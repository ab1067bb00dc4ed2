from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage

class FilterKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...

class ProjectKernel(KernelOwner):
    def __init__(self, stage: Stage) -> None: ...
