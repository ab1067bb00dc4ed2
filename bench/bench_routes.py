"""Routing decisions per second of the groupings, one core: keys in, instances out.

    Zipf-1 keys, 131,072 at a time -> route -> int32 column

Verified first: the deployed map against Listing 3.2, POSG's greedy decisions against Listing III.2, both in
plain Python. Targets, over integers: at least 20 million keys/s for a deployed DKG map (at most 50 ns per
key), 5 million for POSG in RUN (200 ns), k = 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import harness
import numpy as np
import pyarrow as pa
import pytest
from targets import Figure

from ordstream.balance.baselines import PKG, FullKnowledge, LeastOutstanding, Modulo, RoundRobin, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.posg import POSG

pytestmark = pytest.mark.benchmark(group="routes", timer=harness.replayed_clock)

INSTANCES = 10


def plain_route(learner: Any, key_map: Any, keys: np.ndarray) -> list[int]:
    """GETINSTANCE, one key at a time."""
    heavy = dict(key_map.heavy)
    (a_low, _, b), columns = learner.hashes.coefficients[0], learner.hashes.columns
    buckets = key_map.buckets.tolist()
    return [
        heavy[key] if key in heavy else buckets[(a_low * key + b) % (2**61 - 1) % columns]
        for key in keys.tolist()
    ]


def test_route(bench: Any) -> None:
    keys = harness.data().keys
    column = pa.array(keys)
    texts = pa.array([f"user-{key:08d}" for key in keys.tolist()])
    learner = DKG(theta=0.02).learner(INSTANCES)
    learner.learn(keys)
    key_map = learner.build()
    harness.check(key_map.route(keys), np.array(plain_route(learner, key_map, keys)))
    harness.check(key_map.route(column), key_map.route(keys))
    text_map = DKG(theta=0.02).fit(texts, INSTANCES)
    modulo, universal_map, pkg = Modulo(INSTANCES), universal(INSTANCES), PKG(INSTANCES)
    bodies: dict[str, Callable[[], Any]] = {
        "dkg, ints": lambda: key_map.route(keys),
        "dkg, Arrow ints": lambda: key_map.route(column),
        "dkg, strings of 13": lambda: text_map.route(texts),
        "modulo": lambda: modulo.route(keys),
        "universal": lambda: universal_map.route(keys),
        "pkg": lambda: pkg.route(keys),
    }
    run = harness.Contest(len(keys), bodies).run()
    name = f"routes k={INSTANCES}"
    figures = [
        Figure(name, way, run.wall(way), "ns", at_most=50.0 if way.endswith("ints") else None)
        for way in bodies
    ]
    bench.contest(run, "dkg, ints", figures)


def plain_greedy(estimates: np.ndarray) -> list[int]:
    """SUBMIT and UPDATE, one tuple at a time; of equals the next one after the last choice."""
    c_hat, chosen, last = [0.0] * INSTANCES, [], -1
    for estimate in estimates.tolist():
        last = min((i % INSTANCES for i in range(last + 1, last + 1 + INSTANCES)), key=c_hat.__getitem__)
        c_hat[last] += estimate
        chosen.append(last)
    return chosen


def test_shuffle(bench: Any) -> None:
    keys = harness.data().keys
    times = (keys % 64 + 1).astype(np.float64)
    parameters = POSG(INSTANCES)
    model = parameters.times()
    model.update_many(keys, times)
    scheduler = parameters.scheduler()
    scheduler.deploy([model] * INSTANCES)
    frozen = scheduler.freeze()
    harness.check(frozen.route(keys), np.array(plain_greedy(model.estimate_many(keys))))
    texts = pa.array([f"user-{key:08d}" for key in keys.tolist()])
    round_robin, known, outstanding = (
        RoundRobin(INSTANCES),
        FullKnowledge(INSTANCES),
        LeastOutstanding(INSTANCES),
    )
    bodies: dict[str, Callable[[], Any]] = {
        "posg in RUN, ints": lambda: (scheduler.route(keys), scheduler.take_requests()),
        "posg frozen, ints": lambda: frozen.route(keys),
        "posg frozen, strings of 13": lambda: frozen.route(texts),
        "round-robin": lambda: round_robin.route(keys),
        "full knowledge": lambda: known.route(times),
        "least outstanding": lambda: outstanding.route(keys),
    }
    run = harness.Contest(len(keys), bodies).run()
    name = f"shuffle k={INSTANCES}"
    figures = [
        Figure(name, way, run.wall(way), "ns", at_most=200.0 if way.endswith("ints") else None)
        for way in bodies
    ]
    bench.contest(run, "posg in RUN, ints", figures)
