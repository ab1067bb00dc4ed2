"""What a run of the core is given besides its kernels: one value, made once the plan is known
(`NodeStream`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


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
    time_column: int | None
    """Input column whose advance makes time punctuations; None: none."""
    time_every: int
    """Units of that column from one time punctuation to the next."""
    arrivals: npt.NDArray[np.int64] | None
    """When each tuple is due, ns after the start; None: as they come."""
    stamp: int
    """What dates a tuple where a stage sheds load: 1 its batch's arrival, 2 its dispatch."""
    sample_every: int
    """Parts of a keyed operator between two that are timed row by row; 0: none."""
    shake: bool
    """Tests: chunk sizes and the number of workers vary at random."""
