"""forward_fill: values, order, and its state on the move."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_states import KEYS, SCHEMA, tables
from property.moved_state import goes_on_anywhere, options_of, removed_keys_never_came
from state_runs import Segment, configurations, exact_rows, run_cut

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
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, filled(od.Pipeline(SCHEMA), key, ["s", "i", "b"]))


ELEMENTS = {
    "int64": (pa.int64(), [1, -2, None, 2**63 - 1]),
    "int8": (pa.int8(), [1, -128, None, 127]),
    "bool": (pa.bool_(), [True, False, None, True]),
    "float32": (pa.float32(), [1.5, float("inf"), None, -0.0]),
    "string": (pa.string(), ["a", "", None, "long " * 9]),
    "decimal": (pa.decimal128(12, 2), [Decimal("1.50"), Decimal("-2.25"), None, Decimal("7.00")]),
}


@pytest.mark.parametrize("key", [(), ("k",)], ids=["one state", "by key"])
@pytest.mark.parametrize("kind", ELEMENTS)
def test_lists(kind, key):
    """Null, empty, with null elements, long ones behind short ones; a run cut in the middle goes on."""
    type_, values = ELEMENTS[kind]
    random = Random(kind)
    lists = [
        random.choice([None, [], random.choices(values, k=3), values * random.randint(1, 9)])
        for _ in range(600)
    ]
    keys, x = [random.randint(0, 9) for _ in lists], [random.choice([None, 0.5]) for _ in lists]
    table = pa.table({"k": keys, "v": pa.array(lists, pa.list_(type_)), "x": x})
    built = filled(od.Pipeline(table.schema), key, ["v", "x"])
    expected = run_serial(built, table).table
    last: dict[Any, Any] = {}
    for k, value, found in zip(keys, lists, expected["v"].to_pylist(), strict=True):
        at = k if key else None
        last[at] = value if value is not None else last.get(at)
        assert found == pa.array([last[at]], pa.list_(type_))[0].as_py()
    for workers, chunk in [(0, 1), (0, None), (2, 7), (2, None)]:
        assert built.run(table, workers=workers, chunk_rows=chunk).table.equals(expected)
    batches, _ = run_cut(built, table, [100, 101, 400], configurations())
    assert exact_rows(batches, built.schema) == exact_rows([expected], built.schema)


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
        (["x", "x"], "x"),
        (["nothing"], "nothing"),
    ],
)
def test_columns_that_cannot_be_filled(columns, text):
    pipeline = od.Pipeline({"x": pa.int64(), "l": pa.list_(pa.int64())})
    with pytest.raises((od.PlanError, od.SchemaError), match=text):
        pipeline.forward_fill(*columns)
