"""A session of benchmarks: collects figures, prints and saves the table of targets."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest
from harness import Contest, onetbb, record, spins_for
from targets import RESULTS, Figure, save, summary, table

from ordstream.lab.evaluation.machine import about

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


def about_pipelines() -> dict[str, Any]:
    """What the file of targets says of its making, with the compiler, oneTBB and the calibrated work."""
    try:
        words = [os.environ.get("CXX", "g++"), "--version"]
        compiler = subprocess.run(words, capture_output=True, text=True, check=True).stdout.partition("\n")[
            0
        ]
    except (OSError, subprocess.CalledProcessError):
        compiler = "unknown"
    rival = onetbb()
    return about("make bench") | {
        "compiler": compiler,
        "onetbb": rival.onetbb_version().decode() if rival else "missing",
        "spins": {f"{ns} ns": spins_for(ns) for ns in (100, 1000)},
    }


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    """Saved files carry no host name."""
    machine_info.pop("node", None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of targets, and where it was saved."""
    if not _figures:
        return
    found = about_pipelines()
    path = RESULTS / f"targets-{found['time'].replace(':', '')}-{found['commit'].rstrip('+')}.json"
    save(_figures, path, found)
    terminalreporter.section("targets")
    terminalreporter.write_line(table(_figures))
    terminalreporter.write_line(summary(_figures))
    terminalreporter.write_line(f"saved: bench/results/{path.name}")
