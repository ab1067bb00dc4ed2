"""The state of windows on the move: a stream that is cut three times and goes on anywhere gives what an
uninterrupted run gives; keys that were removed are as if they had never come. No clock closes
a window, for a segment knows of no time before it: runs with a clock are cut in test_snapshots.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_clocks import SCHEMA, of, tables
from property.drawn_states import AGGREGATIONS, CONDITION, KEYS
from property.moved_state import goes_on_anywhere, removed_keys_never_came, without_clock

import ordstream as od

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
        return without_clock(built.window(kind, time="when").aggregate(emit=emit, on_error="skip", **calls))
    n = draw(st.sampled_from([1, 2, 9]))
    if draw(st.booleans()):
        return built.window(od.rows(n)).aggregate(on_error="skip", **calls)
    closed = draw(st.sampled_from(["right", "left", "both", "neither"]))
    window = built.window(od.rolling(n, closed=closed), time="when")
    return without_clock(window.aggregate(on_error="skip", **calls))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_a_cut_stream_goes_on_anywhere(data, table, key):
    pipeline = data.draw(windowed(key))
    goes_on_anywhere(data.draw, table, pipeline)


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
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, data.draw(windowed(key)))
