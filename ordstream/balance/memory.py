"""What is known of a stream that goes on, job after job: old evidence fades as new rows come and as jobs
pass.

A job's own sketches (DKG's learners, POSG's matrices) count as they are. Before they are added, what is held
is scaled down by `HalfLife.left`: by half for every so many new rows, and by half for every so many jobs. It
never falls so far that too little is left to decide by, so a job of three rows adds three rows to the
picture and replaces nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.grouping import KeyMap
from ordstream.balance.keys import key_words
from ordstream.balance.posg import POSG
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError
from ordstream.ground.numbers import is_number

#: Rows that each bucket, and a key with share Θ, shall have in a map's evidence before any of it fades: so
#: many that their loads are known within a tenth (one standard deviation).
ENOUGH = 100
#: And before a map is made of them: within a third. With less, what is scheduled is chance.
FEW = 10


@dataclass(frozen=True)
class HalfLife:
    """How fast evidence fades.

    Parameters
    ----------
    rows : float
        > 0: after so many new rows old ones count half. math.inf: they don't fade by rows.
    jobs : float
        > 0: after so many jobs that brought rows old ones count half. math.inf: not by jobs.

    Raises
    ------
    PlanError
        One is not positive.
    """

    rows: float
    jobs: float

    def __post_init__(self) -> None:
        for name, value in (("rows", self.rows), ("jobs", self.jobs)):
            if not is_number(value) or not value > 0:
                raise PlanError(
                    f"the half-life in {name} must be a number above 0 (inf: never), not {value!r}"
                )

    def left(self, held: float, new: float, least: float) -> float:
        """What old evidence counts after one more job, 0 to 1.

        Parameters
        ----------
        held, new : float
            Mass of the old evidence and of the new one, in rows.
        least : float
            The two together keep so much, or all that they have.
        """
        if held <= 0 or new <= 0:
            return 1.0
        faded = 2.0 ** -(new / self.rows + 1 / self.jobs)
        return float(min(1.0, max(faded, (least - new) / held)))


#: Evidence is scaled when it counts so much or less: counts are whole, and to scale them at every few rows
#: would round them away.
STEP = 0.8


class Fading:
    """What is still to be scaled down.

    Parameters
    ----------
    half_life : HalfLife
    """

    def __init__(self, half_life: HalfLife) -> None:
        self.half_life = half_life
        self._left = 1.0

    def step(self, held: float, new: float, least: float) -> float:
        """One more job (`HalfLife.left`): what to scale the old evidence by now, 1.0 for later."""
        self._left *= self.half_life.left(held * self._left, new, least)
        if self._left > STEP:
            return 1.0
        found, self._left = self._left, 1.0
        return found


#: Of keys, by default: with a batch's rows in the thousands little more than the last batches count.
KEYS = HalfLife(5_000, 4)


class KeyMemory:
    """The keys of a stream that goes on, and the map that they make (DKG). One writer.

    Parameters
    ----------
    parameters : DKG
        `m` bounds nothing here.
    half_life : HalfLife, optional
        Default 5,000 rows, 4 jobs.
    unit : int
        What a row weighs in the learners, on average (`weights`).
    """

    def __init__(self, parameters: DKG, half_life: HalfLife | None = None, unit: int = 1) -> None:
        self.parameters = parameters
        self.unit = unit
        self._fading = Fading(KEYS if half_life is None else half_life)
        self.learner: DKGLearner | None = None
        self.map: KeyMap | None = None

    def least(self, instances: int, each: int = ENOUGH) -> int:
        """Mass with which each bucket, and a key with share Θ, has so many rows."""
        return math.ceil(self.unit * each * max(1 / self.parameters.theta, instances * self.parameters.mu))

    def take(self, job: DKGLearner) -> KeyMap | None:
        """Add what one job's tasks have learnt; the map for the next job, None before any row.

        Below `FEW` rows for each bucket, or for a key with share Θ, the map is one of buckets in turn. What
        was learnt for another number of instances is dropped: its buckets are others.
        """
        if not job.learnt:
            return self.map
        k, held = job.instances, self.learner
        if held is None or held.instances != k:
            self.learner = held = job.copy()
        else:
            masses = (mass / self.unit for mass in (held.learnt, job.learnt, self.least(k)))
            held.fade(self._fading.step(*masses))
            held.merge(job)
        known = held.learnt >= self.least(k, FEW)
        self.map = (held if known else DKGLearner(held.parameters, k)).build()
        return self.map


#: What a tuple of mean cost weighs where keys are weighed by cost: fine enough for what costs a sixteenth.
UNIT = 16
#: Matrices of costs by key: 4 rows of 544 columns.
COSTS = POSG(epsilon=0.005)


def weights(times: ExecutionTimes | None, keys: Any) -> npt.NDArray[np.int64]:
    """What each tuple weighs: its estimated cost over the mean one, times `UNIT`, at least 1; `UNIT` while
    no cost is known.
    """
    if times is None or not times.total_time:
        return np.full(len(key_words(keys)), UNIT, dtype=np.int64)
    found = np.rint(times.estimate_many(keys) * (UNIT / times.mean_time))
    return np.clip(found, 1, 2**40).astype(np.int64)


class TimeMemory:
    """Execution times of a stream that goes on (POSG's matrices). One writer.

    Parameters
    ----------
    parameters : POSG
    half_life : HalfLife, optional
        Default N rows (or as many as the matrices have columns, if these are more), 4 jobs.
    """

    def __init__(self, parameters: POSG, half_life: HalfLife | None = None) -> None:
        self.parameters = parameters
        self.least = max(parameters.window, parameters.times().columns)
        self._fading = Fading(HalfLife(self.least, 4) if half_life is None else half_life)
        self.times: ExecutionTimes | None = None

    def take(self, job: ExecutionTimes) -> ExecutionTimes | None:
        """Add what one job's tasks have measured; the matrices for the next job, None before any row.
        Nothing fades below N rows, or a row per column.
        """
        if not job.tuples:
            return self.times
        if self.times is None:
            self.times = job.copy()
        else:
            self.times.fade(self._fading.step(self.times.tuples, job.tuples, self.least))
            self.times.merge(job)
        return self.times
