"""From a stage to the kernel that runs it: one table, three makers (built-in, compiled, Python)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ordstream.errors import PlanError
from ordstream.plan.stages import Stage

_registered: dict[str, Callable[[Stage], Any]] = {}


def register(op: str, build: Callable[[Stage], Any]) -> None:
    """Make `build(stage)` the maker of kernels for stages whose op is `op` (benchmarks and tests bring their own)."""
    _registered[op] = build


def build_kernel(stage: Stage) -> Any:
    """The stage's kernel owner (`ordstream._core.ground.kernel.KernelOwner`).

    Raises
    ------
    PlanError
        For an operator that the core does not know.
    ImportError
        For a compiled function where Numba is missing.
    """
    if stage.op in _registered:
        return _registered[stage.op](stage)
    if stage.op == "compiled":
        from ordstream.operators.kernels_python import build_compiled

        return build_compiled(stage)
    if stage.is_python:
        from ordstream.operators.kernels_python import build_python

        return build_python(stage)
    from ordstream.operators import builtin

    if stage.op not in builtin.BUILTIN_OPS:
        raise PlanError(f"operator {stage.name!r}: the core has no kernel {stage.op!r}")
    return builtin.build_builtin(stage)
