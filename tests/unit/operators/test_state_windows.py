"""Rows of state of lag, assert_ordered, windowed counts, regressions, top_k and top_values: which, what is
refused, and that removed keys give their memory back.
"""

from __future__ import annotations

import math
import random
import re

import pyarrow as pa
import pytest
from state_runs import Segment, exact_rows, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial

WAYS = [{"workers": 0, "buckets": 3}, {"workers": 2, "buckets": 1}]
DATA = pa.table(
    {
        "k": pa.array([1, None, 1, 1, 2], pa.int64()),
        "t": pa.array([-3, 5, 0, 7, 7], pa.int32()),
        "x": pa.array([-0.0, 1.0, math.nan, -0.0, None], pa.float32()),
        "s": ["a", None, "b" * 40, "a", ""],
        "l": pa.array([[1], None, [2, 3], [], [4]], pa.list_(pa.int16())),
    }
)
KEYED = od.Pipeline(DATA.schema).key_by("k")
PLAIN = od.Pipeline(DATA.schema)


def state_of(pipeline, data=DATA, **options):
    with Segment(pipeline, **(options or WAYS[0])) as segment:
        segment.push(data)
        return segment.state()[pipeline.plan.operators[-1].name]


ROWS = [
    (
        KEYED.lag({"before": "x", "then": "t", "again": "x"}),
        [("k", pa.int64()), ("x", pa.float32()), ("t", pa.int32()), ("x", pa.float32())],
        [(None, (1.0, 1.0), 5, (1.0, 1.0)), (1, (0.0, -1.0), 7, (0.0, -1.0)), (2, None, 7, None)],
    ),
    (KEYED.lag({"before": "x"}), None, [(None, (1.0, 1.0)), (1, (0.0, -1.0))]),  # a null alone is no state
    (
        PLAIN.assert_ordered("x", "t", on_error="skip"),
        [("x", pa.float32()), ("t", pa.int32())],
        [("NaN", 0)],
    ),
    (
        KEYED.count("n", window=10, time="t"),
        [("k", pa.int64()), ("count", pa.int64()), ("t", pa.int32())],
        [(None, 1, 5), (1, 2, 7), (2, 1, 7)],
    ),
    (KEYED.count("n", above=1), [("k", pa.int64()), ("count", pa.int64())], [(None, 1), (1, 3), (2, 1)]),
    (
        KEYED.regression("t", "k", on_error="skip"),
        [
            ("k", pa.int64()),
            *((name, pa.int64()) for name in ("n", "sum_x", "sum_xx", "sum_y", "sum_xy")),
            ("t", pa.int32()),
        ],
        [(1, 3, 4, 58, 3, 4, 7), (2, 1, 7, 49, 2, 14, 7)],
    ),
    (
        KEYED.top_values("s", 2),
        [("k", pa.int64()), ("s", pa.string()), ("count", pa.int64())],
        [(None, None, 1), (1, "a", 2), (1, "b" * 40, 1), (2, "", 1)],
    ),
    (
        PLAIN.top_k(1, "t", "s"),
        [(name, DATA.schema.field(name).type) for name in "sktxl"],
        [
            (None, None, 5, (1.0, 1.0), None),
            ("", 2, 7, None, [4]),
            ("a", 1, 7, (0.0, -1.0), []),
            ("b" * 40, 1, 0, "NaN", [2, 3]),
        ],
    ),
    (
        PLAIN.top_k(3, "k", "s", window="t", on_error="skip"),
        None,
        [("", 2, 7, None, [4]), ("a", 1, 7, (0.0, -1.0), [])],
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("pipeline", "schema", "rows"), ROWS, ids=lambda value: str(value)[:30])
def test_the_rows(pipeline, schema, rows, way):
    state = state_of(pipeline, **way)
    assert schema is None or state.schema == pa.schema(schema)
    rows = [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows]
    assert exact_rows([state], state.schema) == rows


def test_only_the_best_are_kept_where_the_counts_grow():
    """What is kept is what the operator says of itself after the rewrites."""
    pipeline = KEYED.count("n").top_k(2, "n", "k")
    state = state_of(pipeline)
    assert state.to_pylist() == [{"k": None, "n": 1}, {"k": 1, "n": 3}]
    last = pipeline.plan.operators[-1]
    grown = last.given_growing((1, frozenset({0})))
    assert last.state_identity()["parameters"].endswith("rows of all")
    assert grown.state_identity()["parameters"].endswith("rows of the 2 best")


def test_columns_that_nobody_reads_later_are_kept_all_the_same():
    pipeline = PLAIN.top_k(1, "t", "s")
    name = pipeline.plan.operators[0].name
    with Segment(pipeline.select("t"), **WAYS[0]) as segment:
        segment.push(DATA)
        assert same_states({name: segment.state_of(name)}, {name: state_of(pipeline)})


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_ties_of_a_ranking_and_its_window_are_kept(way):
    """Rows with equal `by` in any order; then a row of an earlier window, and one that ends the window."""
    data = pa.table(
        {
            "s": ["c", "a", "b", "d", "a", "e"],
            "x": [1, 1, 1, 1, 1, 1],
            "w": pa.array([5, 5, 5, 4, 5, 6], pa.uint64()),
        }
    )
    pipeline = od.Pipeline(data.schema).top_k(2, "x", "s", window="w", emit="updates", on_error="skip")
    expected = run_serial(pipeline, data).table
    assert expected["s"].to_pylist() == ["c", "a", "b", "a", "a", "b", "e", "e"]
    for cut in range(len(data)):
        batches, _ = run_cut(pipeline, data, [cut], [way])
        assert pa.Table.from_batches(batches).equals(expected)


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_only_the_named_keys_leave_with_all_their_values(emit):
    pipeline = KEYED.top_values("t", 1, emit=emit)
    everything = state_of(pipeline)
    named = everything.filter(pa.array([row["k"] == 1 for row in everything.to_pylist()]))
    assert len(named) == 3
    for way in WAYS:
        with Segment(pipeline, **way) as segment:
            segment.push(DATA)
            (name,) = segment.stages
            for most in (1, 2, 100):
                key = named.slice(1, 1).combine_chunks().to_batches()[0]
                assert segment.state_of(name, most, key).equals(named)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("k", "emit"), [(2, "updates"), (9, "updates"), (9, "final")])
