"""How many CPUs this process may use: affinity and cgroup quota, not the number in the machine."""

from __future__ import annotations

import math
import os
import time

# The quota of a cgroup is looked at again after so long: two files take longer than all else in the start of
# a run.
QUOTA_S = 1.0
_MOST_BYTES = 256

# When it was looked at, by time.monotonic, and what it was.
_seen: tuple[float, float | None] | None = None


def allowed_cpus() -> int:
    """CPUs in the process's affinity mask, at most the cgroup's CPU quota rounded up; at least 1. A change
    of the quota is seen within `QUOTA_S`.
    """
    global _seen
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cpus = os.cpu_count() or 1
    now = time.monotonic()
    seen = _seen  # another thread may replace it
    if seen is None or now - seen[0] >= QUOTA_S:
        seen = _seen = now, _cgroup_quota()
    quota = seen[1]
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def _cgroup_quota() -> float | None:
    try:
        text = _read("/sys/fs/cgroup/cpu.max").split()
        if text[0] != b"max":
            return int(text[0]) / int(text[1])
        return None
    except (OSError, ValueError, IndexError):
        pass
    try:
        quota = int(_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
        period = int(_read("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
        return quota / period if quota > 0 else None
    except (OSError, ValueError):
        return None


def _read(path: str) -> bytes:
    """A short file, without the objects that `open` makes for it."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MOST_BYTES)
    finally:
        os.close(file)
