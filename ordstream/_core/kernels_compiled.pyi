from ordstream._core.kernel import KernelOwner
from ordstream.plan import Stage
from ordstream.udf import CompiledFunction

CALL_OFFSETS: dict[str, int]

class CompiledKernel(KernelOwner):
    def __init__(self, stage: Stage, compiled: CompiledFunction) -> None: ...
