from collections.abc import Sequence
from typing import Any

HEURISTICS: dict[str, int]

class PySchedulerDoor:
    n: int
    def __init__(
        self,
        heuristic: str,
        max_parallelism: Sequence[int],
        slice_us: float = 100.0,
        window_us: float = 10_000.0,
        capacity: float = 65536.0,
        seed: int = 1,
        workers: int = 1,
        buckets: Sequence[int] | None = None,
    ) -> None: ...
    def choose(
        self,
        now_ns: int,
        worklists: Sequence[int],
        workers: Sequence[int],
        schedulable: Sequence[bool] | None = None,
    ) -> tuple[int, int] | None: ...
    def account(
        self,
        i: int,
        ns: float,
        tuples_in: int,
        tuples_out: int,
        chunks: int = 1,
        kernel: tuple[float, int] | None = None,
    ) -> None: ...
    def chunk_rows(self, chunk_ns: float, least: int, most: int) -> int: ...
    def stats(self, i: int) -> dict[str, Any]: ...
    @property
    def decisions(self) -> int: ...
    @property
    def aged(self) -> int: ...
