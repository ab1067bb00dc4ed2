from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator
from ordstream.udf.functions import CompiledFunction

CALL_OFFSETS: dict[str, int]

class CompiledKernel(KernelOwner):
    def __init__(self, operator: Operator, compiled: CompiledFunction) -> None: ...
