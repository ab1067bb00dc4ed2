"""What Mixed's figures share: algorithms over many settings and streams, and the words of their claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.mixed.statistics import Floats
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, over_streams
from ordstream.lab.evaluation.mixed_streams import INTERVALS, MEASURES, Setting, rebalancings

KEYS = (5_000, 10_000, 100_000, 1_000_000)
BOTH = ("Mixed", "MinTable")

Found = dict[str, npt.NDArray[np.float64]]


def base(options: Options) -> Setting:
    """Table 2's defaults; `--keys` and `--tuples`; A_max is 0.3 K, the paper's 3,000 at its K."""
    given = Setting(tuples=options.tuples)
    if options.keys is None:
        return given
    return replace(given, keys=options.keys, a_max=3 * options.keys // 10)


def key_counts(options: Options) -> tuple[int, ...]:
    """Sizes of the key domain in a sweep over K."""
    if options.keys is None:
        return KEYS
    most = options.keys
    return (most // 20, most // 10, most // 2, most)


def measure_sweep(
    seed: int, number: int, settings: tuple[Setting, ...], names: tuple[str, ...], intervals: tuple[int, ...]
) -> list[Found]:
    """`rebalancings` for each setting, with its number of intervals."""
    return [
        rebalancings(seed, number, one, names, steps) for one, steps in zip(settings, intervals, strict=True)
    ]


class Sweep:
    """What algorithms did in several settings, over all streams."""

    def __init__(
        self,
        options: Options,
        settings: Sequence[Setting],
        names: tuple[str, ...],
        intervals: int | Sequence[int] = INTERVALS,
    ) -> None:
        steps = tuple([intervals] * len(settings) if isinstance(intervals, int) else intervals)
        self.settings, self.names = tuple(settings), names
        self.streams: list[list[Found]] = over_streams(measure_sweep, options, self.settings, names, steps)

    def all(self, i: int, name: str) -> npt.NDArray[np.float64]:
        """Every rebalancing in setting i: array (rebalancings, len(MEASURES))."""
        return np.concatenate([stream[i][name] for stream in self.streams])

    def values(self, i: int, name: str, measure: str) -> Floats:
        return np.asarray(self.all(i, name)[:, MEASURES.index(measure)])

    def mean(self, i: int, name: str, measure: str) -> float:
        """Mean over rebalancings; 0 where there was none."""
        found = self.values(i, name, measure)
        return float(found.mean()) if len(found) else 0.0

    def line(self, at: Sequence[int], name: str, measure: str) -> Floats:
        return np.array([self.mean(i, name, measure) for i in at])

    def curve(
        self,
        label: str,
        xs: Any,
        at: Sequence[int],
        name: str,
        measure: str,
        style: str = "-o",
        scale: float = 1.0,
    ) -> Curve:
        """Means, shaded from the least to the largest stream."""
        column = MEASURES.index(measure)
        by_stream = np.array(
            [
                [stream[i][name][:, column].mean() if len(stream[i][name]) else 0.0 for i in at]
                for stream in self.streams
            ]
        )
        return Curve(
            label,
            xs,
            scale * self.line(at, name, measure),
            scale * by_stream.min(0),
            scale * by_stream.max(0),
            style,
        )

    def rows(self, labels: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """CSV: labels of the setting, algorithm, number of rebalancings, means, and the largest CPU
        seconds of a plan.
        """
        rows = []
        for i, label in enumerate(labels):
            for name in self.names:
                cpu = self.values(i, name, "cpu")
                means = [self.mean(i, name, measure) for measure in MEASURES]
                rows.append([*label, name, len(cpu), *means, float(cpu.max()) if len(cpu) else 0.0])
        return rows

    def columns(self, *labels: str) -> list[str]:
        return [*labels, "algorithm", "rebalancings", *MEASURES, "largest cpu"]

    def balance_claim(self, names: Sequence[str] = ("Mixed", "MinTable")) -> Claim:
        """θ <= θ_max after every rebalancing in which the largest key fits."""
        broken = total = unfit = 0
        for i in range(len(self.settings)):
            for name in names:
                fits, balanced = self.values(i, name, "fits") > 0, self.values(i, name, "balanced") > 0
                total += int(fits.sum())
                unfit += int((~fits).sum())
                broken += int((fits & ~balanced).sum())
        found = f"{broken} of {total:,} above it; in {unfit:,} more one key alone exceeds L_max"
        return Claim("θ <= θ_max after every rebalancing in which the largest key fits", found, broken == 0)


def two_charts(
    sweep: Sweep, x_label: str, xs: Any, groups: dict[str, Sequence[int]], log_x: bool = False
) -> list[Chart]:
    """CPU time of a plan, and migration cost, for each algorithm and group of settings."""
    charts = []
    for label, measure, scale in (
        ("CPU time of a plan (ms)", "cpu", 1e3),
        ("migration cost (% of state)", "migration", 100.0),
    ):
        curves = [
            sweep.curve(
                f"{name} {group}".strip(), xs, at, name, measure, "-o" if name == "Mixed" else "--s", scale
            )
            for name in sweep.names
            for group, at in groups.items()
        ]
        charts.append(Chart(x_label, label, curves, log_x=log_x, log_y=measure == "cpu"))
    return charts


def percent(values: Any) -> str:
    """Shares as per cent, for a claim."""
    return ", ".join(f"{100 * value:.1f}" for value in np.atleast_1d(values)) + " %"


def falls(values: Floats, slack: float = 0.0) -> bool:
    """Each at most its predecessor, but for a relative slack."""
    return bool((np.diff(values) <= slack * np.abs(values[:-1])).all())
