"""The state contract: a stream that is cut anywhere, and goes on in runs that have nothing in common with
the ones before, gives what an uninterrupted run gives; keys that were removed are as if they had never
come.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from state_runs import Segment, configurations, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial

POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, -1, 7, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), None]),
    "j": (pa.int32(), [0, 1, -3, 2**31 - 1, -(2**31), 5]),
    "u": (pa.uint64(), [0, 3, 2**32, 2**64 - 1, None]),
    "y": (pa.int16(), [0, -1, 2]),
    "b": (pa.bool_(), [True, False, None]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, math.nan, -math.inf, 1e308, None]),
    "f": (pa.float32(), [0.0, -0.0, 0.5, math.nan, None]),
    "s": (pa.string(), ["", "a", "a\x00", "häuser", "z" * 50, None]),
    "z": (pa.binary(), [b"", b"\xff\x00"]),
    "d": (pa.date32(), [0, 11_000, None]),
    "t": (pa.timestamp("us", "UTC"), [0, -1, 10**15]),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in POOLS.items()])
KEYS = [
    *(
        (),
        ("i",),
        ("j",),
        ("b",),
        ("x",),
        ("f",),
        ("s",),
        ("d", "y"),
        ("i", "j"),
        ("u", "t"),
        ("s", "z"),
        ("i", "s", "x"),
    ),
    ("y", "b", "j", "d"),
    ("i", "j", "u", "y", "b", "x", "f", "s", "z"),
    ("j", "y", "b", "d", "t", "u", "i", "f", "x"),
]
CONDITION = od.col("y") >= 0
AGGREGATIONS = {
    "n": od.count(),
    "n_x": od.count("x", where=CONDITION),
    "sum_y": od.sum("y"),
    "sum_f": od.sum("f", where=od.col("b")),
    "min_x": od.min("x"),
    "max_u": od.max("u", where=CONDITION),
    "min_f": od.min("f"),
    "max_i": od.max("i"),
    "min_d": od.min("d", where=CONDITION),
    "first_b": od.first("b"),
    "first_t": od.first("t", where=CONDITION),
    "last_f": od.last("f"),
    "last_u": od.last("u"),
    "mean_j": od.mean("j", where=CONDITION),
    "mean_x": od.mean("x"),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    n = draw(st.integers(2, 90))
    columns = []
    for type_, pool in POOLS.values():
        picks = draw(st.binary(min_size=n, max_size=n))
        columns.append(pa.array([pool[pick % len(pool)] for pick in picks], _plain(type_)).cast(type_))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _plain(type_: pa.DataType) -> pa.DataType:
    return {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(type_, type_)


@st.composite
def stateful(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...], *, last: bool = True) -> od.Pipeline:
    """One stateful operator behind a pipeline."""
    keyed = pipeline.key_by(*key) if key else pipeline
    kinds = ["count", "count final", "aggregate", "aggregate final", "scan"] if last else ["scan"]
    kind = draw(st.sampled_from(kinds))
    emit = "final" if kind.endswith("final") else "updates"
    if kind.startswith("count"):
        return keyed.count("how_many", emit=emit)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=9, unique=True))
    prefix = f"{kind[0]}{len(pipeline.plan.operators)}_"
    aggregations = {prefix + name: AGGREGATIONS[name] for name in names}
    return keyed.scan(**aggregations) if kind == "scan" else keyed.aggregate(emit=emit, **aggregations)


@st.composite
def pipelines(draw: Any) -> od.Pipeline:
    """Perhaps a filter, perhaps a scan, then a count, scan or aggregate."""
    built = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        built = built.filter(od.col("y") != draw(st.integers(-1, 2)))
    if draw(st.booleans()):
        built = draw(stateful(built, draw(st.sampled_from(KEYS)), last=False))
    return draw(stateful(built, draw(st.sampled_from(KEYS))))


def some_configurations(draw: Any) -> list[dict[str, Any]]:
    return [dict(c) for c in draw(st.permutations(configurations()))]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3)))
    one, other = some_configurations(data.draw), some_configurations(data.draw)
    expected = exact_rows([run_serial(pipeline, table).table], pipeline.schema)
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == expected
    _, (at_once,) = run_cut(
        pipeline, table, cuts[2:], other
    )  # canonical: what lies behind a state does not show
    assert same_states(states[2], at_once)


@settings(max_examples=60, deadline=None)
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


def options_of(configuration: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in configuration.items() if name not in ("rows", "most")}
