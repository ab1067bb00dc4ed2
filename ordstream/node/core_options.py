"""What a run of the core is given besides its kernels: one value, made once the plan is known
(`ordstream.node.node.Stream`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.flow.computed_clock import ComputedColumn
from ordstream._core.ground.source_values import may_pass_unread
from ordstream.ground.by_identity import by_identity
from ordstream.ground.cpus import allowed_cpus
from ordstream.node.settings import Settings
from ordstream.operators.clocks import ComputedClock
from ordstream.plan.clock import SOURCE_MARKS, rows_between_marks
from ordstream.plan.physical import PhysicalPlan
from ordstream.snapshots.snapshot import Snapshot


class CoreOperator(NamedTuple):
    """One operator of a run's chain."""

    name: str
    kind: str  # "SL", "PS" or "SF"
    kernel: Any  # KernelOwner
    keys: Any  # KeySpecOwner of a PS operator, else None
    buckets: int  # of a PS operator, else 0
    # range partitioning: buckets - 1 ascending values; None: by hash
    bounds: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
    parallelism: int  # most workers at a time, at least 1
    calls: bool = False  # a call of the kernel costs much beside its rows
    marks_of: int = SOURCE_MARKS  # whose time punctuations reach the kernel (plan/clock.py)


@dataclass(frozen=True)
class CoreOptions:
    """Physical facts of one run. Times are in ns, sizes in rows, tuples or bytes, as each field says."""

    workers: int
    """Worker threads; 0: the caller's thread works."""
    adaptive: bool
    """`workers` is the most there may be, and the controller sets how many work."""
    spin: bool
    """An idle worker may pause before it yields: there are fewer workers than processors."""
    scheduler: str
    """A heuristic's name (`flow/scheduler.pyx`)."""
    partitioning: str
    """"hybrid", "partitioned" or "shared"."""
    reorder: str
    """"nonblocking" or "lock"."""
    slice_ns: float
    """Time that a scheduling decision is good for."""
    window_ns: float
    """Age after which the scheduler's averages forget."""
    capacity: float
    """Bound on the tuples that wait for an operator, for the heuristics that need one."""
    seed: int
    """Of the scheduler's random draws, and of `shake`."""
    chunk_rows: int | None
    """Rows per chunk; None: by `chunk_ns`."""
    chunk_ns: float
    """Work per chunk that is aimed at, in the operator that is busiest per input tuple."""
    min_rows: int
    """Rows per chunk, at least and at first, where `chunk_rows` is None."""
    max_rows: int
    """Rows per chunk, at most, where `chunk_rows` is None."""
    depth: int
    """Chunks that may be in an operator."""
    max_queued: int
    """Tuples that may wait for an operator; an empty one always admits."""
    max_chunks: int
    """Chunks in flight in the whole run."""
    max_bytes: int
    """Memory in flight in the whole run."""
    max_state_bytes: int | None
    """Of the state of all operators; None: no bound."""
    max_ready: int
    """Finished output batches that may wait for the reader."""
    tags: bool
    """Output rows carry their serials."""
    steps: bool
    """Each key of the final flush gets a serial of its own."""
    marker_every: int
    """Tuples from one latency marker to the next; 0: none."""
    snapshot_every: int
    """Tuples from one snapshot marker to the next; 0: none."""
    tells_marks_of: int
    """The operator whose marks leave the node, by its place in the chain; -1: none do."""
    snapshots: bool
    """Snapshot markers take the state along, and the reader is told where they stand."""
    begin: Snapshot
    """Serial, order tag and time behind which the run begins."""
    time_column: int | None
    """Input column whose advance makes time punctuations; `clock` makes one behind the last; None: none."""
    clock: Any
    """ordstream._core.flow.computed_clock.ComputedColumn: a clock that is computed; None: it is not."""
    time_every: int
    """Units of that column from one time punctuation to the next."""
    time_rows: int
    """Tuples from one to the next, at least."""
    arrivals: npt.NDArray[np.int64] | None
    """When each tuple is due, ns after the start; None: as they come."""
    stamp: int
    """What dates a tuple where a stage sheds load: 1 its batch's arrival, 2 its dispatch."""
    sample_every: int
    """Parts of a keyed operator between two that are timed row by row; 0: none."""
    shake: bool
    """Tests: chunk sizes and the number of workers vary at random."""
    passing: Mapping[int, int]
    """Output columns that pass unread (`_core/ground/source_values.pxd`), and the source's that they are."""


