"""Makes `checkpoint-v1`, the stored checkpoint of format version 1 (docs/checkpoint-format.md).

It was made once, by ``python tests/data/make_checkpoint_v1.py``, and is never made again: that later
versions read what an earlier one wrote is what it is for. A new format version gets its own folder and
script.
"""

from __future__ import annotations

import datetime
import decimal
import math
from pathlib import Path

import pyarrow as pa

from ordstream.ground.ordertags import OrderTag
from ordstream.snapshots.checkpoint import Checkpoint
from ordstream.snapshots.snapshot import MemoryRows, Snapshot

FOLDER = Path(__file__).parent / "checkpoint-v1"
POSITION = {"file": "häuser.parquet", "row_group": 3}
MODELS = {"shed": bytes(range(40))}


def typed(rows: int = 9) -> pa.RecordBatch:
    """A key of three columns and state columns of every kind, with nulls."""
    some = range(rows)
    day = datetime.date(2024, 2, 29)
    data = {
        "user": pa.array([None, "", *(f"user {i}" for i in some[2:])], pa.string()),
        "real": pa.array([math.nan, -math.inf, *(i / 4 for i in some[2:])], pa.float64()),
        "flag": pa.array([i % 2 == 0 for i in some], pa.bool_()),
        "i8": pa.array([-128, None, *some[2:]], pa.int8()),
        "u64": pa.array([2**64 - 1, *some[1:]], pa.uint64()),
        "f32": pa.array([None if i == 4 else i / 8 for i in some], pa.float32()),
        "bool": pa.array([None if i == 5 else i % 3 == 0 for i in some], pa.bool_()),
        "text": pa.array([None if i == 6 else "ä" * i for i in some], pa.string()),
        "raw": pa.array([bytes([i]) * i for i in some], pa.binary()),
        "day": pa.array([day + datetime.timedelta(i) for i in some], pa.date32()),
        "time": pa.array([i * 10**9 for i in some], pa.timestamp("us", "UTC")),
        "money": pa.array([decimal.Decimal(i) / 8 for i in some], pa.decimal128(12, 3)),
        "list": pa.array([None if i == 7 else list(range(i % 4)) for i in some], pa.list_(pa.int64())),
        "texts": pa.array([[str(j) for j in range(i % 3)] for i in some], pa.list_(pa.string())),
    }
    return pa.record_batch(list(data.values()), names=list(data))


def counted(keys: int) -> pa.RecordBatch:
    """int64 keys, among them null, and counts."""
    return pa.record_batch(
        [
            pa.array([None, *range(-2, keys - 3)], pa.int64()),
            pa.array([i * i for i in range(keys)], pa.int64()),
        ],
        names=["k", "count"],
    )


def states(first: int) -> dict[str, MemoryRows]:
    """States of a count, of a state of many types, of one without a key, and an empty one."""
    one = pa.record_batch([pa.array([12], pa.int64())], names=["count"])
    count = {"operator": "count", "key": "k: int64", "parameters": "count by k, updates"}
    every = {
        "operator": "every",
        "key": "user: string, real: double, flag: bool",
        "parameters": "none",
        "version": "7",
    }
    return {
        "count": MemoryRows(count, counted(first).schema, [counted(first)], 1),
        "every type/ä": MemoryRows(every, typed().schema, [typed()], 3),
        "all": MemoryRows({**count, "key": "none"}, one.schema, [one], 0),
        "empty": MemoryRows(count, counted(4).schema, [], 1),
    }


def snapshots() -> list[Snapshot]:
    """What the folder holds."""
    return [
        Snapshot(10, OrderTag(10, -1), states=states(5)),
        Snapshot(25, OrderTag(25, -1), 1_700_000_000, POSITION, states(9), MODELS, OrderTag(24, 3)),
    ]


if __name__ == "__main__":
    if FOLDER.exists():
        raise SystemExit(f"{FOLDER} is there: it is made once only")
    for snapshot in snapshots():
        Checkpoint(FOLDER).write(snapshot)
