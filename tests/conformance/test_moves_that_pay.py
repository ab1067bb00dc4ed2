"""Runs over processes whose keys move where that pays: the output is `run_serial`'s whatever was decided,
and the report says what was.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from process_functions import spun

import ordstream as od
from ordstream.fragments.process_stream import ProcessStream
from ordstream.reference.run_serial import run_serial

TAGS = ["_serial", "_index"]
ROWS, INTERVAL = 16_000, 1_500
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def pipeline():
    columns = {"k": pa.int64(), "seen": pa.int64(), "code": pa.int64()}
    return od.Pipeline(SCHEMA).key_by("k").process(spun, state={"n": int}, schema=columns)


def rows(processes, lasts):
    """Most rows are of a few keys of one process: of the same all the time, or of others every so often."""
    rng, ring = np.random.default_rng(processes), od.Mixed().ring(processes)
    keys = np.arange(600, dtype=np.int64)
    home = ring.route_words(keys.view(np.uint64))
    found = rng.choice(keys, ROWS)
    for number, low in enumerate(range(0, ROWS, lasts)):
        few = rng.choice(keys[home == number % processes], 9, replace=False)
        here = low + np.flatnonzero(rng.random(min(lasts, ROWS - low)) < 0.8)
        found[here] = rng.choice(few, len(here))
    return pa.table({"k": found, "n": np.arange(ROWS)}, schema=SCHEMA)


@pytest.mark.parametrize("processes", [2, 3, 4])
@pytest.mark.parametrize(("payback", "lasts"), [(0.0, 8_000), (1.0, 2_000), (1.0, ROWS), (1e-6, 8_000)])
@pytest.mark.thin(3)
def test_keys_move_or_do_not_and_the_output_is_the_same(processes, payback, lasts, monkeypatch):
    monkeypatch.setattr("ordstream.fragments.balancing.allowed_cpus", lambda: processes)
    monkeypatch.setattr("ordstream.fragments.balancing.DECIDES", 1e9)  # reports come as fast as rows do
    data, made = rows(processes, lasts), pipeline()
    expected = run_serial(made, data)
    options = {"balance": od.Mixed(payback=payback), "tags": True}
    # small channels: else all rows are given out before the first report is heard
    stream = ProcessStream(made, data, processes, options, block_rows=250, channel_bytes=8_000)
    stream._balancing._interval = stream._balancing._next = INTERVAL
    with stream:
        found = pa.Table.from_batches(stream, schema=stream.schema)
        moves = stream.moves
    assert found.drop(TAGS).equals(expected.table)
    assert list(zip(*(found[name].to_pylist() for name in TAGS), strict=True)) == expected.tags
    report = stream.report
    if not payback:
        assert moves
        assert report.balance == {}
        return
    (told,) = report.balance.values()
    assert told["put_off"] <= told["plans"] - len(moves)
    assert told["why"]
    assert (told["keys_by_plan"], told["keys_by_ring"]) == (sum(one.keys for one in moves), 0)
    assert all(one.gain >= payback * one.cost > 0 for one in moves)
    assert all(one.lost is None or one.lost >= 0 for one in moves)
    assert f"{told['put_off']} put off" in str(report)
    assert "balance of process_1: " in str(report)
    if payback < 1:
        assert told["plans"]  # what they gain is measured: on a quick machine next to nothing
