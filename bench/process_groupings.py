"""POSG between node processes beside its rivals, on real clocks (`bench/processes.py posg`).

The job is POSG's of section V-A: `items` items of a Zipf distribution, each with one of 64 execution times
that are multiples of the smallest, drawn at random. A tuple's function sleeps for its time, or works for it
(`--work spin`: then leave the caller a processor of its own). Tuples arrive with a fixed gap of
`provisioning` times what a tuple takes, over k. That is what its function took, by its own clock (a sleep
takes some 60 us more than it is asked for), and what a node does beside it. `--calibrate` tuples tell both
first, by Round-Robin row by row. They come a tenth faster than the work alone allows, so nodes always have
the next one, and the source, the caller and the nodes share the processors as they do later. Else a
node that needs a twentieth more than the work alone would be overloaded, whoever sends to it. With the
defaults each rival takes about 12 seconds.

Every rival gets the same stream, and its output is compared with the input first, value for value and in
order. Of the tuples behind the first `skip` are shown: the completion time, from arrival to the end of the
tuple's execution (the paper's), and the latency, from arrival to when the reader has it, in the order; and
of the whole stream how long it took.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TIMES = 64
TICK_S = 0.001
SOURCE = pa.schema([("item", pa.int64()), ("us", pa.int64()), ("due", pa.int64())])
DONE = pa.schema([*SOURCE, pa.field("done", pa.int64()), pa.field("took", pa.int64())])


def sleeps(row: Any) -> tuple[int, int, int, int, int]:
    """A tuple that waits for something else for its time."""
    began = time.monotonic_ns()
    time.sleep(row.us * 1e-6)
    done = time.monotonic_ns()
    return row.item, row.us, row.due, done, done - began


def spins(row: Any) -> tuple[int, int, int, int, int]:
    """A tuple that takes a processor for its time."""
    began = time.monotonic_ns()
    end = began + row.us * 1_000
    while (done := time.monotonic_ns()) < end:
        pass
    return row.item, row.us, row.due, done, done - began


class Known:
    """Full Knowledge: greedy by the true execution times."""

    splits_keys = True

    def __init__(self, instances: int, us: npt.NDArray[np.int64]) -> None:
        from ordstream.balance.baselines import FullKnowledge

        self.instances, self._us = instances, us
        self._greedy = FullKnowledge(instances)

    def route(self, keys: Any) -> npt.NDArray[np.int32]:
        """Instances of a column of items."""
        return self._greedy.route(self._us[keys.to_numpy()].astype(np.float64))


def posg(asked: argparse.Namespace) -> dict[str, Any]:
    """Run all rivals; the figures."""
    import ordstream as od

    rng = np.random.default_rng(asked.seed)
    k, m = asked.processes, asked.tuples
    shares = 1 / np.arange(1, asked.items + 1) ** asked.zipf
    items = rng.choice(asked.items, m, p=shares / shares.sum())
    us = rng.integers(1, TIMES + 1, asked.items) * asked.least_us
    work = us[items]
    pipeline = od.Pipeline(SOURCE).map(sleeps if asked.work == "sleep" else spins, schema=DONE)
    rivals: dict[str, Any] = {
        "round robin by row": lambda: "round_robin",
        "round robin by block": lambda: "blocks",
        "least outstanding": lambda: "least_outstanding",
        "POSG": lambda: od.POSG(window=asked.window, mu=asked.mu, resync=asked.resync),
        "full knowledge": lambda: Known(k, us),
    }

    over_s, beside_s = beside(pipeline, items[: asked.calibrate], work[: asked.calibrate], k)
    gap_s = asked.provisioning * (work.mean() * 1e-6 + over_s + beside_s) / k
    started = threading.Event()

    def paced() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"item": 0, "us": 1, "due": 0}], schema=SOURCE)
        started.wait()
        began, sent = time.monotonic(), 0
        while sent < m:
            now = time.monotonic()
            there = min(m, max(0, int((now - began) / gap_s) + 1))
            if there > sent:
                due = ((began + np.arange(sent, there) * gap_s) * 1e9).astype(np.int64)
                columns = (items[sent:there], work[sent:there], due)
                yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SOURCE)
                sent = there
            time.sleep(TICK_S)

    found: dict[str, Any] = {}
    for name, grouping in rivals.items():
        given = grouping()
        key = {} if isinstance(given, str) else {"grouping_key": "item"}
        batches, waits = [], []
        started.clear()
        with pipeline.stream(paced(), processes=k, grouping=given, **key) as out:
            for batch in out:
                started.set()  # at the first row: the processes run
                waits.append(time.monotonic_ns() - batch["due"].to_numpy())
                batches.append(batch)
            report = out.report
        table = pa.Table.from_batches(batches).slice(1)
        assert np.array_equal(table["item"].to_numpy(), items), f"{name}: another output"
        assert np.array_equal(table["us"].to_numpy(), work), f"{name}: another output"
        due, done = table["due"].to_numpy(), table["done"].to_numpy()
        sent = [c.rows for c in report.channels if c.sender == "caller"]
        found[name] = {
            "completion_ms": _of((done - due)[asked.skip :]),
            "latency_ms": _of(np.concatenate(waits)[1 + asked.skip :]),
            "stream_s": round(float(done.max() - due[0]) / 1e9, 3),
            "rows": sent,
            **report.grouping,
        }
        print(f"{name}: {json.dumps(found[name])}", file=sys.stderr, flush=True)
    mean = {name: figures["completion_ms"]["mean"] for name, figures in found.items()}
    return {
        "tuples": m, "skip": asked.skip, "k": k, "zipf": asked.zipf, "work": asked.work,
        "provisioning": asked.provisioning, "mean_us": float(work.mean()), "window": asked.window,
        "over_us": round(over_s * 1e6, 1), "beside_us": round(beside_s * 1e6, 1),
        "gap_us": round(gap_s * 1e6, 1),
        "rivals": found,
        "speed-up of POSG over round robin by row": round(mean["round robin by row"] / mean["POSG"], 3),
    }  # fmt: skip


def beside(pipeline: Any, items: Any, work: npt.NDArray[np.int64], k: int) -> tuple[float, float]:
    """Seconds that a tuple's function takes longer than it should, and that a node takes beside it."""
    gap_s = 0.9 * work.mean() * 1e-6 / k
    started = threading.Event()

    def faster() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"item": 0, "us": 1, "due": 0}], schema=SOURCE)
        started.wait()
        began = time.monotonic()
        for place, (item, us) in enumerate(zip(items.tolist(), work.tolist(), strict=True)):
            time.sleep(max(0.0, began + place * gap_s - time.monotonic()))
            yield pa.RecordBatch.from_pylist([{"item": item, "us": us, "due": 0}], schema=SOURCE)

    batches = []
    with pipeline.stream(faster(), processes=k, grouping="round_robin") as out:
        for batch in out:
            started.set()
            batches.append(batch)
    table = pa.Table.from_batches(batches).slice(1)
    done, took = table["done"].to_numpy(), table["took"].to_numpy()
    first = len(work) // 4 // k * k  # until then tuples that wait become many
    of_nodes = [slice(first + node, None, k) for node in range(k)]
    busy = sum(float(np.ptp(done[of])) for of in of_nodes)
    worked = sum(float(took[of][1:].sum()) for of in of_nodes)
    tuples = len(work) - first - k
    return float((took - work * 1_000).mean()) * 1e-9, max(0.0, busy - worked) / tuples * 1e-9


