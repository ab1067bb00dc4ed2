"""The state of lag, assert_ordered, windowed counts, regressions, top_k and top_values on the move: a stream
that is cut three times and goes on anywhere gives what an uninterrupted run gives; the rows of state are
those of the tuples alone; keys that were removed are as if they had never come.

The tables have columns that ascend, for the operators that refuse a time that runs backwards. Any column may
be taken for a time all the same: rows that fail are skipped, and leave the state as it was.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from property import test_state
from property.test_state import KEYS, options_of, some_configurations
from state_runs import Segment, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial

CLOCKS = {"c": pa.int64(), "e": pa.date32(), "w": pa.timestamp("us", "UTC"), "o": pa.int16()}
LISTS = {"l": pa.list_(pa.int32())}
SCHEMA = pa.schema([*test_state.SCHEMA, *CLOCKS.items(), *LISTS.items()])
NUMBERS = [name for name in SCHEMA.names if name not in ("s", "z", "b", "l")]
FIRST = {
    "c": [0, -7, -(2**63), 2**62, 2**63 - 300],
    "e": [0, -20, 18_000],
    "w": [0, -(10**12), 2**62],
    "o": [-300, 0],
}
STEPS = [0, 0, 0, 1, 1, 2, 7]


@st.composite
def tables(draw: Any) -> pa.Table:
    """A table of test_state, with clocks (now and then null) and a column of lists."""
    table = draw(test_state.tables())
    n = len(table)
    for name, type_ in CLOCKS.items():
        picks = list(draw(st.binary(min_size=n, max_size=n)))
        steps = [STEPS[pick % len(STEPS)] for pick in picks]
        times = accumulate(steps, initial=draw(st.sampled_from(FIRST[name])))
        values = [
            None if pick == 255 else min(time, 2**63 - 1) for pick, time in zip(picks, times, strict=False)
        ]
        storage = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        table = table.append_column(pa.field(name, type_), pa.array(values, storage).cast(type_))
    pool = [None, [], [1], [2, -(2**31)], [3] * 20]
    lists = [pool[pick % len(pool)] for pick in draw(st.binary(min_size=n, max_size=n))]
    return table.append_column(pa.field("l", LISTS["l"]), pa.array(lists, LISTS["l"]))


def of(pipeline: od.Pipeline, key: tuple[str, ...]) -> Any:
    return pipeline.key_by(*key) if key else pipeline


@st.composite
def passing(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    """A lag or an assert_ordered, which pass all columns on."""
    at = len(pipeline.plan.operators)
    if draw(st.booleans()):
        columns = draw(st.lists(st.sampled_from([*NUMBERS, "b"]), min_size=1, max_size=9))
        return of(pipeline, key).lag({f"lag{at}_{i}": name for i, name in enumerate(columns)})
    columns = draw(st.lists(st.sampled_from([*NUMBERS, *CLOCKS]), min_size=1, max_size=3))
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
    column = draw(st.sampled_from([name for name in test_state.SCHEMA.names if name not in key]))
    k = draw(st.sampled_from([1, 2, 3, 6, 20]))
    return of(pipeline, key).top_values(column, k, emit=draw(st.sampled_from(["updates", "final"])))


LAST = [passing, counting, regressing, valuing]
WITH_KEY = [regressing, valuing]


@st.composite
def stateful(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    kinds = [kind for kind in LAST if key or kind not in WITH_KEY]
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
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    pipeline = data.draw(stateful(od.Pipeline(SCHEMA), key))
    name = pipeline.plan.operators[0].name
    cut = data.draw(st.integers(1, len(table) - 1))
    one, other, *_ = some_configurations(data.draw)
    before, behind = table.slice(0, cut), table.slice(cut)
    with Segment(pipeline, **options_of(one)) as segment:
        segment.push(before)
        state = segment.state()[name]
        names = list(map(repr, keys_of(state, len(key))))
        dropped = {key for key in sorted(set(names)) if data.draw(st.booleans())}
        gone = state.filter(pa.array([key in dropped for key in names], pa.bool_()))
        assert segment.remove(name, gone) == len(dropped)
        assert segment.remove(name, gone) == 0
        seen = len(exact_rows(segment.batches, pipeline.schema))
        left = segment.state()
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
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
