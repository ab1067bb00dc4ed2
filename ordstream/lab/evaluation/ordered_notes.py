"""What explains a finding, measured beside it: ratios by round, how busy the workers were, and what this
machine gives two plain loops.

A ratio of two means says little where the runs of one setting differ by a third. Settings run in turn, so
the runs of one round met the same machine: a difference that is there in every round is told apart from the
noise, another one is not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from ordstream.lab.simulation import real

Row = Mapping[str, Any]


def by_round(a: Row, b: Row) -> list[float]:
    """Throughput of `a` over that of `b`, round by round, ascending; rows with a column `rates`
    (`Measured.rates`).
    """
    pairs = zip(str(a["rates"]).split(), str(b["rates"]).split(), strict=True)
    return sorted(float(one) / float(other) for one, other in pairs)


def compared(a: Row, b: Row, good: bool) -> str:
    """The ratio of mean throughputs as text with its range over the rounds; "(no)" where it is not what was
    said.

    "(no, not in every round)": the rounds disagree, so the runs do not tell the two apart.
    """
    ratios = by_round(a, b)
    verdict = "" if good else " (no)" if ratios[0] > 1 or ratios[-1] < 1 else " (no, not in every round)"
    return f"{a['tuples_per_s'] / b['tuples_per_s']:.2f} [{ratios[0]:.2f} to {ratios[-1]:.2f}]{verdict}"


def busy(row: Row) -> float:
    """CPU that the whole process used, in parts of what its workers can use: about 1 means that no
    worker waited.
    """
    return float(row["cpu_ns"]) * float(row["tuples_per_s"]) / 1e9 / float(row["workers"])


def machine_line(workers: int, rounds: int) -> str:
    """What plain loops that share nothing gain from so many cores now: the most that anything here can
    scale.
    """
    tuples, steps = real.BATCH, 200
    ratios, ones = [], []
    real.loops(tuples, steps, workers)
    for _ in range(rounds):
        one, all_of_them = real.loops(tuples, steps, 1), real.loops(tuples, steps, workers)
        ones.append(one)
        ratios.append(workers * one / all_of_them)
    return (
        f"the machine: {workers} plain loops that share nothing do {statistics.median(ratios):.2f} times "
        "the work of one "
        f"({min(ratios):.2f} to {max(ratios):.2f} in {rounds} rounds); the slowest of these loops alone "
        f"took {max(ones) / min(ones):.2f} "
        "times as long as the fastest"
    )
