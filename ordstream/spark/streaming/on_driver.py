"""A small micro-batch in the driver's process, without a Python worker.

The driver fetches the rows and sorts them as Spark would. The same function then runs on them, on a copy of
the pipeline as a worker would have it: files, results and manifest are those of a task.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from ordstream.spark.streaming.epoch_functions import WholeFunction
from ordstream.spark.streaming.epoch_manifest import Said
from ordstream.spark.streaming.epoch_marks import RESULT


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


def is_small(before: Said | None, most: int) -> bool:
    """A micro-batch may be fetched: the one in front, whose `input` this is, had at most so many rows. One
    that is larger all the same is noticed, and sorted twice. With 0 none may.
    """
    return most > 0 and before is not None and int(before["rows"]) <= most
