"""The state of joins by time on the move: a stream that is cut three times and goes on anywhere gives what
an uninterrupted run gives; keys that were removed are as if they had never come. No clock forgets rows: runs
with a clock are cut in test_joins.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_clocks import SCHEMA, tables
from property.drawn_states import KEYS
from property.moved_state import goes_on_anywhere, removed_keys_never_came, without_clock
from state_runs import Segment

import ordstream as od
from ordstream.operators.time_joins import Sides
from ordstream.testing import run_serial

ANY_KEY = [key for key in KEYS if key]
SPANS = [(0, 0), (0, 3), (-2, 2), (-9, 0), (-3, -1), (1, 9), (0, 2**40)]
SHOWN = st.lists(st.sampled_from([*SCHEMA.names, "when"]), max_size=4)


@st.composite
def joined(draw: Any, key: tuple[str, ...]) -> od.Pipeline:
    """A join of any kind, behind the columns that it is on."""
    condition = draw(st.sampled_from([od.col("b"), od.col("y") >= 0, od.col("x") > 0]))
    when = od.col(draw(st.sampled_from("cco"))) // 2
    left, right = ({f"{p}{i}": name for i, name in enumerate(draw(SHOWN))} for p in "lr")
    sides = Sides("right", ("when", "when"), left, right)
    keyed = od.Pipeline(SCHEMA).with_columns(when=when, right=condition).key_by(*key)
    if draw(st.booleans()):
        how = draw(st.sampled_from(["inner", "left", "right", "full"]))
        span = draw(st.sampled_from(SPANS))
        return without_clock(keyed._join_interval(sides, span, how, on_error="skip", name="join"))
    tolerance = draw(st.sampled_from([None, 0, 2, 2**40]))
    return without_clock(keyed._join_asof(sides, tolerance, on_error="skip", name="join"))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(ANY_KEY))
def test_a_cut_stream_goes_on_anywhere(data, table, key):
    pipeline = data.draw(joined(key))
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=15, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(ANY_KEY))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, data.draw(joined(key)))


LANE = pa.table({
    "r": [False, True, False, True], "k": [1, 1, 1, 2], "t": [5, 6, 7, 7], "s": ["a", "ü", None, "dd"],
})  # fmt: skip


def lane_join(method: str, *arguments: Any) -> od.Pipeline:
    keyed = od.Pipeline(LANE.schema).with_columns(t=od.col("t") + 0).key_by("k")
    sides = Sides("r", ("t", "t"), {"left": "s"}, {"right": "s", "at": "t"})
    return without_clock(getattr(keyed, method)(sides, *arguments, name="join"))


@pytest.mark.parametrize(
    ("column", "wrong"),
    [
        ("left", 1), ("left", -1), ("left", None), ("left_values", b""), ("left_values", b"\x01" * 9),
        ("matched", b"\x01"), ("matched", b"\x01\x02"), ("latest", 6), ("right", 2), ("right_values", None),
    ],
)  # fmt: skip
def test_a_row_of_state_that_none_left_is_refused(column, wrong):
    built = lane_join("_join_interval", (0, 2), "left")
    with Segment(built, workers=0) as segment:
        segment.push(LANE)
        state = segment.state()["join"]
    index = state.schema.get_field_index(column)
    values = [wrong, *state.column(index).to_pylist()[1:]]
    broken = state.set_column(
        index, state.schema.field(index), pa.array(values, state.schema.field(index).type)
    )
    with Segment(built, workers=0) as segment:
        held = segment.bytes("join")
        with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
            segment.install({"join": broken})
        assert segment.bytes("join") == held
        segment.install({"join": state})
        assert segment.bytes("join") > held
        segment.finish()
        found = pa.Table.from_batches(segment.batches).to_pylist()
    whole = built.run(LANE).table.to_pylist()
    assert found == whole[len(run_serial(built, LANE, end="suspend").table) :]


@pytest.mark.parametrize("wrong", [b"", b"\x02", b"\x01\x01", None])
def test_which_right_rows_matched_is_looked_at_too(wrong):
    built = lane_join("_join_interval", (-2, 2), "full")
    with Segment(built, workers=0) as segment:
        segment.push(LANE)
        state = segment.state()["join"]
    assert state["matched"].to_pylist() == [b"\x01\x01", b""]
    assert state["matched_right"].to_pylist() == [b"\x01", b"\x00"]
    index = state.schema.get_field_index("matched_right")
    column = pa.array([wrong, b"\x00"], pa.binary())
    with Segment(built, workers=0) as segment:
        with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
            segment.install({"join": state.set_column(index, state.schema.field(index), column)})
        segment.install({"join": state})
        segment.finish()
        assert pa.Table.from_batches(segment.batches)["right"].to_pylist() == ["dd"]


def test_of_a_later_one_only_the_last_right_row_is_taken_in():
    many, one = lane_join("_join_interval", (-9, -1)), lane_join("_join_asof")
    with Segment(many, workers=0) as segment:
        segment.push(pa.concat_tables([LANE.slice(1, 1)] * 2))
        state = segment.state()["join"]
    with Segment(one, workers=0) as segment:
        assert state.schema.equals(segment.stages["join"][1].state_schema())
        with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
            segment.install({"join": state})


def test_rows_of_a_side_that_do_not_ascend_or_are_too_many_are_refused():
    built = lane_join("_join_interval", (0, 9))
    rows = {"r": [False, False], "k": [1, 1], "t": [5, 6], "s": ["a", "b"]}
    with Segment(built, workers=0) as segment:
        segment.push(pa.table(rows, schema=LANE.schema))
        state = segment.state()["join"]
    (row,) = state.to_pylist()
    good = row["left_values"]
    turned = good[len(good) // 2 :] + good[: len(good) // 2]
    with Segment(built, workers=0) as segment:
        for bad in (turned, good + b"\0", good + good[: len(good) // 2]):
            with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
                segment.install({"join": pa.Table.from_pylist([{**row, "left_values": bad}], state.schema)})
        segment.install({"join": state})
        assert segment.state()["join"].equals(state)