def _of(ns: npt.NDArray[np.int64]) -> dict[str, float]:
    p50, p95, p99 = np.percentile(ns, (50, 95, 99)).tolist()
    named = {"mean": float(ns.mean()), "p50": p50, "p95": p95, "p99": p99, "most": float(ns.max())}
    return {name: round(value / 1e6, 3) for name, value in named.items()}


def options(parser: argparse.ArgumentParser) -> None:
    """The options of `posg`."""
    parser.add_argument("--tuples", type=int, default=12_288)
    parser.add_argument("--calibrate", type=int, default=1_536)
    parser.add_argument("--skip", type=int, default=6_144, help="tuples that are not shown: POSG learns")
    parser.add_argument("--items", type=int, default=4_096)
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--least-us", type=int, default=50, help="the smallest of 64 execution times")
    parser.add_argument("--provisioning", type=float, default=1.05)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--window", type=int, default=512, help="POSG's N: it learns for 3 N to 4 N a process"
    )
    parser.add_argument(
        "--resync", type=int, default=128, help="tuples from one synchronisation to the next"
    )
    parser.add_argument("--mu", type=float, default=0.05, help="POSG's tolerance")
    parser.add_argument("--work", choices=("sleep", "spin"), default="sleep")
    parser.add_argument("--seed", type=int, default=7)
