"""Options of a run: defaults, checks, one message per mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ordstream.errors import PlanError

SCHEDULERS = ("ct", "lp", "et", "qst", "random")
PARTITIONINGS = ("hybrid", "partitioned", "shared")
REORDERS = ("nonblocking", "lock")


@dataclass(frozen=True)
class Settings:
    """Checked options; `ordstream.node.run` describes them.

    Attributes not described there
    ------------------------------
    depth : chunks that may be in one operator (size of worklists and reorder buffers, rounded up to a power of two).
    chunk_us : operator cost aimed at per chunk when chunk_rows is None.
    seed : of the "random" scheduler.
    partial : hand over output batches that are not full when the reader waits.
    feeder : "thread" (default for sources that may block) or "caller" (Spark: only the main thread reads its input).
    max_ready : finished output batches that may wait for the reader.
    """

    workers: int | None = None
    scheduler: str = "ct"
    partitioning: str = "hybrid"
    reorder: str = "nonblocking"
    buckets: int | None = None
    chunk_rows: int | None = None
    punctuate: Any = None
    max_bytes: int | None = None
    max_chunks: int | None = None
    slice_us: float = 100.0
    window_us: float = 10_000.0
    capacity: float = 65_536.0
    marker_every: int = 1024
    marker_percentiles: tuple[float, float] | None = None
    tags: bool = False
    debug: bool = False
    snapshot_every: int | None = None
    sample_every: int | None = None
    progress: Any = None
    arrivals: Any = None
    depth: int | None = None
    chunk_us: float = 100.0
    seed: int = 1
    partial: bool = True
    feeder: str = "thread"
    max_ready: int = 64

    def described(self, workers: int) -> dict[str, Any]:
        """Plain values for the report."""
        skipped = ("progress", "arrivals", "punctuate")
        described = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in skipped}
        return described | {"workers": workers}


def make_settings(options: Mapping[str, Any]) -> Settings:
    """Settings from keyword options; None means the default.

    Raises
    ------
    PlanError
        Naming the option and what it may be.
    """
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise PlanError(f"unknown option {unknown[0]!r}; options are {', '.join(sorted(known))}")
    settings = Settings(**{name: value for name, value in options.items() if value is not None})
    _choice("scheduler", settings.scheduler, SCHEDULERS)
    _choice("partitioning", settings.partitioning, PARTITIONINGS)
    _choice("reorder", settings.reorder, REORDERS)
    _choice("feeder", settings.feeder, ("thread", "caller"))
    _whole("workers", settings.workers, 0, 1024)
    _whole("buckets", settings.buckets, 1, 65_535)
    _whole("chunk_rows", settings.chunk_rows, 1, 1 << 20)
    _whole("max_bytes", settings.max_bytes, 1, 1 << 60)
    _whole("max_chunks", settings.max_chunks, 1, 1 << 40)
    _whole("marker_every", settings.marker_every, 1, 1 << 60)
    _whole("snapshot_every", settings.snapshot_every, 1, 1 << 60)
    _whole("sample_every", settings.sample_every, 1, 1 << 60)
    _whole("depth", settings.depth, 2, 1 << 20)
    _whole("max_ready", settings.max_ready, 1, 4000)
    _whole("seed", settings.seed, 0, (1 << 63) - 1)
    for name in ("slice_us", "window_us", "capacity", "chunk_us"):
        value = getattr(settings, name)
        if not _is_number(value) or not 0 < value < float("inf"):
            raise PlanError(f"{name} must be a positive number, got {value!r}")
    for name in ("tags", "debug", "partial"):
        if not isinstance(getattr(settings, name), bool):
            raise PlanError(f"{name} must be True or False, got {getattr(settings, name)!r}")
    if settings.progress is not None and not callable(settings.progress):
        raise PlanError(f"progress must be callable, got {settings.progress!r}")
    within: Any = settings.marker_percentiles
    if within is not None and not (
        isinstance(within, tuple | list) and len(within) == 2 and all(map(_is_number, within)) and 0 <= within[0] < within[1] <= 100
    ):
        raise PlanError(f"marker_percentiles must be (low, high) within 0..100, got {within!r}")
    if settings.punctuate is not None and not hasattr(settings.punctuate, "bind"):
        raise PlanError(f"punctuate must be od.every(column, period), got {settings.punctuate!r}")
    if settings.arrivals is not None:
        given = np.asarray(settings.arrivals)
        if given.ndim != 1 or given.dtype.kind not in "iu" or (np.diff(given.astype(np.int64)) < 0).any():
            raise PlanError(f"arrivals must be ascending whole numbers (ns), one per tuple; got {settings.arrivals!r:.80}")
        arrivals = np.ascontiguousarray(given, dtype=np.int64)
        object.__setattr__(settings, "arrivals", arrivals)
    return settings


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise PlanError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise PlanError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
