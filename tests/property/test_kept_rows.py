"""lag, lead, head, tail, top_k of a key, deduplicate: values, order, and their state on the move."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import large
from property.drawn_states import KEYS, SCHEMA, tables
from property.moved_state import goes_on_anywhere, removed_keys_never_came, without_clock
from property.test_run_serial import check
from property.test_snapshots import check_cut
from state_runs import Segment

import ordstream as od
from ordstream.testing import run_serial

limits = pytest.importorskip("ordstream._core.ground.kept_batches", reason="the core is not built")

LARGE = large(max_examples=8)
#: Bytes of batches that states may refer to, and rows of one: as it is, any row of any batch, few of them.
LIMITS = ((-1, 0), (1 << 20, 1), (200, 1), (1, 1))
WORDS = ("lag", "lead", "ends", "best", "deduplicate", "running", "checked", "filter", "select")


@contextlib.contextmanager
def kept_limits(most: int, least: int) -> Iterator[None]:
    """Bounds of the runs that are made meanwhile."""
    limits.set_kept_limits(most, least)
    try:
        yield
    finally:
        limits.set_kept_limits(-1, 0)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), st.sampled_from(LIMITS))
def test_any_run_is_that_of_one_row_at_a_time(case, most):
    with kept_limits(*most):
        check(case)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), st.sampled_from(LIMITS), st.data())
def test_suspended_runs(case, most, data):
    with kept_limits(*most):
        check_cut(case, data)


@st.composite
def keeping(draw: Any, built: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """One operator that keeps rows."""
    keyed = built.key_by(*key) if key else built
    at = len(built.plan.operators)
    column, n = draw(st.sampled_from(SCHEMA.names)), draw(st.integers(1, 3))
    able = [name for name in ("y", "x", "f", "u", "d", "t") if name not in key]
    best = ("best",) if able else ()  # a key may be of all of them
    kind = draw(st.sampled_from(("lag", "lead", "head", "tail", "first", "last", *best)))
    if kind in ("lag", "lead"):
        return getattr(keyed, kind)({f"{kind}{at}": column, f"s{at}": "s"}, n, name="kept")
    if kind in ("head", "tail"):
        return getattr(keyed, kind)(n, name="kept")
    if kind == "best":
        emit, rank = draw(st.sampled_from(("updates", "final"))), draw(st.sampled_from((None, "place")))
        way = {"descending": draw(st.booleans()), "emit": emit, "rank": rank}
        of_all = {} if key else {"key": ()}
        return keyed.top_k(n, draw(st.sampled_from(able)), **of_all, **way, on_error="skip", name="kept")
    span = draw(st.sampled_from([None, 0, 2]))
    time = None if span is None else "y"
    kept = built.deduplicate(key or ("i",), span, keep=kind, time=time, on_error="skip", name="kept")
    return without_clock(kept)  # y does not ascend: rows are skipped


@settings(max_examples=20, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS), most=st.sampled_from(LIMITS))
def test_a_cut_stream_goes_on_anywhere(data, table, key, most):
    pipeline = data.draw(keeping(od.Pipeline(SCHEMA), key))
    with kept_limits(*most):
        goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=12, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS), most=st.sampled_from(LIMITS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key, most):
    with kept_limits(*most):
        removed_keys_never_came(data.draw, table, data.draw(keeping(od.Pipeline(SCHEMA), key)))


def test_memory_is_given_back():
    data = pa.table({"k": pa.array([0], pa.int64()), "s": ["x"]})
    built = od.Pipeline(data.schema).key_by("k").tail(3, name="kept")
    with Segment(built, workers=0) as segment:
        empty = segment.bytes("kept")
        held = []
        for turn in range(6):
            keys = pa.array([turn * 100 + i // 5 for i in range(500)], pa.int64())
            segment.push(pa.table({"k": keys, "s": ["s" * (900, 5)[i % 2] for i in range(500)]}))
            held.append(segment.bytes("kept"))
            assert empty + 100 * 1000 < held[-1] < empty + 200 * 1000 + 60_000
            assert segment.remove("kept", segment.state_of("kept")) == 100
        assert max(held) <= held[0] + 4096
        assert segment.bytes("kept") <= empty


def fresh(batches: int, seen: list[int]) -> Iterator[pa.RecordBatch]:
    """Batches of one key, and of one row whose key never comes again; `seen`: bytes allocated meanwhile."""
    for turn in range(batches):
        gc.collect(0)
        seen.append(pa.total_allocated_bytes())
        rows = pa.array(range(turn * 4096, (turn + 1) * 4096), pa.int64())
        keys = pc.if_else(pc.equal(rows, turn * 4096), rows, -1)
        yield pa.record_batch({"k": keys, "v": rows, "s": pc.cast(rows, pa.string())})


@pytest.mark.parametrize(("keep", "workers"), [("tail", 0), ("tail", 2), ("last", 1)])
def test_rows_stay_in_their_batches_while_these_are_few(keep, workers):
    built = od.Pipeline({"k": int, "v": int, "s": str})
    built = built.key_by("k").tail(1) if keep == "tail" else built.deduplicate("k", keep="last")
    most = {}
    for bound in (1 << 30, 1 << 18):
        seen: list[int] = []
        with kept_limits(bound, 1):
            found = built.run(fresh(100, seen), workers=workers, chunk_rows=512, max_bytes=2 << 20).table
        assert found.to_pylist() == [
            {"k": k, "v": v, "s": str(v)}
            for k, v in [(-1, 409_599), *((4096 * i, 4096 * i) for i in range(100))]
        ]
        most[bound] = max(seen) - seen[0]
    assert most[1 << 30] > 8 << 20  # each of them: all batches are still there
    assert most[1 << 18] < 6 << 20


@pytest.mark.parametrize("kind", ["lag", "lead"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.thin(2)
def test_rows_that_are_shown_again_stay_in_their_batches_while_these_are_few(kind, workers):
    built = od.Pipeline({"k": int, "v": int, "s": str}).key_by("k")
    built = built.lag({"then": "s"}, 2) if kind == "lag" else built.lead({"then": "s"}, 2)
    whole = pa.Table.from_batches(fresh(100, []))
    expected = run_serial(built, whole).table
    most = {}
    for bound in (1 << 30, 1 << 18):
        seen: list[int] = []
        with (
            kept_limits(bound, 1),
            built.stream(fresh(100, seen), workers=workers, chunk_rows=512, max_bytes=2 << 20) as stream,
        ):
            at = 0
            for batch in stream:  # what came before is gone
                assert batch.equals(expected.slice(at, len(batch)).combine_chunks().to_batches()[0])
                at += len(batch)
        assert at == len(expected)
        most[bound] = max(seen) - seen[0]
    assert most[1 << 30] > 8 << 20  # each of them: all batches are still there
    assert most[1 << 18] < 6 << 20


@pytest.mark.parametrize("most", LIMITS)
@pytest.mark.parametrize("key", [("k", "x"), ("s",), ("f",), ()])
def test_a_long_flush_is_that_of_one_row_at_a_time(most, key):
    """Rows that are lent, and rows that are copied, of many keys: sorted as words, as numbers, compared."""
    n = 4000
    data = pa.table({
        "k": pa.array([None if i % 97 == 0 else i * 7919 % 900 for i in range(n)], pa.int64()),
        "x": pa.array([i * 31 % 7 - 3 for i in range(n)], pa.int16()),
        "f": pa.array([-1.5 * (i * 7919 % 1100) for i in range(n)]),
        "s": [None if i % 89 == 0 else f"a common front {i * 7919 % 800}" for i in range(n)],
        "l": pa.array([[i, -i][: i % 3] if i % 5 else None for i in range(n)], pa.list_(pa.int32())),
    })  # fmt: skip
    built = od.Pipeline(data.schema)
    keyed = built.key_by(*key) if key else built
    made = [keyed.tail(2), keyed.lead({"next": "s", "then": "x"}, 5)]
    if key:
        made.append(built.deduplicate(key, keep="last"))
    for pipeline in made:
        expected = run_serial(pipeline, data).table
        with kept_limits(*most):
            for workers, chunk_rows, buckets in ((0, 64, 1), (1, 1000, 1), (2, 7, 5), (4, 64, 16)):
                batches = iter(data.to_batches(max_chunksize=1500))
                found = pipeline.run(batches, workers=workers, chunk_rows=chunk_rows, buckets=buckets)
                assert found.table.equals(expected), (workers, chunk_rows, buckets)


def texts(batches: int) -> Iterator[pa.RecordBatch]:
    """Batches of 5,000 keys in turn: a row is followed by the next of its key behind its own batch. The
    buffers of each have the same size, so that a batch takes the memory of one that was let go of."""
    for turn in range(batches):
        rows = range(turn * 4096, (turn + 1) * 4096)
        yield pa.record_batch({"k": [row % 5000 for row in rows], "s": [f"{row:012d}" for row in rows]})


@pytest.mark.parametrize("kind", ["lag", "lead"])
@pytest.mark.parametrize(("workers", "chunk_rows"), [(1, 64), (1, 256), (2, 64), (4, 256)])
def test_a_batch_stays_while_what_shows_its_rows_waits(kind, workers, chunk_rows):
    built = od.Pipeline({"k": int, "s": str}).key_by("k")
    built = built.lead({"t": "k"}) if kind == "lead" else built.lag({"t": "s"}).select("k", s="t")
    slow = built.map(lambda row: (row.s,), schema={"s": str})  # chunks wait in front of it
    found = slow.run(texts(40), workers=workers, chunk_rows=chunk_rows).table["s"].to_pylist()
    last = 40 * 4096 - 5000
    if kind == "lag":
        assert found == [None] * 5000 + [f"{row:012d}" for row in range(last)]
    else:
        rest = sorted(range(last, 40 * 4096), key=lambda row: row % 5000)
        assert found == [f"{row:012d}" for row in (*range(last), *rest)]


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x02" * 9, b"\x00" * 3, b"\x01" + b"\xff" * 8])
def test_a_row_of_state_that_none_left_is_refused(damage):
    data = pa.table({"k": [1, 1], "s": ["a", "b"]})
    built = od.Pipeline(data.schema).key_by("k").tail(2, name="kept")
    with Segment(built, workers=0) as segment:
        segment.push(data)
        state = segment.state()["kept"]
    wrong = state.set_column(2, state.schema.field(2), pa.array([damage], pa.binary()))
    with Segment(built, workers=0) as segment:
        with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
            segment.install({"kept": wrong})
        segment.install({"kept": state})
        segment.finish()
        assert pa.Table.from_batches(segment.batches).to_pylist() == data.to_pylist()
