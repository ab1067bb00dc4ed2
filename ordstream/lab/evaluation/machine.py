"""What a measurement was made on and with: processor, cores, commit, versions. Nothing that names a host, a user or a path."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from ordstream.ground.cpus import allowed_cpus

LIBRARIES = ("numpy", "pyarrow")


def about(command: str) -> dict[str, str]:
    """Columns for a results file: machine, cores, commit, versions, command.

    Parameters
    ----------
    command : str
        What was run.
    """
    versions = [f"ordstream {_version('ordstream')}", f"Python {platform.python_version()}"]
    versions += [f"{name} {_version(name)}" for name in LIBRARIES]
    return {
        "machine": f"{_processor()} ({platform.machine()}), {platform.system()} {platform.release()}",
        "cores": str(allowed_cpus()),
        "commit": _commit(),
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
    """Of the checkout that this package lies in, with "+" if it was changed; "none" for an installed package."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=here, timeout=20)
        return found.stdout.strip()

    try:
        if not git("ls-files", "--", Path(__file__).name):
            return "none"  # the package lies in somebody else's repository
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "none"


def other_load() -> tuple[float, float] | None:
    """CPU seconds so far: of the whole machine (the hypervisor's share included), and of this process; None without /proc/stat."""
    try:
        with Path("/proc/stat").open() as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(part) for part in file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    ticks = user + nice + system + irq + softirq + steal
    times = os.times()
    return ticks / os.sysconf("SC_CLK_TCK"), times.user + times.system
