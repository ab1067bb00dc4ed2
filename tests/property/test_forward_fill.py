"""forward_fill: values, order, and its state on the move."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_state import KEYS, SCHEMA, options_of, some_configurations, tables
from state_runs import Segment, configurations, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial


def filled(pipeline: od.Pipeline, key: tuple[str, ...], columns: list[str]) -> od.Pipeline:
    keyed = pipeline.key_by(*key) if key else pipeline
    return keyed.forward_fill(columns, name=f"fill_{len(pipeline.plan.operators)}")


@st.composite
def pipelines(draw: Any) -> od.Pipeline:
    """Perhaps a filter, one or two fills, perhaps a count."""
    built = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        built = built.filter(od.col("y") != draw(st.integers(-1, 2)))
    for _ in range(draw(st.integers(1, 2))):
        columns = draw(st.lists(st.sampled_from(SCHEMA.names), min_size=1, max_size=6, unique=True))
        built = filled(built, draw(st.sampled_from(KEYS)), columns)
    if draw(st.booleans()):
        built = built.key_by(draw(st.sampled_from(SCHEMA.names))).count("how_many")
    return built


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    pipeline = filled(od.Pipeline(SCHEMA), key, ["s", "i", "b"])
    cut = data.draw(st.integers(1, len(table) - 1))
    one, *_ = some_configurations(data.draw)
    before, behind = table.slice(0, cut), table.slice(cut)
    with Segment(pipeline, **options_of(one)) as segment:
        segment.push(before)
        state = segment.state()["fill_0"]
        gone = state.take(pa.array([i for i in range(len(state)) if data.draw(st.booleans())], pa.int64()))
        assert segment.remove("fill_0", gone) == len(gone)
        seen = len(exact_rows(segment.batches, pipeline.schema))
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
    dropped = set(map(repr, keys_of(gone, len(key))))
    keys = keys_of(before.select(key), len(key)) if key else keys_of(before, 0)
    stayed = before.filter(pa.array([repr(k) not in dropped for k in keys], pa.bool_()))
    wanted = run_serial(pipeline, pa.concat_tables([stayed, behind])).table
    assert found == exact_rows([wanted], pipeline.schema)[len(stayed) :]


@pytest.mark.parametrize("configuration", configurations(), ids=str)
def test_strings_of_a_state_are_given_back(configuration):
    """Ever new keys with strings of their own, of which the last ones stay; then one that gets ever longer
    strings."""
    data = pa.table({"k": pa.array([0], pa.int64()), "s": ["x"], "x": [0.5]})
    built = filled(od.Pipeline(data.schema), ("k",), ["s", "x"])
    with Segment(built, **options_of(configuration)) as segment:
        empty = segment.bytes("fill_0")
        held = []
        for turn in range(8):
            keys = pa.array(range(turn * 100, turn * 100 + 100), pa.int64())
            rows = [
                data.schema.empty_table(),
                pa.table({"k": keys, "s": ["s" * 500] * 100, "x": [0.5] * 100}),
            ]
            segment.push(pa.concat_tables(rows))
            held.append(segment.bytes("fill_0"))
            assert held[-1] > empty + 100 * 500
            assert segment.remove("fill_0", segment.state_of("fill_0")) == 100
        assert max(held) <= held[0] + 4096
        assert segment.bytes("fill_0") <= empty
        for size in (10, 10_000, 10, None):
            segment.push(pa.table([[7], [None if size is None else "y" * size], [None]], schema=data.schema))
        assert segment.bytes("fill_0") < empty + 1000
        segment.finish()
    assert segment.batches[-1]["s"].to_pylist()[-1] == "y" * 10


def test_a_small_table():
    data = pa.table(
        {"k": ["a", "b", "a", "b", "a"], "x": [1, None, None, 5, None], "s": [None, "u", "v", None, None]}
    )
    found = od.Pipeline(data.schema).key_by("k").forward_fill("x", "s").run(data).table
    assert found.to_pydict() == {
        "k": ["a", "b", "a", "b", "a"],
        "x": [1, None, 1, 5, 1],
        "s": [None, "u", "v", "u", "v"],
    }


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([], "at least one column is needed"),
        (["l"], "'l' must be a number, bool, string, binary, date or time to be filled, it is list"),
        (["x", "x"], "x"),
        (["nothing"], "nothing"),
    ],
)
def test_columns_that_cannot_be_filled(columns, text):
    pipeline = od.Pipeline({"x": pa.int64(), "l": pa.list_(pa.int64())})
    with pytest.raises((od.PlanError, od.SchemaError), match=text):
        pipeline.forward_fill(*columns)
