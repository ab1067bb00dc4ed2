"""Stage -> kernel, for stages that run a user's function (`ordstream/plan/stages.py` lists their parameters)."""

from __future__ import annotations

from typing import Any

from ordstream._core.kernels.compiled import CompiledKernel
from ordstream._core.kernels.map_batches import BatchKernel
from ordstream._core.kernels.python_functions import FilterKernel, FlatKernel, ProcessKernel, RowsKernel
from ordstream.plan.stages import Stage
from ordstream.udf.functions import (
    CompiledFunction,
    compile_process,
    compile_rows,
    interpret,
    is_native,
    native_function,
    resolve_callable,
)

_PYTHON: dict[str, Any] = {
    "python_rows": RowsKernel,
    "python_filter": FilterKernel,
    "python_flat": FlatKernel,
    "python_batch": BatchKernel,
    "python_process": ProcessKernel,
}


def build_python(stage: Stage) -> Any:
    """KernelOwner of a stage whose op starts with ``python_``.

    Raises
    ------
    ValueError
        Another op.
    """
    if stage.op not in _PYTHON:
        raise ValueError(f"{stage.name}: {stage.op!r} runs no Python function")
    return _PYTHON[stage.op](stage)


def build_compiled(stage: Stage) -> Any:
    """KernelOwner of a stage with op ``compiled``.

    Raises
    ------
    ImportError
        Numba is needed and not installed.
    PlanError
        The function does not compile, or has another signature.
    """
    if stage.op != "compiled":
        raise ValueError(f"{stage.name}: {stage.op!r} is not compiled")
    return CompiledKernel(stage, compiled_function(stage), interpret)


def compiled_function(stage: Stage) -> CompiledFunction:
    """What the kernel of a compiled stage runs. Compilation results are kept, so that asking early costs nothing later."""
    fn, params = stage.params["fn"], stage.params
    state = params.get("state")
    if is_native(fn):
        return native_function(resolve_callable(fn), stage.output, params["fan_out"], state)
    if stage.kind == "SL":
        exact = params.get("exact", False)
        return compile_rows(fn, stage.input, stage.output, params["fan_out"], exact=exact, where=stage.name)
    return compile_process(fn, stage.input, state, stage.output, params["fan_out"], where=stage.name)