def passing_unread(physical: PhysicalPlan, source: pa.Schema, clocks: Collection[int]) -> dict[int, int]:
    """`CoreOptions.passing`. `source`: in core types; `clocks`: its columns that make time punctuations."""
    may = _may_pass_unread(source)
    return {
        out: column for out, column in physical.unread.items() if column not in clocks and may[column]
    }


@by_identity
def _may_pass_unread(source: pa.Schema) -> list[bool]:
    """`may_pass_unread` of each of its columns."""
    return [may_pass_unread(type_) for type_ in source.types]


def _mark_rows(settings: Settings, physical: PhysicalPlan, clock: object) -> int:
    """Of `CoreOptions.time_rows`. Where state is bounded, what may be forgotten is at once."""
    if clock is None or settings.max_state_bytes is not None:
        return 0
    return rows_between_marks(physical.plan, settings.punctuate)


def core_options(
    settings: Settings,
    physical: PhysicalPlan,
    *,
    workers: int,
    max_bytes: int,
    clock: tuple[int | ComputedClock, int] | None,
    overloads: bool,
    begin: Snapshot,
    snapshot_rows: int,
    passing: Mapping[int, int],
) -> CoreOptions:
    """The options of a run.

    Parameters
    ----------
    settings : Settings
    physical : PhysicalPlan
    workers, max_bytes : int
    clock : (int or ComputedClock, int) or None
        What makes time punctuations as it advances, and the units from one to the next; None: nothing does.
    overloads : bool
        The source gives tuples when they come, and not when they are asked for.
    begin : Snapshot
    snapshot_rows : int
        Tuples from one snapshot to the next; 0: not by tuples.
    passing : mapping of int to int
        Output columns that pass unread, and the source's that they are.
    """
    column: int | None = None
    computed = None
    if clock is not None:
        made = clock[0]
        column = made if isinstance(made, int) else len(physical.plan.source)
        computed = None if isinstance(made, int) else ComputedColumn(made)
    chain = enumerate(physical.operators, int(physical.split is not None))
    return CoreOptions(
        workers=workers,
        adaptive=isinstance(settings.workers, str),
        spin=workers < allowed_cpus(),
        scheduler=settings.scheduler,
        partitioning=settings.partitioning,
        reorder=settings.reorder,
        slice_ns=settings.slice_us * 1e3,
        window_ns=settings.window_us * 1e3,
        capacity=settings.capacity,
        seed=settings.seed,
        chunk_rows=settings.chunk_rows,
        chunk_ns=settings.chunk_us * 1e3 * physical.chunk_factor,
        min_rows=physical.min_rows,
        max_rows=physical.max_rows,
        depth=physical.depth,
        max_queued=1 << 17,
        max_chunks=physical.max_chunks,
        max_bytes=max_bytes,
        max_state_bytes=settings.max_state_bytes,
        max_ready=settings.max_ready,
        tags=settings.tags or settings.emitted_through is not None,
        steps=settings.steps,
        marker_every=settings.marker_every,
        snapshot_every=snapshot_rows or settings.snapshot_every or 0,
        tells_marks_of=next((place for place, one in chain if one.operator.marks_leave), -1),
        snapshots=settings.keeps_state,
        begin=begin,
        time_column=column,
        clock=computed,
        time_every=0 if clock is None else clock[1],
        time_rows=_mark_rows(settings, physical, clock),
        arrivals=settings.arrivals,
        stamp=1 if overloads else 2,
        sample_every=settings.sample_every or 0,
        shake=settings.debug,
        passing=passing,
    )
