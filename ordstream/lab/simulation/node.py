"""One node in virtual time, on any number of cores: the product's scheduler over a measured cost model.

`_core/lab/node_simulator` states what is simulated. Here a pipeline is described by its operators' costs. It
becomes a plan, and the physical plan of that (`ordstream.plan.physical`, as in every runner) says what is
simulated: buckets, who splits rows, how many workers an operator may have, chunks in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.lab.node_simulator import NodeSimulation
from ordstream.errors import PlanError
from ordstream.lab.simulation.cost_model import CostModel, PathCosts
from ordstream.node.settings import SCHEDULERS
from ordstream.operators.operator import Kind, Operator
from ordstream.plan.physical import PhysicalPlan, physical
from ordstream.plan.plan import Plan

MOST_WORKERS = 256
#: Of the tuples of a simulated pipeline: their columns are nobody's business.
NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class Stage:
    """One operator of a simulated pipeline.

    Attributes
    ----------
    name : str
    kind : Kind
    work_ns : float
        Of its function per tuple, beside the runtime's path (which for PS and SF includes a lookup of the
        key).
    chunk_ns : float
        Of its function per call, which is one per chunk, or per part of a chunk.
    selectivity : float
        Outputs per input.
    hashes : uint64 array or None
        PS: key hashes of consecutive input tuples, repeated cyclically.
    buckets : int or None
        PS: p; None: as the node chooses.
    row_bytes : float
        Of what the operator reads per tuple.
    state_lines : float
        Dependent cache lines of a row's state, which may be in another core's cache.
    """

    name: str
    kind: Kind
    work_ns: float
    selectivity: float = 1.0
    hashes: npt.NDArray[np.uint64] | None = None
    buckets: int | None = None
    row_bytes: float = 8.0
    state_lines: float = 2.0
    chunk_ns: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in ("SL", "PS", "SF"):
            raise PlanError(f"operator {self.name!r}: kind must be SL, PS or SF, not {self.kind!r}")
        for name in ("work_ns", "selectivity", "row_bytes", "state_lines", "chunk_ns"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise PlanError(
                    f"operator {self.name!r}: {name} must be finite and not negative, not {value!r}"
                )
        if self.kind == "PS" and (self.hashes is None or not len(self.hashes)):
            raise PlanError(f"operator {self.name!r}: a partitioned operator needs key hashes")
        if self.buckets is not None and not 1 <= self.buckets <= 65_535:
            raise PlanError(f"operator {self.name!r}: buckets must be 1 to 65535, not {self.buckets}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Simulated(Operator):
    """A stage as an operator of a plan.

    Attributes
    ----------
    stage : Stage
    """

    op: ClassVar[str] = "simulated"

    stage: Stage

    @property
    def kind(self) -> Kind:
        return self.stage.kind

    def describe(self) -> str:
        return f"{self.stage.work_ns:g} ns per tuple"


@dataclass(frozen=True)
class Outcome:
    """What a simulated run did.

    Attributes
    ----------
    tuples, rows_out : int
    seconds : float
        Virtual, first to last tuple.
    throughput : float
        Tuples per second between the 20th and the 80th percentile of the markers.
    latency_us : float array
        Processing latency of the markers in that range, in order.
    end_to_end_us : float array or None
        The same from the intended send time (open loop).
    limits : dict of str to float
        What can be used by one worker at a time -> share of the time that it was in use, 0..1.
    worker_share : dict of str to float
        Operator -> its part of the worker time.
    figures : dict
        Totals (`NodeSimulation.figures`).
    active : list of (float, int)
        Virtual second and number of active workers, where a controller set them.
    """

    tuples: int
    rows_out: int
    seconds: float
    throughput: float
    latency_us: npt.NDArray[np.float64]
    end_to_end_us: npt.NDArray[np.float64] | None
    limits: dict[str, float]
    worker_share: dict[str, float]
    figures: dict[str, Any]
    active: list[tuple[float, int]]

    @property
    def bottleneck(self) -> tuple[str, float]:
        """What is closest to being always in use, and how much of the time it was."""
        name = max(self.limits, key=lambda each: self.limits[each])
        return name, self.limits[name]

    @property
    def mean_latency_us(self) -> float:
        """Mean processing latency; NaN without a marker."""
        return float(self.latency_us.mean()) if len(self.latency_us) else float("nan")


class Node:
    """A simulated run that can be advanced step by step (a controller does).

    Parameters
    ----------
    stages : sequence of Stage
    model : CostModel
    workers : int
        1 to 256, each on a core of its own.
    tuples : int
        Of the source.
    scheduler, chunk_rows, slice_us, window_us, capacity, depth, max_chunks, buckets
        As for `ordstream.node.run`.
    cores : int, optional
        Of the machine; with as many workers the reading thread takes some of their time. Default: more than
        workers.
    arrivals : int64 array, optional
        Intended send time of each tuple, ns; default: all are there.
    seed : int
        Of the scheduler "random".
    markers : int
        About how many chunks are sampled.

    Raises
    ------
    PlanError
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        model: CostModel,
        workers: int,
        tuples: int,
        *,
        scheduler: str = "ct",
        chunk_rows: int | None = None,
        slice_us: float = 100.0,
        window_us: float = 10_000.0,
        capacity: float = 65_536.0,
        depth: int | None = None,
        max_chunks: int | None = None,
        buckets: int | None = None,
        cores: int | None = None,
        arrivals: npt.NDArray[np.int64] | None = None,
        seed: int = 1,
        markers: int = 4096,
        chunk_us: float = 100.0,
    ) -> None:
        if not 1 <= workers <= MOST_WORKERS:
            raise PlanError(f"1 to {MOST_WORKERS} workers can be simulated, not {workers}")
        if not stages or tuples < 1:
            raise PlanError("a simulated run needs stages and at least one tuple")
        if scheduler not in SCHEDULERS:
            raise PlanError(f"scheduler must be one of {', '.join(SCHEDULERS)}, not {scheduler!r}")
        if chunk_rows is not None and not 1 <= chunk_rows <= 1 << 20:
            raise PlanError(f"chunk_rows must be 1 to 2^20, not {chunk_rows}")
        if arrivals is not None:
            arrivals = np.ascontiguousarray(arrivals, dtype=np.int64)
            if arrivals.shape != (tuples,) or (np.diff(arrivals) < 0).any():
                raise PlanError("arrivals must be ascending, one per tuple")
        self.workers, self.tuples = workers, tuples
        path = model.path(workers)
        taken = planned(stages, workers, chunk_rows, buckets=buckets, depth=depth, max_chunks=max_chunks)
        run = planned_stages(taken)
        self.names = [stage.name for stage, _ in run]
        self._kinds = {stage.name: stage.kind for stage, _ in run}
        operators = [_operator(stage, i, path, most) for i, (stage, most) in enumerate(run)]
        operators.append(_egress(path, run[-1][0]))
        self._core = NodeSimulation(
            operators,
            {
                name: value
                for name, value in asdict(model).items()
                if name not in ("alone", "shared", "about")
            }
            | {
                "hold": path.hold,
                "rmw": model.rmw if workers > 1 else 0.0,
                "slowdown": model.slowdown if cores is not None and workers >= cores else 1.0,
            },
            workers=workers,
            cores=cores if cores is not None else workers + 1,
            scheduler=scheduler,
            tuples=tuples,
            chunk_rows=chunk_rows,
            slice_ns=slice_us * 1e3,
            window_ns=window_us * 1e3,
            capacity=capacity,
            depth=taken.depth,
            max_chunks=taken.max_chunks,
            max_queued=1 << 17,
            chunk_ns=chunk_us * 1e3 * taken.chunk_factor,
            min_rows=taken.min_rows,
            max_rows=taken.max_rows,
            queued=1 << 18,
            seed=seed,
            sample_every=max(1, tuples // markers),
            batch_rows=65_536,
            schedule=arrivals,
        )
        self._open_loop = arrivals is not None
        self.active: list[tuple[float, int]] = []

    def advance(self, until_ns: float) -> bool:
        """Go on to virtual time `until_ns`; True while tuples are left."""
        return self._core.advance(until_ns)

    def set_active(self, workers: int) -> None:
        """Let the first so many workers work; the others stop after their slice."""
        self._core.set_active(workers)
        self.active.append((self.figures()["now"] / 1e9, workers))

    def figures(self) -> dict[str, Any]:
        """Totals so far."""
        return self._core.figures()

    def outcome(self) -> Outcome:
        """What happened so far."""
        figures = self.figures()
        samples = self._core.samples()
        now = max(figures["now"], 1.0)
        low, high = int(len(samples) * 0.2), int(len(samples) * 0.8)
        throughput = figures["emitted"] / now * 1e9
        if high - low >= 2 and samples[high, 2] > samples[low, 2]:
            throughput = (samples[high, 3] - samples[low, 3]) / (samples[high, 2] - samples[low, 2]) * 1e9
        middle = samples[low : high + 1]
        limits = {
            "scheduler lock": figures["lock_busy_ns"] / now,
            "ingress": figures["ingress_busy_ns"] / now,
            "workers": sum(figures["busy_ns"]) / now / self.workers,
        }
        for name, one in zip(self.names, figures["operators"], strict=True):
            limits[f"{name}: release section"] = one["releasing_ns"] / now
            limits[f"{name}: flag line"] = one["flag_line_ns"] / now
            limits[f"{name}: next line"] = one["next_line_ns"] / now
            limits[f"{name}: queue head line"] = one["head_line_ns"] / now
            if one["hottest_bucket_ns"]:
                limits[f"{name}: hottest bucket"] = one["hottest_bucket_ns"] / now
            if self._kinds[name] == "SF":
                limits[f"{name}: one state"] = one["worker_ns"] / now
        total = sum(one["worker_ns"] for one in figures["operators"]) or 1.0
        return Outcome(
            tuples=figures["emitted"],
            rows_out=figures["rows_out"],
            seconds=now / 1e9,
            throughput=throughput,
            latency_us=(middle[:, 2] - middle[:, 0]) / 1e3,
            end_to_end_us=(middle[:, 2] - middle[:, 1]) / 1e3 if self._open_loop else None,
            limits=limits,
            worker_share={
                name: one["worker_ns"] / total
                for name, one in zip(self.names, figures["operators"], strict=True)
            },
            figures=figures,
            active=self.active,
        )


#: A controller of the number of workers: (node, virtual ns) -> active workers from now on.
Controller = Callable[[Node, float], int]


def simulate(
    stages: Sequence[Stage],
    model: CostModel,
    workers: int,
    tuples: int,
    *,
    controller: Controller | None = None,
    period_us: float = 10_000.0,
    start: int | None = None,
    **options: Any,
) -> Outcome:
    """Run a pipeline in virtual time until every tuple was delivered.

    Parameters
    ----------
    stages, model, workers, tuples, options
        As for `Node`.
    controller : callable, optional
        Asked every `period_us` for the number of active workers, at most `workers`; it begins with `start`
        (default: all).

    Raises
    ------
    PlanError
        For parameters out of range.
    """
    node = Node(stages, model, workers, tuples, **options)
    if controller is None:
        node.advance(float("inf"))
        return node.outcome()
    if start is not None:
        node.set_active(start)
    now = 0.0
    while True:
        now += period_us * 1e3
        if not node.advance(now):
            return node.outcome()
        node.set_active(max(1, min(workers, controller(node, now))))


def planned(
    stages: Sequence[Stage],
    workers: int,
    chunk_rows: int | None,
    *,
    buckets: int | None = None,
    depth: int | None = None,
    max_chunks: int | None = None,
) -> PhysicalPlan:
    """The physical plan of a line of stages. Parameters as of `Node`."""
    line = [
        Simulated(name=s.name, input=NO_COLUMNS, output=NO_COLUMNS, buckets=s.buckets, stage=s)
        for s in stages
    ]
    return physical(
        Plan.line(NO_COLUMNS, line),
        workers=workers,
        buckets=buckets,
        chunk_rows=chunk_rows,
        depth=depth,
        max_chunks=max_chunks,
    )


def planned_stages(taken: PhysicalPlan) -> list[tuple[Stage, int]]:
    """What the core runs of a physical plan, with the most workers of each: a partitioned operator with one
    bucket is stateful there; who splits the rows of a first one stands in front.

    Raises
    ------
    PlanError
        An operator's costs are not known: it is no `Simulated`.
    """
    run: list[tuple[Stage, int]] = []
    if taken.split is not None:
        name, most = taken.split
        run.append((Stage(name, "SL", 0.0, row_bytes=0.0), most))
    for one in taken.operators:
        stage = getattr(one.operator, "stage", None)
        if stage is None:
            raise PlanError(f"operator {one.operator.name!r}: a simulation needs its costs (Simulated)")
        if stage.kind == "PS":
            stage = replace(stage, buckets=one.buckets, kind="PS" if one.buckets > 1 else "SF")
        run.append((stage, one.parallelism))
    return run


def routes(hashes: npt.NDArray[np.uint64], buckets: int) -> npt.NDArray[np.int32]:
    """Bucket of each hash, as the split routes (`_core/flow/split`, hash_bucket)."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int32)


def _operator(stage: Stage, index: int, path: PathCosts, most: int) -> dict[str, Any]:
    first = index == 0
    made: dict[str, Any] = {
        "kind": stage.kind,
        "p": stage.buckets or 1,
        "M": most,
        "route": routes(stage.hashes, stage.buckets or 1)
        if stage.kind == "PS" and stage.hashes is not None
        else None,
        "work": stage.work_ns,
        "per_part": 0.0,
        "split_chunk": 0.0,
        "split_tuple": 0.0,
        "split_part": 0.0,
        "enter_chunk": path.enter_chunk,
        "enter_part": 0.0,
        "selectivity": stage.selectivity,
        "row_bytes": stage.row_bytes,
        "state_lines": 0.0,
    }
    made["per_empty"] = path.next_empty if stage.kind == "SL" else path.sf_empty
    if stage.kind == "SL":
        made["per_chunk"], made["per_tuple"] = (
            (path.sl_chunk, path.sl_tuple) if first else (path.next_chunk, path.next_tuple)
        )
    elif stage.kind == "SF":
        made["per_chunk"], made["per_tuple"] = path.sf_chunk, path.sf_tuple
        made["state_lines"] = stage.state_lines
    else:
        made["per_chunk"], made["per_tuple"], made["per_part"] = path.ps_chunk, path.ps_tuple, path.ps_part
        made["split_chunk"], made["split_tuple"], made["split_part"] = (
            path.split_chunk,
            path.split_tuple,
            path.split_part,
        )
        made["enter_part"] = path.enter_part
        made["state_lines"] = stage.state_lines
    made["per_part" if stage.kind == "PS" else "per_chunk"] += stage.chunk_ns
    return made


def _egress(path: PathCosts, last: Stage) -> dict[str, Any]:
    zeros = dict.fromkeys(
        (
            "work",
            "per_chunk",
            "per_empty",
            "per_part",
            "split_chunk",
            "split_tuple",
            "split_part",
            "enter_part",
            "selectivity",
            "state_lines",
        ),
        0.0,
    )
    return zeros | {
        "kind": None,
        "per_tuple": path.egress_tuple,
        "enter_chunk": path.egress_chunk,
        "row_bytes": last.row_bytes,
    }
