"""A session of benchmarks: collects figures, prints and saves the table of targets."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Contest, onetbb, record, spins_for
from targets import RESULTS, Figure, save, summary, table

_figures: list[Figure] = []


class Bench:
    """Hands a finished contest to pytest-benchmark and its figures to the session's table."""

    def __init__(self, benchmark: Any) -> None:
        self.benchmark = benchmark

    def contest(self, contest: Contest, main: str, figures: list[Figure], **info: Any) -> None:
        """`main`: the run whose walls are saved."""
        for figure in figures:
            figure.quiet = contest.quiet
            figure.counted = len(contest.counted[main]) if contest.quiet else 0
            figure.not_counted = len(contest.disturbed)
            figure.round_trips = contest.round_trips(main)
        walls = {f"{name}_ns_per_tuple": contest.wall(name) for name in contest.bodies}
        record(
            self.benchmark,
            contest.counted[main],
            **info,
            **walls,
            tuples=contest.tuples,
            quiet=contest.quiet,
            not_counted=contest.disturbed,
            round_trips=contest.round_trips(main),
            figures={f.what: f.value for f in figures},
        )
        _figures.extend(figures)

    def figures(self, figures: list[Figure]) -> None:
        """Figures that come from no contest."""
        _figures.extend(figures)


@pytest.fixture
def bench(benchmark: Any) -> Bench:
    """The session's collector, bound to this test's pytest-benchmark fixture."""
    return Bench(benchmark)


def about(pipelines: bool = True) -> dict[str, Any]:
    """Machine, versions and commit; nothing that names a host, a user or a path.

    `pipelines`: with what only the pytest benchmarks use, oneTBB and the calibrated work.
    """
    import numpy
    import pyarrow

    def output(*command: str) -> str:
        try:
            here = Path(__file__).parent
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=here).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    model = "unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = named[0] if named else model
    rival = onetbb() if pipelines else None
    changed = "+" if output("git", "status", "--porcelain", "-uno", "..") else ""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    found = {
        "processor": f"{model} ({platform.machine()})",
        "cpus": os.cpu_count(),
        "cpus_allowed": affinity,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "pyarrow": pyarrow.__version__,
        "compiler": output(os.environ.get("CXX", "g++"), "--version").partition("\n")[0],
        "commit": output("git", "rev-parse", "--short", "HEAD") + changed,
        "command": "make bench",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if pipelines:
        found["onetbb"] = rival.onetbb_version().decode() if rival else "missing"
        found["spins"] = {f"{ns} ns": spins_for(ns) for ns in (100, 1000)}
    return found


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Saved files carry no host name."""
    machine_info.pop("node", None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of targets, and where it was saved."""
    if not _figures:
        return
    found = about()
    path = RESULTS / f"targets-{found['time'].replace(':', '')}-{found['commit'].rstrip('+')}.json"
    save(_figures, path, found)
    terminalreporter.section("targets")
    terminalreporter.write_line(table(_figures))
    terminalreporter.write_line(summary(_figures))
    terminalreporter.write_line(f"saved: bench/results/{path.name}")
