"""lag, lead, head, tail, deduplicate: values, order, and their state on the move."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.test_run_serial import check
from property.test_snapshots import check_cut
from property.test_state import KEYS, SCHEMA, options_of, some_configurations, tables
from state_runs import Segment, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial

LARGE = settings(
    max_examples=8,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
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
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)


@settings(max_examples=8, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    pipeline = data.draw(keeping(od.Pipeline(SCHEMA), key))
    cut = data.draw(st.integers(1, len(table) - 1))
    one, *_ = some_configurations(data.draw)
    before, behind = table.slice(0, cut), table.slice(cut)
    count = len(pipeline.plan.operators[0].key)
    with Segment(pipeline, **options_of(one)) as segment:
        segment.push(before)
        state = segment.state()["kept"]
        gone = state.take(pa.array([i for i in range(len(state)) if data.draw(st.booleans())], pa.int64()))
        assert segment.remove("kept", gone) == len(gone)
        seen = len(exact_rows(segment.batches, pipeline.schema))
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
    names = key or (("i",) if count else ())
    dropped = set(map(repr, keys_of(gone, count)))
    keys = keys_of(before.select(names), count) if count else keys_of(before, 0)
    stayed = before.filter(pa.array([repr(k) not in dropped for k in keys], pa.bool_()))
    first = (
        run_serial(pipeline, stayed, end="suspend") if not pipeline.plan.operators[-1].only_at_end else None
    )
    wanted = run_serial(pipeline, pa.concat_tables([stayed, behind])).table
    assert found == exact_rows([wanted], pipeline.schema)[0 if first is None else len(first.table) :]


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
