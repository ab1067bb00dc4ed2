"""Peak memory of processes, for all benchmarks. Standard library only: the peers have no more."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def largest_kib(status: str) -> int:
    """Largest resident size, KiB, in the text of a /proc/PID/status."""
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def peak_mb() -> float:
    """Largest resident size of this process. getrusage would include what its parent had at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return largest_kib(status.read_text()) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20) if sys.platform == "darwin" else most / 1024
