"""What a measurement was made on and with: processor, cores, commit, versions. Nothing that names a
host, a user or a path.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from ordstream.ground.cpus import allowed_cpus

LIBRARIES = ("numpy", "pyarrow")


def about(command: str) -> dict[str, Any]:
    """What a results file says of its making: machine, load, versions, commit, command, time.

    Parameters
    ----------
    command : str
        What was run.
    """
    now = time.gmtime()
    return {
        "processor": f"{_processor()} ({platform.machine()})",
        "cpus": os.cpu_count(),
        "cpus_allowed": allowed_cpus(),
        "system": f"{platform.system()} {platform.release()}",
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,  # of everything, before the runs
        "python": platform.python_version(),
        **{name: _version(name) for name in (*LIBRARIES, "ordstream")},
        "commit": _commit(),
        "command": command,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", now),
        "date": time.strftime("%Y-%m-%d", now),
    }


def columns(command: str) -> dict[str, str]:
    """Of the same what a CSV has in each row: nothing that changes from run to run."""
    found = about(command)
    versions = [f"ordstream {found['ordstream']}", f"Python {found['python']}"]
    versions += [f"{name} {found[name]}" for name in LIBRARIES]
    return {
        "machine": f"{found['processor']}, {found['system']}",
        "cores": str(found["cpus_allowed"]),
        "commit": found["commit"],
        "versions": "; ".join(versions),
        "command": command,
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown processor"


def _commit() -> str:
    """Of the checkout that this package lies in, with "+" if it was changed; "none" for an installed
    package.
    """
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        found = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True, cwd=here, timeout=20
        )
        return found.stdout.strip()

    try:
        if not git("ls-files", "--", Path(__file__).name):
            return "none"  # the package lies in somebody else's repository
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "none"


def busy_and_stolen() -> tuple[float, float] | None:
    """CPU seconds so far: busy, and taken by the hypervisor. None without /proc/stat."""
    try:
        with Path("/proc/stat").open() as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (
                int(part) for part in file.readline().split()[1:9]
            )
    except (OSError, ValueError):
        return None
    hertz = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / hertz, steal / hertz


def other_load() -> tuple[float, float] | None:
    """CPU seconds so far: of the whole machine (the hypervisor's share included), and of this process;
    None without /proc/stat.
    """
    machine = busy_and_stolen()
    times = os.times()
    return None if machine is None else (sum(machine), times.user + times.system)
