"""What a `Balancer` keeps from batch to batch, on streams that drift: 100 micro-batches, nothing of it
depends on the machine.

    python bench/drift.py [--batches 100] [--streams 4] [--seed 1] [--json FILE]

1. Keys (DKG): Zipf-1.2 over 2,000 keys on 4 nodes; in some batches one of the ten most frequent keys changes
   places with a rare one. Beside hash: the map learnt from all batches before, none of which ever fades; the
   one from the batch before alone; the one that a `Balancer` learns; and the one from the very batch that is
   routed, the best that can be hoped for. Shown are the largest load over the mean, and the mean completion
   time in virtual time, tuples of one time each arriving at 80 % load, all nodes idle at a batch's start;
   means over batches.
2. Times (POSG): entities by Zipf-1 take 25, 5 or 1; every 25 batches all are drawn anew. Beside Round-Robin:
   matrices that never fade, a Balancer's, and the very batch's own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ordstream.balance.baselines import RoundRobin, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.memory import HalfLife, KeyMemory, TimeMemory
from ordstream.balance.posg import POSG, FrozenPosg
from ordstream.ground.whole_file import write_whole

NODES, KEYS, LOAD = 4, 2_000, 0.8
NEVER = HalfLife(math.inf, math.inf)
ROWS = (3, 30, 200, 700, 5_000, 20_000)
DRIFTS = (0.0, 0.1, 0.5)
CLASSES = np.array([25.0, 5.0, 1.0])
ANEW = 25


def zipf(alpha: float) -> np.ndarray:
    weight = 1 / np.arange(1, KEYS + 1) ** alpha
    return weight / weight.sum()


def key_batches(rows: int, batches: int, drift: float, seed: int) -> Iterator[np.ndarray]:
    """Keys of each batch."""
    rng = np.random.default_rng([seed, 1])
    share, label = zipf(1.2), rng.permutation(10 * KEYS)[:KEYS]
    for _ in range(batches):
        yield label[rng.choice(KEYS, p=share, size=rows)]
        if rng.random() < drift:
            one, other = int(rng.integers(0, 10)), int(rng.integers(10, KEYS))
            label[[one, other]] = label[[other, one]]


def completion(routes: np.ndarray, times: np.ndarray) -> float:
    """Mean completion time over the mean time of a tuple; nodes are FIFO queues."""
    arrivals = np.arange(len(times)) * times.mean() / NODES / LOAD
    took = np.empty(len(times))
    for node in range(NODES):
        mine = routes == node
        work = np.cumsum(times[mine])
        # it ends when all work since some arrival is done, whichever arrival makes that latest
        begun = np.maximum.accumulate(arrivals[mine] - np.concatenate([[0.0], work])[: len(work)])
        took[mine] = begun + work - arrivals[mine]
    return float(took.mean() / times.mean())


def keys_of_one_stream(rows: int, batches: int, drift: float, seed: int) -> dict[str, tuple[float, float]]:
    parameters = replace(DKG(), m=1 << 62)
    nothing = parameters.learner(NODES).build()
    memories = {"never fades": KeyMemory(parameters, NEVER), "Balancer": KeyMemory(parameters)}
    found: dict[str, list[tuple[float, float]]] = {}
    last: Any = nothing
    for keys in key_batches(rows, batches, drift, seed):
        learner = parameters.learner(NODES)
        learner.learn(keys)
        own = learner.build()
        ways: dict[str, Any] = {
            "hash": universal(NODES, seed),
            "never fades": memories["never fades"].map or nothing,
            "the batch before": last,
            "Balancer": memories["Balancer"].map or nothing,
            "this batch": own,
        }
        for name, one in ways.items():
            routes = one.route(keys)
            loads = np.bincount(routes, minlength=NODES)
            found.setdefault(name, []).append(
                (loads.max() / loads.mean(), completion(routes, np.ones(rows)))
            )
        for memory in memories.values():
            memory.take(learner)
        last = own
    means = {name: np.mean(values, axis=0) for name, values in found.items()}
    return {name: (float(one[0]), float(one[1])) for name, one in means.items()}


def times_of_one_stream(rows: int, batches: int, seed: int) -> dict[str, float]:
    """Round-Robin's mean completion time over each way's."""
    rng, parameters = np.random.default_rng([seed, 2]), POSG(epsilon=0.005)
    memories = {"never fades": TimeMemory(parameters, NEVER), "Balancer": TimeMemory(parameters)}
    found: dict[str, list[float]] = {}
    share = zipf(1.0)
    for batch in range(batches):
        if batch % ANEW == 0:
            cost = CLASSES[rng.choice(3, p=(0.1, 0.2, 0.7), size=KEYS)]
        keys = rng.choice(KEYS, p=share, size=rows)
        times = cost[keys]
        own = parameters.times()
        own.update_many(keys, times)
        models = {name: memory.times for name, memory in memories.items()} | {"this batch": own}
        plain = completion(RoundRobin(NODES).route(keys), times)
        for name, model in models.items():
            routes = FrozenPosg(NODES, model).route(keys)
            found.setdefault(name, []).append(plain / completion(routes, times))
        for memory in memories.values():
            memory.take(own)
    return {name: float(np.mean(values)) for name, values in found.items()}


def mean_of(streams: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: np.round(np.mean([one[name] for one in streams], axis=0), 2).tolist() for name in streams[0]
    }


def main() -> int:
    """Run, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    seeds = [100 * chosen.seed + n for n in range(chosen.streams)]
    found: dict[str, Any] = {"keys": {}, "times": {}}
    print(
        f"keys, {NODES} nodes, {chosen.batches} batches, {chosen.streams} streams: largest load / mean, "
        "completion"
    )
    for drift in DRIFTS:
        for rows in ROWS:
            one = mean_of([keys_of_one_stream(rows, chosen.batches, drift, seed) for seed in seeds])
            found["keys"][f"{drift:g}, {rows}"] = one
            shown = "; ".join(f"{name} {load:.2f}, {took:.1f}" for name, (load, took) in one.items())
            print(f"  a change in {100 * drift:.0f} % of batches, {rows} rows: {shown}", flush=True)
    print("times: Round-Robin's mean completion time over that by")
    for rows in ROWS[3:5]:
        one = mean_of([times_of_one_stream(rows, chosen.batches, seed) for seed in seeds])
        found["times"][rows] = one
        print(
            f"  {rows} rows: {'; '.join(f'{name} {value:.2f}' for name, value in one.items())}", flush=True
        )
    if chosen.json is not None:
        write_whole(chosen.json, json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
