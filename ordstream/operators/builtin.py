"""From a stage of the plan to the kernel that runs it: the built-in operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordstream._core.kernels.aggregate import AggregateKernel, ScanKernel
from ordstream._core.kernels.assert_ordered import OrderedKernel
from ordstream._core.kernels.count import CountKernel
from ordstream._core.kernels.count_window import WindowCountKernel
from ordstream._core.kernels.filter import FilterKernel
from ordstream._core.kernels.lag import LagKernel
from ordstream._core.kernels.pair_up import AnchoredPairsKernel, PairUpKernel
from ordstream._core.kernels.pairs import FlatKernel
from ordstream._core.kernels.preceding import PrecedingKernel
from ordstream._core.kernels.project import ProjectKernel
from ordstream._core.kernels.regression import RegressionKernel
from ordstream._core.kernels.sessionize import SessionKernel
from ordstream._core.kernels.shed import ShedKernel
from ordstream._core.kernels.top_k import TopKernel
from ordstream._core.kernels.top_values import TopValuesKernel

if TYPE_CHECKING:
    from ordstream.plan.stages import Stage

__all__ = ["BUILTIN_OPS", "build_builtin"]


def _pairs(stage: Stage) -> Any:
    return FlatKernel(stage) if stage.params["anchor"] is None else AnchoredPairsKernel(stage)


def _count(stage: Stage) -> Any:
    plain = stage.params["window"] is None and stage.params["above"] is None
    return CountKernel(stage) if plain else WindowCountKernel(stage)


def _shed(stage: Stage) -> Any:
    from ordstream.balance.sketches import ExecutionTimes

    params = stage.params
    saved = params["model"]
    sketch = ExecutionTimes(params["epsilon"], params["delta"], seed=params["seed"]) if saved is None else saved.copy()
    return ShedKernel(stage, sketch.matrices)


_KERNELS: dict[str, Any] = {
    "filter": FilterKernel,
    "project": ProjectKernel,
    "pairs": _pairs,
    "pair_up": PairUpKernel,
    "lag": LagKernel,
    "assert_ordered": OrderedKernel,
    "preceding": PrecedingKernel,
    "regression": RegressionKernel,
    "explode": FlatKernel,
    "sessionize": SessionKernel,
    "shed": _shed,
    "count": _count,
    "scan": ScanKernel,
    "aggregate": AggregateKernel,
    "top_k": TopKernel,
    "top_values": TopValuesKernel,
}

#: Values of `Stage.op` that `build_builtin` takes.
BUILTIN_OPS = frozenset(_KERNELS)


def build_builtin(stage: Stage) -> Any:
    """The kernel of a built-in operator.

    Parameters
    ----------
    stage : Stage
        `stage.op` in `BUILTIN_OPS`; the parameters that each takes are listed in `ordstream/plan/stages.py`.

    Returns
    -------
    KernelOwner
        Owns the kernel and all that it needs; must outlive the run.

    Raises
    ------
    ValueError, TypeError
        The stage is no built-in operator, or its parameters and schemas do not fit together: a defect of the
        plan.
    MemoryError
    """
    try:
        kernel = _KERNELS[stage.op]
    except KeyError:
        raise ValueError(f"{stage.op!r} is not a built-in operator; these are: {sorted(BUILTIN_OPS)}") from None
    return kernel(stage)
