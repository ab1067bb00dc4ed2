"""From a stage to the kernel that runs it: one table, three makers (built-in, compiled, Python)."""

from __future__ import annotations

from typing import Any

from ordstream.errors import PlanError
from ordstream.plan import Stage


def build_kernel(stage: Stage) -> Any:
    """The stage's kernel owner (`ordstream._core.kernel.KernelOwner`).

    Raises
    ------
    PlanError
        For an operator that the core does not know.
    ImportError
        For a compiled function where Numba is missing.
    """
    if stage.op == "compiled":
        from ordstream.kernels_python import build_compiled

        return build_compiled(stage)
    if stage.is_python:
        from ordstream.kernels_python import build_python

        return build_python(stage)
    from ordstream._core import builtin

    if stage.op not in builtin.BUILDERS:
        raise PlanError(f"operator {stage.name!r}: the core has no kernel {stage.op!r}")
    return builtin.build_builtin(stage)
