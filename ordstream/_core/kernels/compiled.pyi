from collections.abc import Callable
from typing import Any

from ordstream._core.ground.kernel import KernelOwner
from ordstream.operators.operator import Operator
from ordstream.udf.compiled_function import CompiledFunction

CALL_OFFSETS: dict[str, int]

class CompiledKernel(KernelOwner):
    def __init__(
        self, operator: Operator, compiled: CompiledFunction, interpret: Callable[..., list[tuple[Any, ...]]]
    ) -> None: ...
