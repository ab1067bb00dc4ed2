"""The issue's speed targets, the verdict on a measured figure, and the table of both.

    python bench/targets.py [bench/results/targets-*.json]

prints the table of a saved session (default: the latest).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ordstream.ground.whole_file import write_whole

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Figure:
    """One measured figure, with its target where the issue gives one.

    Attributes
    ----------
    bench : str
        "stateless 1 ns work=0 chunk=1 workers=1": what was measured.
    what : str
        "overhead", "speed-up", "ratio to oneTBB", "p99".
    value, unit
    at_most, at_least : float or None
        The target; None: no target.
    quiet : bool
        False: other load disturbed every round, so the verdict says nothing.
    counted, not_counted : int
        Rounds.
    round_trips : list of float
        ns between two cores around each counted run; empty: not measured.
    """

    bench: str
    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    quiet: bool = True
    counted: int = 0
    not_counted: int = 0
    round_trips: list[float] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """PASS, short, or "" without a target; "?" appended where the machine was not quiet."""
        if self.at_most is None and self.at_least is None:
            return ""
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        met = low and high
        return ("PASS" if met else "short") + ("" if self.quiet else "?")

    @property
    def target(self) -> str:
        """The target as text."""
        if self.at_most is not None:
            return f"<= {self.at_most:g} {self.unit}".strip()
        return f">= {self.at_least:g} {self.unit}".strip() if self.at_least is not None else ""


def overhead_target(topology: str, work_ns: int, chunk: int | None, workers: int) -> float | None:
    """Most per-tuple overhead in ns that the issue allows at 1 worker (of the bare runtime: no work)."""
    if workers != 1 or work_ns != 0:
        return None
    if topology == "stateless":
        return 60.0 if chunk == 1 else 1.0 if chunk is None or chunk >= 64 else None
    return 90.0 if chunk == 1 else 6.0 if chunk == 1024 else None


def speedup_target(topology: str, work_ns: int, chunk: int | None, workers: int) -> float | None:
    """Least speed-up over the plain loop that the issue asks for on 2 workers."""
    if workers != 2:
        return None
    if topology == "stateless":
        if chunk == 1:
            return 1.8 if work_ns == 1000 else None
        return 1.85 if work_ns == 100 and (chunk is None or chunk >= 64) else None
    if chunk == 1:
        return 1.7 if work_ns == 1000 else None
    if chunk == 1024:
        return {100: 1.6, 1000: 1.9}.get(work_ns)
    return None


def rival_target(work_ns: int, chunk: int | None) -> float | None:
    """Most wall time relative to oneTBB at the same unit size."""
    if chunk is None:
        return None
    if work_ns == 1000 and chunk == 1:
        return 1.0
    return 1.05 if work_ns >= 100 or chunk >= 16 else None


def table(figures: Iterable[Figure]) -> str:
    """Figures as aligned text; those with a target first in each benchmark's order of measurement."""
    rows = [("benchmark", "figure", "value", "target", "", "rounds")]
    for figure in figures:
        rounds = f"{figure.counted}" + (f" (+{figure.not_counted} preempted)" if figure.not_counted else "")
        if any(figure.round_trips):
            rounds += f", cores {min(figure.round_trips):.0f} to {max(figure.round_trips):.0f} ns apart"
        value = f"{figure.value:,.2f} {figure.unit}".strip()
        rows.append((figure.bench, figure.what, value, figure.target, figure.verdict, rounds))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {2}
    lines = []
    for row in rows:
        cells = [
            cell.rjust(w) if c in right else cell.ljust(w)
            for c, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def summary(figures: Iterable[Figure]) -> str:
    """One line: how many targets are met."""
    verdicts = [figure.verdict for figure in figures if figure.verdict]
    unsure = sum(verdict.endswith("?") for verdict in verdicts)
    met = sum(verdict.startswith("PASS") for verdict in verdicts)
    doubt = f"; {unsure} of them (?) were measured on a machine that was never quiet" if unsure else ""
    return f"{met} of {len(verdicts)} targets met{doubt}"


def save(figures: Iterable[Figure], path: Path, about: dict[str, Any]) -> None:
    """Write figures and what they were measured on as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
    write_whole(path, json.dumps({"about": about, "figures": rows}, indent=1, default=str) + "\n")


def load(path: Path) -> tuple[dict[str, Any], list[Figure]]:
    """What `save` wrote."""
    saved = json.loads(path.read_text())
    rows = [{name: value for name, value in row.items() if name != "verdict"} for row in saved["figures"]]
    return saved["about"], [Figure(**row) for row in rows]


def main(arguments: list[str]) -> int:
    """Print the table of a saved session."""
    paths = [Path(argument) for argument in arguments] or sorted(RESULTS.glob("targets-*.json"))[-1:]
    if not paths:
        print("no saved session under bench/results; run `make bench`", file=sys.stderr)
        return 1
    for path in paths:
        about, figures = load(path)
        print(", ".join(f"{name}: {value}" for name, value in about.items()))
        print(table(figures))
        print(summary(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
