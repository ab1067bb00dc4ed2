"""What a node's parts cost on one machine: measured constants, as a file.

`ordstream.lab.simulation.calibrate` measures them, `ordstream.lab.simulation.node` spends them. All times
are nanoseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ordstream.errors import PlanError
from ordstream.ground.whole_file import write_whole

#: The model that comes with the package.
DEFAULT = Path(__file__).with_name("cost_model.json")


def chosen_path() -> Path | None:
    """The file that ORDSTREAM_COST_MODEL names: a cost model of another machine than the package's.
    None: not set.
    """
    given = os.environ.get("ORDSTREAM_COST_MODEL")
    return Path(given) if given else None


@dataclass(frozen=True)
class PathCosts:
    """A worker's own path through the runtime, nothing contended; ns.

    Attributes
    ----------
    hold : taking from the ingress, per hold of its flag. sl_chunk, sl_tuple : a stateless operator fed by
    the ingress, ticket to reorder buffer. next_chunk, next_tuple : a stateless operator behind another one.
    next_empty, sf_empty : a chunk without rows, on its way through such an operator, or through a stateful
    one. enter_chunk : a release into the next worklist, serial; enter_part : per part of a partitioned
    operator. split_chunk, split_tuple, split_part : dividing a chunk by bucket, in the worker that sends it.
    ps_chunk, ps_tuple, ps_part : a partitioned operator with an empty function: lookup of the key, parts put
    together. sf_chunk, sf_tuple : a stateful one, fed by another operator. egress_chunk, egress_tuple :
    writing output rows, serial.
    """

    hold: float
    sl_chunk: float
    sl_tuple: float
    next_chunk: float
    next_tuple: float
    enter_chunk: float
    enter_part: float
    split_chunk: float
    split_tuple: float
    split_part: float
    ps_chunk: float
    ps_tuple: float
    ps_part: float
    sf_chunk: float
    sf_tuple: float
    egress_chunk: float
    egress_tuple: float
    next_empty: float
    sf_empty: float


@dataclass(frozen=True)
class CostModel:
    """Constants of one machine.

    Attributes
    ----------
    transfer : a cache line from the core that wrote it, on the critical path. byte : of columns, streaming.
    scatter : one of many lines at random places, loads overlapping. rmw : a locked instruction on a line
    that the core owns. decide, decide_each : a scheduling decision, and its part per operator. slice : the
    clock, and entering and leaving an operator. notify, wake : waking a parked worker, for the one who
    wakes; until the woken one runs. yields : one round of a worker that waits. publish, read_row : handing
    an output batch over; CPU time of the thread that feeds and reads, per source tuple. slowdown : of work
    while all cores of the machine are busy. alone : path of a run with one worker, whose accesses are plain.
    shared : of a worker among several. about : machine, versions, commit, date.
    """

    transfer: float
    byte: float
    scatter: float
    rmw: float
    decide: float
    decide_each: float
    slice: float
    notify: float
    wake: float
    yields: float
    publish: float
    read_row: float
    slowdown: float
    alone: PathCosts
    shared: PathCosts
    about: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write as JSON, whole or not at all.

        Raises
        ------
        OSError
            One line with the file's name.
        """
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path | None = None) -> CostModel:
        """Read what `save` wrote; default: the model of the package.

        Raises
        ------
        PlanError
            Naming the file and what it lacks.
        """
        path = DEFAULT if path is None else path
        try:
            found = json.loads(path.read_text())
            for mode in ("alone", "shared"):
                found[mode] = PathCosts(**found[mode])
            return cls(**found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PlanError(
                f"{path} is no cost model: {error}; measure one with `ordstream bench cost-model`"
            ) from error

    def path(self, workers: int) -> PathCosts:
        """The path's costs in a run with so many workers."""
        return self.alone if workers <= 1 else self.shared
