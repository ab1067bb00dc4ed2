"""The merge by tag, with what its senders say of how far they are; and how a channel keeps to its credit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ordstream.fragments.channels import Outbox
from ordstream.fragments.driver import tag_of_serial
from ordstream.fragments.merging import END, TagMerge
from ordstream.ground.arrow_memory import POOL
from ordstream.ground.ordertags import TAG, merge_sorted, source_tags, step_tags, with_index


def rows(*serials):
    schema = pa.schema([("v", pa.int64()), (TAG, pa.binary())])
    return pa.RecordBatch.from_arrays([pa.array(serials), source_tags(np.array(serials))], schema=schema)


def taken(merge):
    return [batch.column(0).to_pylist() for batch in iter(lambda: next(merge, None), None)]


def test_rows_wait_for_the_smallest_low_and_for_nothing_else():
    told = []
    merge = TagMerge(3, lambda sender, size: told.append((sender, size)))
    merge.rows(0, rows(1, 4, 5), 30)
    merge.rows(1, rows(2, 9), 20)
    assert not merge.ready()  # the third one may have a row in front
    merge.set_low(2, tag_of_serial(5))
    assert taken(merge) == [[1, 2, 4]]
    assert merge.low == tag_of_serial(5)
    assert told == []
    merge.end(2, END)
    assert taken(merge) == [[5]]
    assert told == [(0, 30)]
    assert merge.cut is None
    merge.end(0, END)
    assert taken(merge) == [[9]]
    assert merge.cut is None  # the second one may go on
    merge.end(1, END)
    assert (merge.cut, told) == (END, [(0, 30), (1, 20)])


def test_a_failure_cuts_the_rows_behind_it():
    told = []
    merge = TagMerge(2, lambda sender, size: told.append(size))
    merge.rows(0, rows(1, 3, 7), 3)
    merge.end(1, tag_of_serial(5))
    assert taken(merge) == [[1, 3]]
    assert merge.cut == tag_of_serial(5)
    merge.drop()
    merge.rows(0, rows(8, 9), 4)
    assert told == [3, 4]
    assert taken(merge) == []


@pytest.mark.parametrize("form", ["serials", "indexes", "far apart", "steps", "steps as wide as indexes"])
def test_runs_are_merged_by_the_bytes_of_their_tags(form):
    rng = np.random.default_rng(3)
    serials = np.sort(rng.integers(1, 1 << 60 if form == "far apart" else 50, 200))
    tags = source_tags(serials)
    if form in ("indexes", "far apart"):
        tags = with_index(tags, rng.integers(0, 1 << 31, 200))
    if form == "steps":
        keys = pa.array([bytes([n % 5]) * (n % 3) for n in range(200)], pa.binary())
        tags = pa.concat_arrays([tags.slice(0, 100), step_tags(2, keys.slice(100), np.zeros(100, np.int64))])
    if form == "steps as wide as indexes":
        keys = pa.array([n.to_bytes(6, "big") for n in range(150)], pa.binary())
        steps = step_tags(0, keys, np.zeros(150, np.int64))
        ordinary = with_index(source_tags(serials[:50] + 1000), np.zeros(50, np.int64))
        tags = pa.concat_arrays([ordinary, steps])
    order = sorted(range(200), key=lambda n: tags[n].as_py())
    whole = pa.RecordBatch.from_arrays([pa.array(range(200)), tags], names=["v", TAG]).take(pa.array(order))
    mine = rng.integers(0, 3, 200)
    runs = [whole.filter(pa.array(mine == k)) for k in range(3)]
    found = merge_sorted(runs)
    assert found.column(1).equals(whole.column(1))
    assert sorted(found.column(0).to_pylist()) == list(range(200))


class Noted:
    def __init__(self):
        self.told = []

    def rows(self, batch):
        self.told.append(batch.column(0).to_pylist())
        return 60

    def low(self, tag):
        self.told.append(tag)

    def end(self, cut):
        self.told.append(cut)


def test_a_channel_without_credit_holds_its_rows_and_not_those_of_others():
    links = [Noted(), Noted()]
    out = Outbox(links, 100)
    for first in (1, 3, 5):
        out.offer(rows(first), 0)
        out.pump()
    assert out.blocked  # 120 bytes are out, more than the credit
    out.offer(rows(6), 1)
    out.pump()
    assert links[0].told == [[1], [3]] + [tag_of_serial(5)]  # it holds serial 5, and says so
    assert links[1].told[-1] == [6]
    assert out.free() == [1]
    out.acknowledged(0, 60)
    out.pump()
    assert links[0].told[3:] == [[5], tag_of_serial(6) + b"\x00"]
    assert [figures.most for figures in out.figures] == [120, 60]
    assert out.figures[0].waited > 0


def test_rows_behind_a_marker_wait_until_it_was_passed():
    merge = TagMerge(2, lambda sender, size: None)
    merge.rows(0, rows(1, 4), 1)
    merge.mark(1, tag_of_serial(3))  # overtook nothing that counts: the tag says where it stands
    merge.rows(1, rows(2, 5), 1)
    merge.mark(1, tag_of_serial(3))  # the other sender says the same
    assert taken(merge) == [[1, 2]]
    assert (merge.at_mark, merge.cut, merge.low) == (1, None, tag_of_serial(4))
    merge.pass_mark()
    assert taken(merge) == [[4]]
    merge.mark(2, tag_of_serial(7))
    merge.end(0, END)
    merge.end(1, END)
    assert taken(merge) == [[5]]
    assert (merge.at_mark, merge.cut) == (2, None)  # in front of the end
    merge.pass_mark()
    assert (merge.at_mark, merge.cut) == (None, END)


def test_a_marker_behind_a_failure_is_never_met():
    merge = TagMerge(2, lambda sender, size: None)
    merge.mark(1, tag_of_serial(6))
    merge.rows(0, rows(1, 5, 7), 1)
    merge.end(1, tag_of_serial(5))
    assert taken(merge) == [[1]]
    assert (merge.at_mark, merge.cut) == (None, tag_of_serial(5))


def test_a_merge_counts_the_rows_that_wait_in_it():
    merge = TagMerge(2, lambda sender, size: None)
    merge.rows(0, rows(1, 4, 5), 30)
    merge.rows(1, rows(2, 9), 20)
    assert merge.waiting == 5
    assert taken(merge) == [[1, 2, 4, 5]]
    assert merge.waiting == 1
    merge.rows(0, rows(11, 12), 10)
    assert merge.waiting == 3
    merge.drop()
    assert merge.waiting == 0


def test_merged_rows_take_no_memory_of_arrows_own_allocator():
    """Which gives its pages back to the system between two batches."""
    halves = [rows(*range(first, 40_001, 2)) for first in (1, 2)]
    before = pa.total_allocated_bytes(), POOL.bytes_allocated()
    merged = merge_sorted(halves)
    assert merged.num_rows == 40_000
    assert pa.total_allocated_bytes() - before[0] < 1_000
    assert POOL.bytes_allocated() - before[1] > merged.nbytes // 2
