"""The operators of a physical plan as the core takes them: kernels, keys, and what the node asks them for
later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ordstream._core.kernels.identity import IdentityKernel
from ordstream._core.state.keyed_state import KeySpecOwner
from ordstream.node.core_options import CoreOperator
from ordstream.node.settings import Settings
from ordstream.operators.shed import log_of
from ordstream.plan.clock import in_run, marks_of
from ordstream.plan.physical import PhysicalPlan


@dataclass
class CoreOperators:
    """What a run is made of.

    Attributes
    ----------
    chain : list of CoreOperator
    unmade : dict of str to columns
        Operator's name -> output columns that its kernel does not make, since nobody sees them.
    sheds : list of (Operator, str, kernel)
        Shed operators, the names of those that they protect, and their kernels.
    stateful : dict of str to (int, Operator)
        Of each operator that keeps a state: its place in the chain.
    kernels : dict of str to kernel
        Of each operator.
    rejecting : set of str
        Operators whose skipped rows leave by their second output.
    """

    chain: list[CoreOperator] = field(default_factory=list)
    unmade: dict[str, Any] = field(default_factory=dict)
    sheds: list[tuple[Any, str, Any]] = field(default_factory=list)
    stateful: dict[str, tuple[int, Any]] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)
    rejecting: set[str] = field(default_factory=set)

    def late(self) -> dict[str, int]:
        """Tuples, by operator, that came too late and got a later time."""
        found = {name: getattr(kernel, "adjusted", 0) for name, kernel in self.kernels.items()}
        return {name: count for name, count in found.items() if count}


def core_operators(physical: PhysicalPlan, settings: Settings, source: Any) -> CoreOperators:
    """Make every kernel. `source`: the source's layout.

    Raises
    ------
    ImportError, PlanError
        A function that is to be compiled: Numba is missing, or it does not compile.
    """
    made = CoreOperators()
    if physical.split is not None:
        name, parallelism = physical.split
        made.chain.append(CoreOperator(name, "SL", IdentityKernel(source), None, 0, None, parallelism))
    careful = any(one.operator.sheds for one in physical.operators)  # it is by small chunks that it sheds
    places: list[int] = []  # of the plan's operators in the chain
    for position, one in enumerate(physical.operators):
        operator = in_run(one.operator, settings.punctuate)
        kernel = made.kernels[operator.name] = operator.kernel()
        if operator.rejects:
            made.rejecting.add(operator.name)
        if operator.takes_rejections:
            made.kernels[operator.rejections_of].reject_to(kernel)
        if one.lane:
            kernel.work_on(one.lane)
        made.unmade[operator.name] = getattr(kernel, "unmade", ())
        if operator.sheds:
            made.sheds.append((operator, physical.operators[position + 1].operator.name, kernel))
            _shed_as_asked(operator, kernel, settings)
        keys = KeySpecOwner(list(operator.key), kernel.input_layout.types) if operator.kind == "PS" else None
        if operator.stateful or (operator.sheds and operator.state_schema() is not None):
            made.stateful[operator.name] = len(made.chain), operator
        marks = marks_of(physical.plan, position, settings.punctuate)
        places.append(len(made.chain))
        made.chain.append(
            CoreOperator(
                operator.name,
                operator.kind,
                kernel,
                keys,
                one.buckets,
                one.bounds,
                one.parallelism,
                (one.calls or bool(getattr(kernel, "ends", 0))) and not careful,
                marks if marks < 0 else places[marks],
            )
        )
    return made


def _shed_as_asked(operator: Any, kernel: Any, settings: Settings) -> None:
    if operator.frozen is not None:
        kernel.partition(settings.shed_partition, operator.frozen.seed)
    if settings.shed_log is not None:
        kernel.replays(*log_of(settings.shed_log, operator.name, settings.shed_partition))
