from collections.abc import Sequence

from ordstream._core.ground.chunk import LayoutOwner
from ordstream._core.ground.kernel import KernelOwner

class DivideKernel(KernelOwner):
    def __init__(
        self, layout: LayoutOwner, column: int, lanes: Sequence[int], number: int, copies: bool
    ) -> None: ...

class UniteKernel(KernelOwner):
    def __init__(self, layout: LayoutOwner, lanes: Sequence[int], lane: int, number: int) -> None: ...
