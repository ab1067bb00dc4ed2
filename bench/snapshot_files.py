"""Snapshots in files: one million keys put in order, written and read again, for states of several kinds.

    python bench/snapshot_files.py [--keys N] [--rounds N] [--folder DIR] [--json FILE]

Verified first: what is read is what was written. Each figure is the median over rounds, and the least one
beside it; wall time of the sync (`fsync` of files and folders) is apart, since it is the disk's. The load of
the machine is printed with them: CPU time is the steadier figure where others run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from ordstream._core.state.key_groups import order
from ordstream.ground.ordertags import OrderTag
from ordstream.snapshots.canonical import one_batch
from ordstream.snapshots.checkpoint import Checkpoint
from ordstream.snapshots.snapshot import MemoryRows, Snapshot

KEYS = 1_000_000
PART = 1 << 16  # rows of one exported batch
#: Kind of state -> most milliseconds to write it without the sync, and to read it; None: no goal.
GOALS: dict[str, tuple[float | None, float | None]] = {"int64 -> count": (150, 150)}


def states(keys: int) -> dict[str, tuple[pa.RecordBatch, int]]:
    """Kind -> (rows in the order of arrival, columns of the key)."""
    rng = np.random.default_rng(7)
    places = rng.permutation(keys)
    counts = pa.array(rng.integers(0, 1000, keys))
    numbers = pa.array(places)
    spread = pa.array((places.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))
    texts = pa.array([f"user-{i:08d}" for i in places])
    links = pa.array([f"https://example.org/{i % 7}/item/{i}" for i in places])
    floats = pa.array(rng.random(keys))
    nulls = pa.array(rng.random(keys), mask=rng.random(keys) < 0.1)
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(keys + 1, dtype=np.int32) * 4), pa.array(np.arange(keys * 4))
    )

    def rows(*columns: pa.Array) -> pa.RecordBatch:
        return pa.record_batch(list(columns), names=[f"c{i}" for i in range(len(columns))])

    return {
        "int64 -> count": (rows(numbers, counts), 1),
        "wide int64 -> count": (rows(spread, counts), 1),
        "two int64 -> count": (rows(pa.array(places % 1000), pa.array(places // 1000), counts), 2),
        "string -> count": (rows(texts, counts), 1),
        "link -> count": (rows(links, counts), 1),
        "int64 -> six aggregates": (rows(numbers, counts, floats, floats, nulls, counts, nulls), 1),
        "int64 -> string": (rows(numbers, links), 1),
        "int64 -> list of 4": (rows(numbers, lists), 1),
    }


def timed(body: Callable[[], object]) -> tuple[float, float, object]:
    """Wall and CPU time of a call, in milliseconds, and what it gave."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = body()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3, result


def verified(checkpoint: Checkpoint, rows: MemoryRows) -> None:
    """See that what lies in the checkpoint is these rows."""
    found = one_batch(checkpoint.latest(verify=True).states["op"])
    wanted = one_batch(rows).take(pa.array(order(one_batch(rows), rows.keys)[0]))
    assert found.equals(wanted), "what was read is not what was written"


def measured(folder: Path, batch: pa.RecordBatch, keys: int, rounds: int) -> dict[str, list[float]]:
    """Figure -> milliseconds of each round."""
    parts = [batch.slice(low, PART) for low in range(0, batch.num_rows, PART)]
    rows = MemoryRows({"operator": "count"}, batch.schema, parts, keys)
    snapshot = Snapshot(batch.num_rows, OrderTag(batch.num_rows, 0), states={"op": rows})
    checkpoint = Checkpoint(folder)
    checkpoint.write(snapshot)
    verified(checkpoint, rows)
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for _ in range(rounds):
        _, cpu, _ = timed(lambda: order(batch, keys))
        note("order CPU", cpu)
        wall, cpu, written = timed(lambda: checkpoint.write(snapshot))
        note("write", wall - written.sync_seconds * 1e3)
        note("write CPU", cpu)
        note("sync", written.sync_seconds * 1e3)
        wall, cpu, _ = timed(
            lambda: sum(part.num_rows for part in checkpoint.latest().states["op"].batches())
        )
        note("read", wall)
        note("read CPU", cpu)
        note("MB", written.bytes / 1e6)
    return found


def main() -> int:
    """Run, print, and say by the exit status whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--folder", type=Path, help="on the disk to be measured; default: the system's for temporary files"
    )
    parser.add_argument("--json", type=Path, help="write the figures of all rounds there")
    asked = parser.parse_args()
    results = {}
    short = False
    names = ["order CPU", "write", "write CPU", "sync", "read", "read CPU", "MB"]
    load = f"Load: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"
    print(f"{asked.keys:,} keys, {asked.rounds} rounds: median (least), ms. {load}")
    print(f"{'':26}" + "".join(f"{name:>16}" for name in names))
    for kind, (batch, keys) in states(asked.keys).items():
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            found = results[kind] = measured(Path(folder), batch, keys, asked.rounds)
        cells = [f"{statistics.median(found[name]):.0f} ({min(found[name]):.0f})" for name in names]
        verdict = ""
        for goal, name in zip(GOALS.get(kind, ()), ("write", "read"), strict=False):
            if goal is not None:
                met = statistics.median(found[name]) <= goal
                short = short or not met
                verdict += f"  {name} <= {goal:.0f}: {'PASS' if met else 'short'}"
        print(f"{kind:26}" + "".join(f"{cell:>16}" for cell in cells) + verdict, flush=True)
    print(f"Load at the end: {os.getloadavg()[0]:.1f}")
    if asked.json:
        asked.json.write_text(json.dumps({"keys": asked.keys, "milliseconds": results}, indent=1))
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
