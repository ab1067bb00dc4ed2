"""POSG beside what it has to compete with when it is used: Round-Robin row by row, and Flink's load-aware
rebalance (FLIP-339), which knows what waits at the sender and nothing of execution times.

Setting of Figure 4, a warm scheduler. How much the receivers hold themselves decides what FLIP-339 sees: 0
tuples is the ideal, two exclusive buffers of one tuple each the least that Flink has, and a buffer of 32 KiB
holds hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ordstream.lab.evaluation.experiment import Claim, Experiment, Options, Result, over_streams
from ordstream.lab.evaluation.posg import ALPHAS, completion_chart, name_of, stream
from ordstream.lab.evaluation.posg import Found as PosgFound
from ordstream.lab.evaluation.posg_streams import Floats, Setting
from ordstream.lab.simulation.load_aware import LoadAwareRebalance

#: Tuples that the receivers hold themselves.
RECEIVED = (0, 2, 20, 600)
PLAIN = ("POSG", "Round-Robin", "Full Knowledge")
NAMES = (*PLAIN, *(f"FLIP-339, {held}" for held in RECEIVED))


def measure(seed: int, number: int, settings: Sequence[Setting]) -> Floats:
    """L of each of NAMES for each setting: array (settings, NAMES)."""
    found = []
    for setting in settings:
        given = stream(seed, number, setting)
        policies = [given.policy(name) for name in PLAIN] + [LoadAwareRebalance(held) for held in RECEIVED]
        found.append([given.run(policy).mean_completion() for policy in policies])
    return np.array(found)


class Found(PosgFound):
    """L of every stream, setting and algorithm."""

    def __init__(self, options: Options, settings: Sequence[Setting]) -> None:
        self.algorithms = NAMES
        self.values: Floats = np.array(over_streams(measure, options, tuple(settings)))


def rivals(options: Options) -> Result:
    """L by frequency distribution of POSG, Round-Robin row by row, Full Knowledge and FLIP-339."""
    found = Found(options, [Setting(alpha=alpha) for alpha in ALPHAS])
    columns, rows = found.table("distribution", [name_of(alpha) for alpha in ALPHAS])
    at = ALPHAS.index(1.0)
    over = {name: found.of("Round-Robin") / found.of(name) for name in NAMES}
    lines = [
        f"{name}: {', '.join(f'{one:.2f}' for one in values.mean(axis=0))} times Round-Robin's speed "
        f"({', '.join(name_of(alpha) for alpha in ALPHAS)}); Zipf-1 {values[:, at].min():.2f} to "
        f"{values[:, at].max():.2f}"
        for name, values in over.items()
    ]
    posg, ideal, blind = (over[name][:, at].mean() for name in ("POSG", "FLIP-339, 0", "FLIP-339, 600"))
    claims = [
        Claim("Zipf-1: POSG is above Round-Robin row by row", f"{posg:.2f} times", bool(posg > 1)),
        Claim(
            "Zipf-1: where the sender sees every tuple that waits, FLIP-339 is above POSG",
            f"{ideal:.2f} and {posg:.2f} times Round-Robin's",
            bool(ideal > posg),
        ),
        Claim(
            "Zipf-1: where receivers hold hundreds of tuples, POSG is above FLIP-339",
            f"{posg:.2f} and {blind:.2f} times Round-Robin's",
            bool(posg > blind),
        ),
    ]
    return Result(
        columns, rows, [completion_chart(found, "Zipf's α (0: uniform)", ALPHAS, NAMES)], claims, lines
    )


EXPERIMENTS = [
    Experiment("posg-rivals", "POSG beside Round-Robin and Flink's load-aware rebalance", 12, rivals),
]
