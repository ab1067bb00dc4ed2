"""A small micro-batch in the driver's process, without a Python worker.

The driver fetches the rows and sorts them as Spark would. The same function then runs on them, on a copy of
the pipeline as a worker would have it: files, results and manifest are those of a task.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.plan.plan import Plan
from ordstream.spark.streaming.epoch_functions import WholeFunction
from ordstream.spark.streaming.epoch_manifest import EpochManifest
from ordstream.spark.streaming.epoch_marks import RESULT

AUTO = "auto"
#: With "auto": the most rows of a micro-batch, and the most bytes of rows and states.
AUTO_ROWS = 10_000
AUTO_SIZE = 32 << 20
#: The most rows that a micro-batch in the driver may have.
MOST_ROWS = 10_000_000


def run_here(function: WholeFunction, batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """What the function says of an epoch, as the job would. Threads only where a number of them was given:
    a small batch repays none.
    """
    if not isinstance(function.workers, int):
        function = replace(function, workers=0)
    data = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    own: WholeFunction = pickle.loads(data)
    said = [one for batch in own(iter(batches)) for one in batch.column(RESULT).to_pylist()]
    return [json.loads(one) | {"on_driver": True} for one in said]


@dataclass(frozen=True)
class SmallBatches:
    """Which micro-batches run in the driver.

    Attributes
    ----------
    rows : int
        The most that one may have; 0: none does.
    size : int or None
        The most bytes that the rows of the batch in front, and the states behind it, may have; None: they
        do not matter.
    """

    rows: int = 0
    size: int | None = None

    @classmethod
    def asked(cls, driver_rows: Any, plan: Plan, workers: int | str | None) -> SmallBatches:
        """What `driver_rows` of a stream asks for. "auto" keeps the user's own code, threads that were asked
        for, and what is large, away from the driver.

        Raises
        ------
        PlanError
            It is neither "auto" nor a number of rows.
        """
        if is_one_of(driver_rows, (AUTO,)):
            own = workers is not None or any(one.runs_user_code for one in plan.operators)
            return cls() if own else cls(AUTO_ROWS, AUTO_SIZE)
        if type(driver_rows) is not int or not 0 <= driver_rows <= MOST_ROWS:
            raise PlanError(
                f"driver_rows is 'auto' or a whole number from 0 to {MOST_ROWS:,}, got {driver_rows!r:.80}"
            )
        return cls(driver_rows)

    def follow(self, before: EpochManifest | None) -> bool:
        """The batch behind an epoch is taken for a small one, as the epoch's own was. One that is larger all
        the same is noticed, and sorted twice.
        """
        if not self.rows or before is None or int(before.input["rows"]) > self.rows:
            return False
        taken = before.figures.get("input_bytes")  # an older release did not say it
        return self.size is None or (taken is not None and int(taken) + before.state_bytes <= self.size)


NEVER = SmallBatches()
