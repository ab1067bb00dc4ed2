"""State of sessions, rings and pairs as rows: which rows, what is refused, what they do not depend on."""

from __future__ import annotations

import functools
import math

import pyarrow as pa
import pytest
from state_runs import Segment, exact_rows

import ordstream as od
from ordstream.node import node
from ordstream.plan.physical import physical

WAYS = [{"workers": 0, "buckets": 3}, {"workers": 2, "buckets": 1}]
DATA = pa.table(
    {
        "k": pa.array([5, None, 5, None, 7, 5, None], pa.int64()),
        "t": pa.array([-(2**63), -5, -4, 0, 1, 2, 2**63 - 1], pa.int64()),
        "x": pa.array([1, 2, None, 4, None, None, 7], pa.int64()),
        "f": pa.array([0.5, -0.0, math.nan, None, 0.0, 0.5, 1.0], pa.float32()),
    }
)
LAST = {"top": od.max("x"), "n": od.count("x")}


def state_of(pipeline, data=DATA, **options):
    with Segment(pipeline, **(options or WAYS[0])) as segment:
        segment.push(data)
        (table,) = segment.state().values()
    return table


def keyed():
    return od.Pipeline(DATA.schema).key_by("k")


# ---------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_sessions_in_slots_and_others_are_rows_alike(way):
    rows = [
        {"k": None, "start": 2**63 - 1, "end": 2**63 - 1, "count": 1, "top": 7, "n": 1},
        {"k": 5, "start": -4, "end": 2, "count": 2, "top": None, "n": 0},
        {"k": 7, "start": 1, "end": 1, "count": 1, "top": None, "n": 0},
    ]
    slots = state_of(keyed().sessionize("t", 10, aggregate=LAST), **way)
    assert slots.to_pylist() == rows
    others = state_of(keyed().sessionize("t", 10, {"all": "t"}, aggregate=LAST | {"m": od.mean("x")}), **way)
    assert others.drop_columns(["all", "m.sum", "m.count"]).to_pylist() == rows
    assert others["all"].to_pylist() == [[2**63 - 1], [-4, 2], [1]]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("collect", [{}, {"all": "t"}])
def test_a_session_that_time_closed_leaves_nothing(collect, way):
    """Neither of its key, nor of the null key: as if they had never come."""
    built = keyed().sessionize("t", 1, collect)
    data = DATA.slice(1, 5)
    with Segment(built, punctuate=od.every("t", 3), **way) as segment:
        segment.push(data)  # punctuations at -3, 0: key null ends at -5, then begins anew
        assert segment.state_of("sessionize_1").select(["k", "start"]).to_pylist() == [
            {"k": None, "start": 0},
            {"k": 5, "start": 2},
            {"k": 7, "start": 1},
        ]
        segment.push(pa.table([[8], [40], [1], pa.array([1.0], pa.float32())], schema=DATA.schema))
        assert segment.state_of("sessionize_1")["k"].to_pylist() == [8]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("n", [2, 400])
def test_a_ring_is_lists_side_by_side_the_oldest_entry_first(n, way):
    built = keyed().preceding(
        n, {"past": "f", "at": "x"}, time="t", within=5, where=od.col("x").is_not_null()
    )
    state = state_of(built, **way)
    columns = ["k", "time", "counts", "f", "f.there", "x", "x.there"]
    assert state.column_names == columns
    times = {None: [-5, 0, 2**63 - 1], 5: [-(2**63), -4, 2], 7: [1]}
    floats = {None: [-0.0, 0.0, 1.0], 5: [0.5, math.nan, 0.5], 7: [0.0]}
    there = {None: [True, False, True], 5: None, 7: None}
    whole = {None: [2, 4, 7], 5: [1, 0, 0], 7: [0]}
    counts = {None: [True] * 3, 5: [True, False, False], 7: [False]}
    wanted = []
    for key in (None, 5, 7):
        has = None if there[key] is None or all(there[key][-n:]) else there[key][-n:]
        x_has = None if all(counts[key][-n:]) else counts[key][-n:]
        lists = (times[key], counts[key], floats[key])
        wanted.append((key, *(part[-n:] for part in lists), has, whole[key][-n:], x_has))
    expected = pa.Table.from_arrays(
        [
            pa.array(column, field.type)
            for column, field in zip(zip(*wanted, strict=True), state.schema, strict=True)
        ],
        schema=state.schema,
    )
    assert exact_rows([state], state.schema) == exact_rows([expected], state.schema)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_pairs_are_a_list_in_order_of_arrival(way):
    data = pa.table({"k": ["b"] * 12 + ["a"], "f": [3.0, -0.0, math.nan, 0.0, *range(9, 1, -1), 1.0]})
    state = state_of(od.Pipeline(data.schema).key_by("k").pair_up("f"), data, **way)
    assert exact_rows([state], state.schema) == [
        ("a", ((1.0, 1.0),)),
        ("b", ((3.0, 1.0), (0.0, 1.0), "NaN", *((float(v), 1.0) for v in (9, 8, 7, 6, 5, 4, 2)))),
    ]


