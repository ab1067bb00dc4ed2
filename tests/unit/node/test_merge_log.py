"""The log of a merge: what it says, and what it takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node.merge_log import MergeLog


def test_a_log_takes_8_bytes_for_each_run_of_rows():
    log = MergeLog(["p", "q"])
    for number in range(3_000):
        log.add(np.array([0, 0, 0] if number % 10 else [1, 0]))
    assert log.table.slice(0, 3).to_pylist() == [
        {"source": "q", "rows": 1}, {"source": "p", "rows": 28}, {"source": "q", "rows": 1},
    ]  # fmt: skip
    assert log.table.num_rows == 600
    assert sum(part.nbytes for part in [*log._whole, *log._parts]) == 600 * 8
    assert len(log._whole) + len(log._parts) < 300


def test_a_log_of_rows_that_take_turns_takes_a_byte_for_each():
    draw = np.random.default_rng(7)
    log = MergeLog(["p", "q", "r"])
    came = []
    for rows, turns in ((5000, True), (3, True), (9000, False), (1, True), (9000, True), (4096, True)):
        numbers = draw.integers(0, 3, rows).astype(np.uint8) if turns else np.repeat([2, 0], [4000, 5000])
        came.append(numbers.astype(np.uint8).copy())
        log.add(came[-1])
    expected = np.concatenate(came)
    for row in [*range(1, 6000), *range(13_990, 14_010), len(expected)]:
        number = expected[row - 1]
        assert log.source_of(row) == ("pqr"[number], (expected[:row] == number).sum()), row
    assert log.source_of(len(expected) + 1) is None
    table = log.table
    names = np.repeat(table["source"].to_numpy(), table["rows"].to_numpy())
    assert (names == np.array(["p", "q", "r"])[expected]).all()
    assert sum(part.nbytes for part in [*log._whole, *log._parts]) < len(expected)
    assert log.take().equals(table)
    assert log.source_of(len(expected)) is None
    log.add(np.zeros(5000, np.uint8))
    assert log.source_of(len(expected) + 1) == ("p", 1)


def test_rows_of_two_sources_that_take_turns_are_merged_again_as_the_log_says():
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    both = od.union(p.with_columns(of=0), q.with_columns(of=1))
    data = {"p": pa.table({"ts": range(0, 30_000, 2)}), "q": pa.table({"ts": range(1, 30_001, 2)})}
    found = both.run(data, merge_by="ts")
    assert found.table["ts"].to_pylist() == list(range(30_000))
    assert found.table["of"].to_pylist() == [0, 1] * 15_000
    assert len(found.merge_log.table) == 30_000
    again = both.run(data, merge_by="ts", merge_log=found.merge_log.table)
    assert again.table.equals(found.table)


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)
def test_a_run_that_goes_on_says_which_source_a_tuple_is_of(tmp_path, options):
    """Where it reads tuples again, to skip them, the merge's log has these too."""
    many = pa.table({"k": [1] * 40, "ts": range(0, 160, 4)})
    few = pa.table({"k": [2] * 10, "ts": range(101, 111)})
    both = od.union(*(od.Pipeline(many.schema, source=name) for name in ("many", "few")))
    failing = both.map(lambda row: (row.k, 1 // (row.ts - 105)), schema={"k": int, "z": int}, name="fails")
    data = {"many": many, "few": few}
    for _ in range(3):
        with pytest.raises(od.OperatorError, match=r"'fails'[\s\S]*source: 'few'") as failed:
            failing.run(data, merge_by="ts", checkpoint=tmp_path, every=10, chunk_rows=1, **options)
        assert failed.value.serial == 32


def test_a_run_that_goes_on_says_which_source_runs_backwards(tmp_path):
    many = pa.table({"k": [1] * 40, "ts": range(0, 160, 4)})
    few = pa.table({"k": [2] * 10, "ts": [*range(101, 106), 90, *range(107, 111)]})
    both = od.union(*(od.Pipeline(many.schema, source=name) for name in ("many", "few")))
    pipeline = both.key_by("k").window(od.tumbling(10), time="ts").aggregate(n=od.count())
    data = {"many": many, "few": few}
    for _ in range(3):
        with pytest.raises(od.SourceError, match=r"runs backwards[\s\S]*source: 'few'"):
            pipeline.run(data, merge_by="ts", checkpoint=tmp_path, every=10, chunk_rows=1)
