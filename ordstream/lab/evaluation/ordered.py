"""The ordered paper's evaluation (section 7), Figures 8 to 14, and what lies beyond its figures.

Everything here measures this machine; `ordered_runs.py` says how. On other core counts than the paper's 16 a
statement may not hold: the claims say what was found, and each figure's own notes say why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from ordstream.lab.evaluation.experiment import Experiment, Options, Result
from ordstream.lab.evaluation.ordered_chunks import chunks, order_cost, zipf
from ordstream.lab.evaluation.ordered_heuristics import fig8
from ordstream.lab.evaluation.ordered_load import head_of_line, idle, load
from ordstream.lab.evaluation.ordered_partitioning import fig9, fig10, fig11
from ordstream.lab.evaluation.ordered_reordering import fig12, fig13, fig14

#: Cores that others used, from which on a run counts as disturbed.
DISTURBED = 0.1


def with_load(run: Callable[[Options], Result]) -> Callable[[Options], Result]:
    """An experiment that also says how much of the machine others used during its runs, where it
    measured that.
    """

    @wraps(run)
    def running(options: Options) -> Result:
        result = run(options)
        given = (
            [float(load) for load in result.column("other_load")] if "other_load" in result.columns else []
        )
        if not given:
            return result
        many = sum(load > DISTURBED for load in given)
        line = (
            f"others used at most {max(given):.2f} cores during a run; {many} of {len(given)} settings had "
            f"more than {DISTURBED} in one"
        )
        return replace(result, lines=[*result.lines, line + (": their figures say less" if many else "")])

    return running


_FOUND = [
    Experiment("fig8", "Ordered paper, Fig. 8: CT, LP, ET and QST on five queries", 1, fig8, timed=True),
    Experiment(
        "fig9", "Ordered paper, Fig. 9: load imbalance, Gaussian keys in ranges", 1, fig9, timed=True
    ),
    Experiment(
        "fig10",
        "Ordered paper, Fig. 10: latency of a partitioned operator over its cost",
        1,
        fig10,
        timed=True,
    ),
    Experiment(
        "fig11",
        "Ordered paper, Fig. 11: hybrid-queue and partitioned-queue on five queries",
        1,
        fig11,
        timed=True,
    ),
    Experiment("fig12", "Ordered paper, Fig. 12: reordering of a light operator", 1, fig12, timed=True),
    Experiment(
        "fig13", "Ordered paper, Fig. 13: reordering behind 50 outputs per input", 1, fig13, timed=True
    ),
    Experiment("fig14", "Ordered paper, Fig. 14: reordering schemes on five queries", 1, fig14, timed=True),
    Experiment(
        "chunks",
        "Beyond its figures: chunk sizes 1 to 1,024 and auto, what they buy and cost",
        1,
        chunks,
        timed=True,
    ),
    Experiment(
        "load",
        "Beyond its figures: latency from the intended send time, 10 to 95 % of capacity",
        1,
        load,
        timed=True,
    ),
    Experiment("idle", "Beyond its figures: CPU of a node with nothing to do", 1, idle, timed=True),
    Experiment(
        "order-cost", "Beyond its figures: ordered minus unordered, ns per tuple", 1, order_cost, timed=True
    ),
    Experiment(
        "head-of-line",
        "Beyond its figures: one tuple of 1 s at the head, memory and recovery",
        1,
        head_of_line,
        timed=True,
    ),
    Experiment("zipf", "Beyond its figures: partitioning schemes under Zipf keys", 1, zipf, timed=True),
]

EXPERIMENTS = [replace(one, run=with_load(one.run)) for one in _FOUND]
