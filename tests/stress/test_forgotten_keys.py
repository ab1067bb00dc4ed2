"""A stream of ever new keys: with a timeout and time punctuations its state stays as large as what is open,
and what is removed gives its memory back.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from state_runs import Segment

import ordstream as od

WAVES, KEYS = 50, 20_000
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("t", pa.int64()), ("x", pa.int64())])
SESSIONS = {
    "in slots": lambda p: p.key_by("k").sessionize("t", 10, aggregate={"x": od.max("x"), "n": od.count()}),
    "by text": lambda p: p.key_by("s").sessionize("t", 10, aggregate={"x": od.mean("x")}),
    "with lists": lambda p: p.key_by("k").sessionize("t", 10, {"x": "x", "at": "t"}),
}
WAYS = [{"workers": 0, "buckets": 1}, {"workers": 2, "buckets": 5}]


def wave(number: int, keys: int = KEYS) -> pa.Table:
    """Two rows of each of so many new keys, ten of each tenth of them: long after the wave before."""
    ids = np.arange(number * KEYS, number * KEYS + keys)
    ids = np.concatenate([ids, ids, np.repeat(ids[: keys // 10], 8)])
    texts = pa.array([f"a key of more than a few bytes: {i}" for i in ids])
    times = np.full(len(ids), 100 * number)
    return pa.Table.from_arrays([pa.array(ids), texts, pa.array(times), pa.array(ids)], schema=SCHEMA)


@pytest.mark.slow
@pytest.mark.stress
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.thin(3)
def test_ever_new_keys_hold_flat_memory(kind, way):
    pipeline = SESSIONS[kind](od.Pipeline(SCHEMA))
    held = []
    with Segment(pipeline, punctuate=od.every("t", 100), **way) as segment:
        (name,) = segment.stages
        for number in range(WAVES):
            segment.push(wave(number), rows=50_000)
            held.append(segment.bytes(name))
            if number == 3:
                assert len(segment.state_of(name)) == KEYS
        # a bucket that once has more than its share of a wave doubles a table, at whatever wave that is
        assert max(held[5:]) <= 2 * max(held[:5]), held
        for number in range(WAVES, WAVES + 3):
            segment.push(wave(number, keys=1))
        assert segment.bytes(name) < held[0] / 8
        assert len(segment.state_of(name)) == 1
    assert sum(batch.num_rows for batch in segment.batches) == WAVES * KEYS + 2


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "build",
    [
        *SESSIONS.values(),
        lambda p: p.key_by("s").preceding(3, {"past": "x"}, carry=["k"]),
        lambda p: p.key_by("k").preceding(500, {"past": "x"}, carry=["k"]),
        lambda p: p.key_by("k").pair_up("x"),
    ],
)
def test_removed_keys_give_their_memory_back(build, way):
    pipeline = build(od.Pipeline(SCHEMA))
    data = wave(0)
    data = data.set_column(3, SCHEMA.field(3), pa.array(np.arange(len(data))))  # pairs of different values
    with Segment(pipeline, **way) as segment:
        (name,) = segment.stages
        segment.push(data.slice(0, 5))
        few = segment.bytes(name)
        segment.push(data.slice(5), rows=50_000)
        many, state = segment.bytes(name), segment.state_of(name)
        assert segment.remove(name, state.slice(5)) == len(state) - 5
        assert segment.state_of(name).equals(state.slice(0, 5))
        assert segment.bytes(name) < min(many / 16, 4 * few + 100_000)
        segment.install({name: state.slice(5)})
        assert segment.state_of(name).equals(state)
        assert segment.bytes(name) < 1.5 * many
