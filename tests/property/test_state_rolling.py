"""The state of windows on the move: a stream that is cut three times and goes on anywhere gives what an
uninterrupted run gives; keys that were removed are as if they had never come. The time is a computed column,
so that no clock closes a window: runs with a clock are cut in test_snapshots.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_state import AGGREGATIONS, CONDITION, KEYS, options_of, some_configurations
from property.test_state_windows import SCHEMA, of, tables
from state_runs import Segment, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial

MORE = {
    "var_x": od.var("x"),
    "std_y": od.std("y", where=CONDITION),
    "sum_x": od.sum("x"),
    "var_u": od.var("u"),
    "mean_f": od.mean("f"),
    "sum_o": od.sum("o", where=CONDITION),
}
CALLS = AGGREGATIONS | MORE


@st.composite
def windowed(draw: Any, key: tuple[str, ...]) -> od.Pipeline:
    """A window of any kind behind the column that it is on."""
    names = draw(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=9, unique=True))
    calls = {f"v_{name}": CALLS[name] for name in names}
    built = of(od.Pipeline(SCHEMA).with_columns(when=od.col(draw(st.sampled_from("cco"))) // 2), key)
    if draw(st.booleans()):
        kind = draw(st.sampled_from([od.tumbling(1), od.tumbling(5), od.session(0), od.session(3)]))
        emit = draw(st.sampled_from(["close", "updates", "both"]))
        return built.window(kind, time="when").aggregate(emit=emit, on_error="skip", **calls)
    n = draw(st.sampled_from([1, 2, 9]))
    if draw(st.booleans()):
        return built.window(od.rows(n)).aggregate(on_error="skip", **calls)
    closed = draw(st.sampled_from(["right", "left", "both", "neither"]))
    return built.window(od.rolling(n, closed=closed), time="when").aggregate(on_error="skip", **calls)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_a_cut_stream_goes_on_anywhere(data, table, key):
    pipeline = data.draw(windowed(key))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), column=st.sampled_from(["j", "y", "c", "t", "e"]))
def test_rows_that_wait_move_too(data, table, column):
    """Strings and lists among them; rows of any order, so that many are late."""
    pipeline = od.Pipeline(SCHEMA).reorder(
        column,
        slack=data.draw(st.sampled_from([0, 1, 3, 2**40])),
        late=data.draw(st.sampled_from(["drop", "adjust"])),
        on_error="skip",
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    pipeline = data.draw(windowed(key))
    name = pipeline.plan.operators[-1].name
    cut = data.draw(st.integers(1, len(table) - 1))
    one, other, *_ = some_configurations(data.draw)
    before, behind = table.slice(0, cut), table.slice(cut)
    with Segment(pipeline, **options_of(one)) as segment:
        segment.push(before)
        state = segment.state()[name]
        gone = state.take(pa.array([i for i in range(len(state)) if data.draw(st.booleans())], pa.int64()))
        assert segment.remove(name, gone) == len(gone)
        assert segment.remove(name, gone) == 0
        seen = len(exact_rows(segment.batches, pipeline.schema))
        left = segment.state()
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
    dropped = set(map(repr, keys_of(gone, len(key))))
    keys = keys_of(before.select(key), len(key))
    stayed = before.filter(pa.array([repr(k) not in dropped for k in keys], pa.bool_()))
    result = run_serial(pipeline, pa.concat_tables([stayed, behind]))
    wanted = exact_rows([result.table], pipeline.schema)
    assert found == [
        row for row, (serial, _) in zip(wanted, result.tags, strict=True) if serial > len(stayed)
    ]
    with Segment(pipeline, **options_of(other)) as segment:
        segment.push(stayed)
        assert same_states(segment.state(), left)
