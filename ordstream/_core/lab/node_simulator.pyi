from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

COSTS: tuple[str, ...]

class NodeSimulation:
    def __init__(
        self,
        operators: Sequence[Mapping[str, Any]],
        costs: Mapping[str, float],
        *,
        workers: int,
        cores: int,
        scheduler: str,
        tuples: int,
        chunk_rows: int | None,
        slice_ns: float,
        window_ns: float,
        capacity: float,
        depth: int,
        max_chunks: int,
        max_queued: int,
        chunk_ns: float,
        min_rows: int,
        max_rows: int,
        queued: int,
        seed: int,
        sample_every: int,
        batch_rows: int,
        schedule: npt.NDArray[np.int64] | None,
    ) -> None: ...
    def advance(self, until: float) -> bool: ...
    def set_active(self, workers: int) -> None: ...
    def samples(self) -> npt.NDArray[np.float64]: ...
    def figures(self) -> dict[str, Any]: ...
