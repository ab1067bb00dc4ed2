"""reorder, whose rows wait in their input batches or as copies: values, order, tags, state on the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.compare import agree, run_core
from property.drawn_states import SCHEMA, tables
from property.moved_state import goes_on_anywhere
from property.test_kept_rows import LARGE, LIMITS, kept_limits

import ordstream as od
from ordstream.testing import run_serial

BEHIND: dict[str, Callable[[od.Pipeline], od.Pipeline]] = {
    "nothing": lambda p: p,
    "windows": lambda p: p.key_by("k").window(od.tumbling(5), time="ts").aggregate(s=od.last("s")),
    "lag": lambda p: p.key_by("k").lag({"then": "s"}),
    "function": lambda p: p.filter(lambda row: row.s is None or len(row.s) < 30),
    "few columns": lambda p: p.select("l", "ts"),
    "again": lambda p: p.with_columns(t=od.col("ts") // 4 * 4).reorder("t", slack=8),
}
#: What stands in front: rows of the source, some of them, and such as an operator made.
IN_FRONT: dict[str, Callable[[od.Pipeline], od.Pipeline]] = {
    "nothing": lambda p: p,
    "filter": lambda p: p.filter(od.col("k") != 1),
    "computed": lambda p: p.with_columns(ts=od.col("ts") + 1),
    "exploded": lambda p: p.flat_map(od.explode("l", "item", carry=["k", "ts", "s", "l", "f"])),
}


@st.composite
def late_tables(draw: Any) -> pa.Table:
    """Rows that come up to some places later than their times say."""
    n = draw(st.sampled_from([0, 1, 7, 60, 300]))
    jitter = draw(st.sampled_from([0, 1, 9, 1000]))
    moves = draw(st.lists(st.integers(0, jitter), min_size=1, max_size=40))
    ts = [i // 2 + moves[i * 7 % len(moves)] for i in range(n)]
    texts = [None if i % 9 == 0 else f"{i}" * (i % 12) for i in range(n)]
    lists = [None if i % 7 == 0 else [i, None, -i][: i % 4] for i in range(n)]
    return pa.table({
        "k": pa.array([i * 5 % 3 for i in range(n)], pa.int64()),
        "ts": pa.array(ts, pa.int64()),
        "s": pa.array(texts, pa.string()),
        "l": pa.array(lists, pa.list_(pa.int64())),
        "f": pa.array([None if i % 5 == 0 else i / 4 for i in range(n)], pa.float32()),
    })  # fmt: skip


@LARGE
@given(
    late_tables(),
    st.sampled_from(sorted(IN_FRONT)),
    st.sampled_from(sorted(BEHIND)),
    st.sampled_from([0, 1, 5, 400, 10_000]),
    st.sampled_from(["adjust", "drop"]),
    st.sampled_from([1, 7, 50, 1000]),
    st.sampled_from(LIMITS),
)
def test_any_run_is_that_of_one_row_at_a_time(table, front, behind, slack, late, rows, limit):
    first = IN_FRONT[front](od.Pipeline(table.schema))
    pipeline = BEHIND[behind](first.reorder("ts", slack=slack, late=late))
    expected = run_serial(pipeline, table)
    assert expected.error is None
    for way in (
        {"workers": 0, "chunk_rows": 1},
        {"workers": 1, "chunk_rows": 64},
        {"workers": 2, "chunk_rows": 7, "scheduler": "lp"},
        {"workers": 4},
    ):
        with kept_limits(*limit):
            agree(pipeline, expected, run_core(pipeline, iter(table.to_batches(max_chunksize=rows)), **way))


@settings(max_examples=20, deadline=None)
@given(data=st.data(), table=tables(), slack=st.sampled_from([0, 1, 3]), most=st.sampled_from(LIMITS))
def test_a_cut_stream_goes_on_anywhere(data, table, slack, most):
    pipeline = od.Pipeline(SCHEMA).reorder("y", slack=slack, late="adjust", name="waiting")
    with kept_limits(*most):
        goes_on_anywhere(data.draw, table, pipeline)


def turned(batches: int) -> Iterator[pa.RecordBatch]:
    """Times that come as 99, 98, … 0, 199, …: each row leaves up to 100 rows later. The buffers of each
    batch have the same size, so that a batch takes the memory of one that was let go of."""
    for turn in range(batches):
        rows = [row // 100 * 100 + 99 - row % 100 for row in range(turn * 4000, turn * 4000 + 4000)]
        yield pa.record_batch({"ts": rows, "s": [f"{row:012d}" for row in rows]})


@pytest.mark.parametrize(("workers", "chunk_rows"), [(0, 64), (1, 64), (2, 256), (4, 64)])
@pytest.mark.parametrize("slack", [99, 9_000])
def test_a_batch_stays_while_what_shows_its_rows_waits(workers, chunk_rows, slack):
    built = od.Pipeline({"ts": int, "s": str}).reorder("ts", slack=slack)
    slow = built.map(lambda row: (row.s,), schema={"s": str})  # chunks wait in front of it
    found = slow.run(turned(20), workers=workers, chunk_rows=chunk_rows).table["s"].to_pylist()
    assert found == [f"{row:012d}" for row in range(20 * 4000)]


def test_rows_wait_in_their_batches_while_these_are_few():
    """One row in each batch waits to the end: of 100 batches all are there, or copies of 100 rows. The
    others are late, and leave."""
    most = {}
    far = 10_000_000
    for bound in (1 << 30, 1 << 18):
        seen: list[int] = []

        def batches(seen=seen):
            for turn in range(100):
                seen.append(pa.total_allocated_bytes())
                rows = range(turn * 4096, (turn + 1) * 4096)
                times = [row if row % 4096 else far + turn for row in rows]
                yield pa.record_batch({"ts": times, "s": [f"{row:07d}" for row in rows]})

        built = od.Pipeline({"ts": int, "s": str}).reorder("ts", slack=1000, late="adjust")
        waited = built.filter(od.col("ts") >= far)
        with kept_limits(bound, 1):
            found = waited.run(batches(), workers=0, chunk_rows=512, max_bytes=2 << 20).table
        assert found["s"].to_pylist() == [f"{4096 * turn:07d}" for turn in range(100)]
        most[bound] = max(seen) - seen[0]
    assert most[1 << 30] > 6 << 20
    assert most[1 << 18] < 4 << 20
