"""lag, lead, head, tail, deduplicate: values, order, and their state on the move."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import large
from property.drawn_states import KEYS, SCHEMA, tables
from property.moved_state import goes_on_anywhere, removed_keys_never_came
from property.test_run_serial import check
from property.test_snapshots import check_cut
from state_runs import Segment

import ordstream as od

LARGE = large(max_examples=8)
WORDS = ("lag", "lead", "ends", "deduplicate", "running", "checked", "filter", "select")


@LARGE
@given(s.cases(vocabulary=WORDS, most=3))
def test_any_run_is_that_of_one_row_at_a_time(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), st.data())
def test_suspended_runs(case, data):
    check_cut(case, data)


@st.composite
def keeping(draw: Any, built: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """One operator that keeps rows."""
    keyed = built.key_by(*key) if key else built
    at = len(built.plan.operators)
    column, n = draw(st.sampled_from(SCHEMA.names)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from(("lag", "lead", "head", "tail", "first", "last")))
    if kind in ("lag", "lead"):
        return getattr(keyed, kind)({f"{kind}{at}": column, f"s{at}": "s"}, n, name="kept")
    if kind in ("head", "tail"):
        return getattr(keyed, kind)(n, name="kept")
    span = draw(st.sampled_from([None, 0, 2]))
    time = None if span is None else "y"
    return built.deduplicate(
        key or ("i",), span, keep=kind, time=time, on_error="skip", name="kept"
    )  # y does not ascend: rows are skipped


@settings(max_examples=15, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_a_cut_stream_goes_on_anywhere(data, table, key):
    pipeline = data.draw(keeping(od.Pipeline(SCHEMA), key))
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
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
