from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator

Reach = tuple[int, int | None] | None

class TimeJoinKernel(KernelOwner):
    def __init__(
        self, operator: Operator, kept: tuple[Reach, Reach], last_only: bool, alone: tuple[bool, bool]
    ) -> None: ...
