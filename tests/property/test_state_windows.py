"""The state of lag, assert_ordered, windowed counts, regressions, top_k and top_values on the move: a stream
that is cut three times and goes on anywhere gives what an uninterrupted run gives; the rows of state are
those of the tuples alone; keys that were removed are as if they had never come.

The tables have columns that ascend, for the operators that refuse a time that runs backwards. Any column may
be taken for a time all the same: rows that fail are skipped, and leave the state as it was.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property import drawn_states
from property.drawn_clocks import CLOCKS, NUMBERS, SCHEMA, of, tables
from property.drawn_states import KEYS
from property.moved_state import goes_on_anywhere, options_of, removed_keys_never_came, ways
from state_runs import Segment, same_states

import ordstream as od


@st.composite
def passing(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """A lag or an assert_ordered, which pass all columns on."""
    at = len(pipeline.plan.operators)
    if draw(st.booleans()):
        columns = draw(st.lists(st.sampled_from([*NUMBERS, "b"]), min_size=1, max_size=9))
        return of(pipeline, key).lag({f"lag{at}_{i}": name for i, name in enumerate(columns)})
    columns = draw(st.lists(st.sampled_from([*NUMBERS, *CLOCKS]), min_size=1, max_size=3, unique=True))
    return of(pipeline, key).assert_ordered(*columns, on_error="skip")


@st.composite
def counting(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """A count in windows, above a bound, or both."""
    above = draw(st.sampled_from([None, 0, 1, 3]))
    if above is not None and draw(st.booleans()):
        return of(pipeline, key).count("n", above=above, emit=draw(st.sampled_from(["updates", "final"])))
    window = draw(st.sampled_from([1, 2, 5, 100, 2**40]))
    time = draw(st.sampled_from([*CLOCKS, "c", "w", "t", "i", "d"]))
    return of(pipeline, key).count("n", window=window, time=time, above=above, on_error="skip")


@st.composite
def regressing(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    x = draw(st.sampled_from([x for x in (*CLOCKS, "e", "o", "t", "u", "j") if x not in key]))
    emit = draw(st.sampled_from(["updates", "every_tuple", "final"]))
    return of(pipeline, key).regression(
        x, draw(st.sampled_from(["y", "j", "i"])), emit=emit, on_error="skip"
    )


@st.composite
def valuing(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    column = draw(st.sampled_from([name for name in drawn_states.SCHEMA.names if name not in key]))
    k = draw(st.sampled_from([1, 2, 3, 6, 20]))
    return of(pipeline, key).top_values(column, k, emit=draw(st.sampled_from(["updates", "final"])))


@st.composite
def ranking(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """Ranks by a column that falls too, in windows or in all; the key is that of the ranking."""
    by = draw(st.sampled_from([name for name in NUMBERS if name not in key]))
    windows = [None, *(name for name in (*CLOCKS, "j") if name != by)]
    return pipeline.top_k(
        draw(st.sampled_from([1, 2, 3, 7, 40])),
        by,
        key,
        window=draw(st.sampled_from(windows)),
        emit=draw(st.sampled_from(["updates", "final"])),
        rank=draw(st.sampled_from([None, "place"])),
        on_error="skip",
    )


@st.composite
def ranking_counts(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """Ranks by a count, which never falls: only the best rows are kept."""
    counts = pipeline.key_by(*key).count("how_often")
    k, emit = draw(st.sampled_from([1, 2, 3, 7])), draw(st.sampled_from(["updates", "final"]))
    return counts.top_k(k, "how_often", draw(st.permutations(key)), emit=emit)


LAST = (passing, counting, regressing, valuing, ranking, ranking_counts)
WITH_KEY = (regressing, valuing, ranking, ranking_counts)
BY_KEY = LAST[:4]


@st.composite
def stateful(
    draw: Any, pipeline: od.Pipeline, key: tuple[str, ...], kinds: tuple[Any, ...] = LAST
) -> od.Pipeline:
    kinds = [kind for kind in kinds if key or kind not in WITH_KEY]
    return draw(draw(st.sampled_from(kinds))(pipeline, key))


@st.composite
def pipelines(draw: Any) -> od.Pipeline:
    """Perhaps a filter, perhaps operators that pass all columns on, then any one."""
    built = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        built = built.filter(od.col("y") != draw(st.integers(-1, 2)))
    for _ in range(draw(st.integers(0, 2))):
        built = draw(passing(built, draw(st.sampled_from(KEYS))))
    return draw(stateful(built, draw(st.sampled_from(KEYS))))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, data.draw(stateful(od.Pipeline(SCHEMA), key, BY_KEY)))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_what_stands_behind_an_operator_does_not_show_in_its_state(data, table, key):
    alone = data.draw(stateful(od.Pipeline(SCHEMA), key))
    one, other, *_ = ways(data.draw)
    names = alone.schema.names
    behind = alone.select(data.draw(st.sampled_from(names)))
    if data.draw(st.booleans()):
        behind = (
            behind.key_by(behind.schema.names[0]).count("seen")
            if names[0] in behind.schema.names
            else behind
        )
    found = []
    for pipeline, way in ((alone, one), (behind, other)):
        with Segment(pipeline, **options_of(way)) as segment:
            segment.push(table)
            state = segment.state()
            found.append({name: state[name] for name in (stage.name for stage in alone.plan.operators)})
    assert same_states(*found)
