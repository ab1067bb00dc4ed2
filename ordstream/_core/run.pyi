from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.arrow import BatchFormats
from ordstream._core.chunk import LayoutOwner
from ordstream._core.kernel import KernelOwner

REORDER_SCHEMES: dict[str, int]
PARTITION_SCHEMES: dict[str, int]

def debug_counts() -> dict[str, int]: ...

class IdentityOwner(KernelOwner):
    def __init__(self, layout: LayoutOwner) -> None: ...

class Run:
    nworkers: int
    source_ended: bool
    emitted_through: int
    def __init__(
        self,
        operators: Sequence[tuple[Any, ...]],
        source_layout: LayoutOwner,
        formats: BatchFormats,
        used: Sequence[bool],
        out_layout: LayoutOwner,
        out_schema: pa.Schema,
        *,
        workers: int,
        scheduler: str,
        partitioning: str,
        reorder: str,
        chunk_rows: int | None,
        depth: int,
        slice_ns: float,
        window_ns: float,
        capacity: float,
        max_chunks: int,
        max_bytes: int,
        max_queued: int,
        chunk_ns: float,
        min_rows: int,
        max_rows: int,
        spin: bool,
        tags: bool,
        seed: int,
        marker_every: int,
        snapshot_every: int,
        time_column: int | None,
        time_every: int,
        arrivals: Any,
        max_ready: int,
        sample_every: int,
        shake: bool,
        steps: bool,
        stamp: int = 0,
        adaptive: bool = False,
    ) -> None: ...
    def push(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> None: ...
    def fail_source(self, exception: BaseException) -> None: ...
    def retire(self) -> int: ...
    @property
    def waiting_batches(self) -> int: ...
    def take(self) -> tuple[pa.RecordBatch, npt.NDArray[np.int64] | None] | None: ...
    def want(self, rows_taken: int) -> None: ...
    def wait(self, seconds: float, feeding: bool = False) -> bool: ...
    @property
    def ended(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def out_of_memory(self) -> bool: ...
    def start_clock(self) -> None: ...
    def hire(self) -> range: ...
    @property
    def active(self) -> int: ...
    def worker(self, i: int) -> None: ...
    def work(self) -> None: ...
    def cancel(self) -> None: ...
    def progress(self) -> tuple[int, int, int, int]: ...
    def failure(self) -> tuple[int, int, int, str, BaseException | None] | None: ...
    def failing_row(self, schema: pa.Schema) -> pa.RecordBatch | None: ...
    def steps(self) -> list[tuple[int, npt.NDArray[np.int64], bytes] | None]: ...
    def samples(self) -> list[tuple[int, int, int, int]]: ...
    def statistics(self) -> dict[str, Any]: ...
    def close(self) -> int: ...