def test_values_of_the_keys_that_stay_are_ranked_on(way, k, emit):
    """Keys that leave take their values out of the middle; those that stay find theirs, and their ranks."""
    draw = random.Random(7)
    rows = [{"k": draw.randrange(24), "s": "v" * draw.randrange(14)} for _ in range(3000)]
    data = pa.Table.from_pylist(rows, pa.schema([("k", pa.int64()), ("s", pa.string())]))
    pipeline = od.Pipeline(data.schema).key_by("k").top_values("s", k, emit=emit)
    before, behind = data.slice(0, 1500), data.slice(1500)
    with Segment(pipeline, **way) as segment:
        (name,) = segment.stages
        segment.push(before)
        state = segment.state_of(name)
        for turn in (0, 1):
            gone = pa.array([key % 3 == turn for key in state["k"].to_pylist()])
            assert segment.remove(name, state.filter(gone)) == 8
        seen = sum(batch.num_rows for batch in segment.batches)
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
    stayed = before.filter(pa.array([key % 3 == 2 for key in before["k"].to_pylist()]))
    result = run_serial(pipeline, pa.concat_tables([stayed, behind]))
    wanted = exact_rows([result.table], pipeline.schema)
    assert found == [row for row, (n, _) in zip(wanted, result.tags, strict=True) if n > len(stayed)]


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("pipeline", "change", "message"),
    [
        (KEYED.count("n", window=10, time="t"), {"count": 0}, "null, 0 or negative"),
        (KEYED.count("n", above=2), {"count": None}, "null, 0 or negative"),
        (KEYED.count("n", window=10, time="t"), {"t": None}, "the time of the last tuple is null"),
        (KEYED.regression("t", "k", on_error="skip"), {"n": 0}, "less than one point"),
        (KEYED.regression("t", "k", on_error="skip"), {"sum_xy": None}, "is null"),
        (KEYED.top_values("s", 2), {"count": -1}, "null, 0 or negative"),
        (PLAIN.top_k(1, "t", "s"), {"t": None}, "a null where top_k ranks"),
        (PLAIN.top_k(1, "x", "s", window="t", on_error="skip"), {"t": None}, "a null where top_k ranks"),
    ],
)
def test_values_that_no_state_has_are_refused(pipeline, change, message):
    good = state_of(pipeline).to_pylist()[:1]
    bad = [{**good[0], **change}]
    with Segment(pipeline, workers=0) as segment:
        (name,) = segment.stages
        schema = segment.stages[name][1].state_schema()
        with pytest.raises(od.PlanError, match=message):
            segment.install({name: pa.Table.from_pylist(bad, schema)})
        assert segment.state_of(name).num_rows == 0
        segment.install({name: pa.Table.from_pylist(good, schema)})
        assert segment.state_of(name).to_pylist() == good


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "pipeline",
    [
        KEYED.lag({"before": "t"}),
        PLAIN.lag({"before": "t"}),
        KEYED.assert_ordered("t"),
        KEYED.count("n", window=10, time="t"),
        PLAIN.count("n", above=1),
        KEYED.regression("t", "k", on_error="skip"),
        KEYED.top_values("s", 2),
        KEYED.top_values("s", 2, emit="final"),
        PLAIN.top_k(2, "t", "s"),
        KEYED.count("n").top_k(2, "n", "k", emit="updates"),
    ],
    ids=lambda pipeline: pipeline.plan.operators[-1].describe(),
)
def test_what_is_there_already_is_refused_and_nothing_changes(pipeline, way):
    name = pipeline.plan.operators[-1].name
    with Segment(pipeline, **way) as segment:
        segment.push(DATA)
        state = segment.state_of(name)
        with pytest.raises(od.PlanError, match="is there already") as raised:
            segment.install({name: state})
        assert repr(name) in str(raised.value)
        assert same_states({name: segment.state_of(name)}, {name: state})


