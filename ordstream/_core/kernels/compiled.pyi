from collections.abc import Callable
from typing import Any

from ordstream._core.ground.kernel import KernelOwner
from ordstream.plan.stages import Stage
from ordstream.udf.functions import CompiledFunction

CALL_OFFSETS: dict[str, int]

class CompiledKernel(KernelOwner):
    def __init__(self, stage: Stage, compiled: CompiledFunction, interpret: Callable[..., list[tuple[Any, ...]]]) -> None: ...