# ---------------------------------------------------------------------------------------------- neighbours


def test_what_is_kept_where_nobody_needs_it(monkeypatch):
    """A plan that says what is needed behind sessions leaves out values in slots, and then there is no state
    that could leave; without that rewrite the rows are those of the operator alone, whatever follows.
    """
    alone = state_of(keyed().sessionize("t", 10, aggregate=LAST))
    followed = [
        keyed().sessionize("t", 10, aggregate=LAST).select("k"),
        keyed().sessionize("t", 10, aggregate=LAST).filter(od.col("top").is_null()).select("count"),
    ]
    for built in followed:
        with Segment(built, workers=0) as segment:
            segment.push(DATA)
            with pytest.raises(ValueError, match="no state that can leave"):
                segment.state()
    monkeypatch.setattr(node, "physical", functools.partial(unneeded, physical))
    for built in followed:
        assert state_of(built).equals(alone)
        with Segment(built, workers=0) as one, Segment(followed[0], workers=0) as other:
            one.push(DATA.slice(0, 4))
            other.install(one.state())
            other.push(DATA.slice(4))
            assert other.state_of("sessionize_1").equals(alone)


def unneeded(make, plan, **options):
    return make(plan, **{**options, "without": (*options.get("without", ()), "needed_columns")})


def test_identity_names_what_the_columns_do_not():
    (one,) = keyed().sessionize("t", 10, {"all": "t"}).plan.operators
    (other,) = keyed().sessionize("t", 10, {"all": "x"}).plan.operators
    assert one.state_schema() == other.state_schema()
    assert one.state_identity() != other.state_identity()
    rings = [
        keyed().preceding(n, ["f"], carry=carry, when=when).plan.operators[0].state_identity()
        for n, carry, when in [(2, [], None), (2, ["x"], od.col("x") > 1), (3, [], None)]
    ]
    assert rings[0] == rings[1] != rings[2]


# ---------------------------------------------------------------------------------------------- refusals


def change(state, **columns):
    """The first row of a state with other values."""
    row = {**state.slice(0, 1).to_pylist()[0], **columns}
    return pa.Table.from_pylist([row], schema=state.schema)


BUILDS = {
    "slots": lambda: keyed().sessionize("t", 10, aggregate=LAST),
    "general": lambda: keyed().sessionize("t", 10, {"all": "t"}, aggregate=LAST),
    "ring": lambda: keyed().preceding(2, ["f"], time="t", within=5, where=od.col("x") > 0),
    "ring apart": lambda: keyed().preceding(400, ["f"], time="t", within=5, where=od.col("x") > 0),
    "pairs": lambda: keyed().pair_up("t"),
}
WRONG = [
    ("slots", {"start": None}, "null"),
    ("slots", {"count": 0}, "0, negative or too large"),
    ("slots", {"count": 2**60}, "0, negative or too large"),
    ("slots", {"start": 3, "end": 2}, "ends before it starts"),
    ("slots", {"n": None}, "null or negative"),
    ("slots", {"n": -1}, "null or negative"),
    ("general", {"end": None}, "null"),
    ("general", {"count": -1}, "0 or negative"),
    ("general", {"start": 3, "end": 2}, "ends before it starts"),
    ("general", {"count": 2}, "not as long as its count"),
    ("general", {"all": None}, "not as long as its count"),
    ("general", {"n": None}, "null or negative"),
    *(
        (ring, wrong, why)
        for ring in ("ring", "ring apart")
        for wrong, why in (
            ({"time": None}, "null, empty, or longer"),
            ({"time": []}, "null, empty, or longer"),
            ({"time": [1] * 401}, "null, empty, or longer"),
            ({"time": [1]}, "not of one length"),
            ({"counts": None}, "not of one length"),
            ({"f": [1.0]}, "not of one length"),
            ({"f": None}, "not of one length"),
            ({"f.there": [True]}, "not of one length"),
            ({"time": [2, 1], "counts": [True] * 2, "f": [1.0] * 2, "f.there": None}, "run backwards"),
        )
    ),
    ("pairs", {"t": None}, "null or empty"),
    ("pairs", {"t": []}, "null or empty"),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("kind", "wrong", "why"), WRONG, ids=str)
def test_a_row_that_no_run_left_is_refused(kind, wrong, why, way):
    built = BUILDS[kind]()
    state = state_of(built, DATA.filter(pa.array([True, True, False, True, False, False, True])))
    with Segment(built, **way) as segment:
        segment.push(DATA.slice(0, 0))
        (name,) = segment.stages
        with pytest.raises(od.PlanError, match=rf"operator '{name}' .*key .*{why}"):
            segment.install({name: change(state, **wrong)})
        assert len(segment.state_of(name)) == 0
        segment.install({name: state})
        with pytest.raises(od.PlanError, match="the key is there already"):
            segment.install({name: state.slice(0, 1)})
        assert segment.state_of(name).equals(state)
