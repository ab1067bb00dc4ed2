"""The papers' experiments, to be run again: one file per paper, one function per figure or table.

`ordstream bench NAME` runs them; `EXPERIMENTS` of each file in `PAPERS` names them.
"""

from __future__ import annotations

import importlib

from ordstream.lab.evaluation.experiment import Experiment

#: Modules of this package, one per paper, and one for what runs in Spark; each has EXPERIMENTS, a list of
#: Experiment.
PAPERS = ("ordered", "dkg", "posg", "posg_rivals", "las", "mixed", "prototypes", "simulation")


def experiments() -> dict[str, Experiment]:
    """Every experiment by its name, in the papers' order."""
    found: dict[str, Experiment] = {}
    for paper in PAPERS:
        listed: list[Experiment] = importlib.import_module(f"{__name__}.{paper}").EXPERIMENTS
        found.update({experiment.name: experiment for experiment in listed})
    return found
