from ordstream._core.ground.chunk import LayoutOwner
from ordstream._core.ground.kernel import KernelOwner

class IdentityKernel(KernelOwner):
    def __init__(self, layout: LayoutOwner) -> None: ...
