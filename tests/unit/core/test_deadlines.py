"""Keys that marks close (`_core/state/deadlines`): with marks of any frequency, output, order and tags are
those of the sequential run, and what was closed is forgotten.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from state_runs import Segment

import ordstream as od
from ordstream.reference.run_serial import run_serial

ROWS, SPAN = 1500, 60
LATEST = 2**63 - 1
SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "s": pa.string(), "x": pa.int64()})
CLOSING = {
    "slots": lambda p: p.key_by("k").sessionize("t", SPAN, aggregate={"x": od.max("x"), "n": od.count()}),
    "records": lambda p: p.key_by("s").sessionize("t", SPAN, aggregate={"x": od.mean("x")}),
    "lists": lambda p: p.key_by("k", "s").sessionize("t", SPAN, {"x": "x"}),
    "first": lambda p: p.deduplicate("k", SPAN, time="t"),
    "last": lambda p: p.deduplicate("s", SPAN, "last", time="t"),
}
WAYS = [{"workers": 0, "chunk_rows": 7}, {"workers": 2, "buckets": 3}]


def stream(first: int, lives: int, seed: int = 1) -> pa.Table:
    """Rows of keys that are at work for about `lives` times, a few for ever, some null; and ties in time."""
    rng = np.random.default_rng(seed)
    ts = first + np.cumsum(rng.integers(0, 3, ROWS))
    keys = (ts - first) // lives * 50 + rng.integers(0, 40, ROWS)
    keys = np.where(rng.random(ROWS) < 0.1, rng.integers(-3, 0, ROWS), keys)
    columns = [
        pa.array(ts),
        pa.array(keys, mask=rng.random(ROWS) < 0.02),
        pa.array([f"the key {key}" if key % 7 else None for key in keys]),
        pa.array(rng.integers(0, 1000, ROWS)),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


STREAMS = {
    "a few at a time": stream(-200, 20),
    "most at once": stream(0, 400),
    "far in time": stream(LATEST - 10 * ROWS, 50),
}


@pytest.mark.parametrize("every", [1, 13, 500])
@pytest.mark.parametrize("rows", STREAMS)
@pytest.mark.parametrize("kind", CLOSING)
def test_marks_close_what_the_sequential_run_closes(kind, rows, every):
    pipeline = CLOSING[kind](od.Pipeline(SCHEMA))
    data, marks = STREAMS[rows], od.every("t", every)
    expected = run_serial(pipeline, data, punctuate=marks)
    assert expected.error is None
    for way in WAYS:
        found = pipeline.run(data, tags=True, punctuate=marks, **way).table
        tags = list(zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True))
        assert tags == expected.tags
        assert found.drop_columns(["_serial", "_index"]).to_pylist() == expected.table.to_pylist()


@pytest.mark.parametrize("kind", ["slots", "records", "first", "last"])
def test_state_that_moves_between_marks_closes_as_before(kind):
    """What leaves as rows and comes in again has no entry of its own till the next mark."""
    pipeline = CLOSING[kind](od.Pipeline(SCHEMA))
    data, marks = STREAMS["a few at a time"], od.every("t", 13)
    expected = run_serial(pipeline, data, punctuate=marks).table
    with Segment(pipeline, punctuate=marks, workers=0, buckets=2) as segment:
        (name,) = segment.stages
        for start in range(0, ROWS, 250):
            segment.push(data.slice(start, 250))
            state = segment.state_of(name)
            half = state.slice(0, len(state) // 2)
            assert segment.remove(name, half) == len(half)
            segment.install({name: half})
            assert segment.state_of(name).equals(state)
        segment.finish()
    found = pa.Table.from_batches(segment.batches, schema=expected.schema)
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("kind", CLOSING)
def test_what_marks_close_is_forgotten(kind):
    """Of ever new keys a few at a time are kept, and so many bytes."""
    pipeline = CLOSING[kind](od.Pipeline(SCHEMA))
    keys, waves = 500, 12
    held = []
    with Segment(pipeline, punctuate=od.every("t", 10), workers=0, buckets=1) as segment:
        (name,) = segment.stages
        for wave in range(waves):
            new = np.arange(wave * keys, (wave + 1) * keys)
            ts = wave * 3 * SPAN + np.arange(keys) // 10
            columns = [ts, new, [f"the key {key}" for key in new], new]
            segment.push(pa.Table.from_arrays([pa.array(c) for c in columns], schema=SCHEMA))
            held.append(segment.bytes(name))
        assert len(segment.state_of(name)) == keys
    assert max(held[3:]) <= 1.5 * max(held[:3]), held