def test_rows_of_two_windows_are_refused():
    pipeline = PLAIN.top_k(3, "k", "s", window="t", on_error="skip")
    rows = state_of(pipeline).to_pylist()
    rows[1]["t"] += 1
    with Segment(pipeline, workers=0) as segment:
        (name,) = segment.stages
        schema = segment.stages[name][1].state_schema()
        with pytest.raises(od.PlanError, match="of another window"):
            segment.install({name: pa.Table.from_pylist(rows, schema)})


# ---------------------------------------------------------------------------------------------- identity


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (KEYED.count("n", above=1), KEYED.count("n", emit="final"), True),
        (KEYED.count("n", window=10, time="t"), KEYED.count("n", window=11, time="t"), False),
        (KEYED.regression("t", "k"), KEYED.regression("t", "k", emit="final"), True),
        (KEYED.top_values("s", 2), KEYED.top_values("s", 9, emit="final"), True),
        (KEYED.top_values("s", 2), KEYED.top_values("t", 2), False),
        (PLAIN.top_k(2, "t", "s"), PLAIN.top_k(9, "t", "s", emit="updates"), True),
        (PLAIN.top_k(2, "t", "s"), PLAIN.top_k(2, "t", "s", window="k"), False),
        (PLAIN.top_k(2, "t", "s"), PLAIN.top_k(2, "t", ["s", "k"]), False),
        (KEYED.lag({"a": "t"}), KEYED.lag({"b": "t"}), True),
        (KEYED.lag({"a": "t"}), PLAIN.lag({"a": "t"}), False),
    ],
)
def test_what_the_state_does_not_depend_on_may_change(one, other, same):
    a, b = (pipeline.plan.operators[-1].state_identity() for pipeline in (one, other))
    assert (a == b) is same


# ---------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "pipeline",
    [
        KEYED.lag({"before": "t"}),
        KEYED.assert_ordered("t"),
        KEYED.count("n", window=10, time="t"),
        KEYED.regression("t", "t"),
        KEYED.top_values("s", 9),
        KEYED.top_values("s", 9, emit="final"),
        PLAIN.top_k(50, "t", ["k", "s"], emit="updates"),
    ],
    ids=lambda pipeline: re.sub(r"\W+", " ", pipeline.plan.operators[-1].describe()),
)
def test_removed_keys_give_their_memory_back(pipeline, way):
    """Ever new keys with eight values each, of which all but one are removed each time."""
    (name,) = (operator.name for operator in pipeline.plan.operators)
    with Segment(pipeline, **way) as segment:
        empty = segment.bytes(name)
        held, left = [], []
        for turn in range(6):
            keys = [turn * 1000 + i // 8 for i in range(8000)]
            texts = [f"{key} {'s' * (i % 8) * 10}" for i, key in enumerate(keys)]
            data = {"k": keys, "t": [7] * 8000, "x": [0.5] * 8000, "s": texts, "l": [[1]] * 8000}
            segment.push(pa.table(data, schema=DATA.schema), rows=8000)
            held.append(segment.bytes(name))
            state = segment.state_of(name, most=100_000)
            gone = state.filter(pa.array([row["k"] % 1000 != 0 for row in state.select(["k"]).to_pylist()]))
            segment.remove(name, gone)
            left.append(segment.bytes(name))
        assert max(held) <= 1.3 * held[0]
        assert max(left) <= empty + (held[0] - empty) // 4
