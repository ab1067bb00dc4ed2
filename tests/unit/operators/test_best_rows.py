"""top_k of a key: which rows are its best, in which order, ties and NaN; DuckDB's and Polars' answers; its
state."""

from __future__ import annotations

import datetime
import itertools
import math

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_runs import Segment
from unit.kernel_check import ROWS, SCHEMA, pipeline, serial_input

import ordstream as od
from ordstream.testing import run_serial

FEW = pa.table({
    "k": ["b", "a", "b", "b", "a", None, "b"],
    "score": [1.0, 5.0, 3.0, 3.0, math.nan, 0.0, 2.0],
    "s": ["one", None, "drei", "", "fünf", "six", "seven"],
    "l": pa.array([[1], [], None, [2, 3], [4], [5], None], pa.list_(pa.int16())),
})  # fmt: skip
SIZES = list(itertools.product((0, 1, 2), (1, 7, "auto"), (1, 3, 16)))


def by(*key: str) -> od.Pipeline:
    return od.Pipeline(FEW.schema).key_by(*key)


def answers(pipeline: od.Pipeline, data: pa.Table, *columns: str) -> list[tuple]:
    """What `run_serial` and every run give."""
    expected = run_serial(pipeline, data)
    for workers, rows, buckets in SIZES:
        found = pipeline.run(data, workers=workers, chunk_rows=rows, buckets=buckets, tags=True).table
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
        assert repr(found.drop(["_serial", "_index"]).to_pylist()) == repr(expected.table.to_pylist())
    return list(zip(*(expected.table[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize(("key", "by"), [("b", "j"), ("j", "x"), ("s", "u"), ("x", "i"), ("i", "f")])
@settings(max_examples=15, deadline=None)
@given(rows=ROWS, k=st.sampled_from([1, 2, 3, 100]), descending=st.booleans(), way=st.sampled_from(SIZES))
def test_the_best_rows_equal_the_reference(key, by, emit, rows, k, descending, way):
    data = pa.Table.from_batches([serial_input(SCHEMA, rows)])
    made = (
        od.Pipeline(SCHEMA)
        .key_by(key)
        .top_k(k, by, descending=descending, emit=emit, rank="place", on_error="skip")
    )
    workers, chunk_rows, buckets = way
    found = made.run(data, workers=workers, chunk_rows=chunk_rows, buckets=buckets).table
    assert repr(found.to_pylist()) == repr(run_serial(made, data).table.to_pylist())


def test_by_ascending_key_the_best_first_and_of_equal_ones_the_first():
    assert answers(by("k").top_k(2, by="score"), FEW, "k", "s") == [
        *((None, "six"), ("a", None), ("a", "fünf"), ("b", "drei"), ("b", ""))
    ]
    assert answers(by("k").top_k(9, by="score", descending=False, rank="n"), FEW, "k", "s", "n") == [
        *((None, "six", 1), ("a", None, 1), ("a", "fünf", 2)),  # NaN comes last in either direction
        *(("b", "one", 1), ("b", "seven", 2), ("b", "drei", 3), ("b", "", 4)),
    ]


def test_updates_are_the_rows_that_are_among_the_best_when_they_come():
    pipeline = by("k").top_k(2, by="score", emit="updates")
    assert pipeline.schema.names == [*FEW.schema.names, "rank"]
    assert answers(pipeline, FEW, "k", "s", "rank") == [
        *(("b", "one", 1), ("a", None, 1), ("b", "drei", 1), ("b", "", 2), ("a", "fünf", 2)),
        (None, "six", 1),
        *((None, "six", 1), ("a", None, 1), ("a", "fünf", 2), ("b", "drei", 1), ("b", "", 2)),
    ]
    final = pipeline.run(FEW, emit="final").table
    assert repr(final.to_pylist()) == repr(run_serial(pipeline, FEW).table.to_pylist()[-5:])


@pytest.mark.parametrize("key", [["b"], ["s", "i"], ["x"], ["t", "d", "s"]])
@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.thin(3)
def test_any_key_and_any_column_in_any_run(key, descending):
    draw, n = np.random.default_rng(3), 400
    data = pa.table({
        "i": pa.array([None if i % 9 == 0 else i % 4 for i in range(n)], pa.int16()),
        "s": [None if i % 11 == 0 else "abc"[i % 3] * (i % 3) for i in range(n)],
        "b": [i % 3 == 0 for i in range(n)],
        "x": [(0.0, -0.0, math.nan, 2.5)[i % 4] for i in range(n)],
        "t": [None if i % 7 == 0 else datetime.datetime(2024, 1, 1 + i % 3) for i in range(n)],
        "d": pa.array([i % 2 for i in range(n)]).cast(pa.decimal128(30, 2)),
        "l": [None if i % 5 == 0 else [f"x{i}"] * (i % 3) for i in range(n)],
        "m": [{"a": i, "b": None} for i in range(n)],
        "day": pa.array(draw.integers(0, 30, n), pa.int32()).cast(pa.date32()),
        "u": pa.array(draw.integers(0, 2**64 - 1, n, np.uint64)),
    })  # fmt: skip
    for k, column in ((1, "u"), (2, "day"), (5, "u"), (1000, "day")):
        for emit in ("final", "updates"):
            made = od.Pipeline(data.schema).key_by(*key).top_k(k, column, descending=descending, emit=emit)
            answers(made, data)


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("emit", ["final", "updates"])
def test_the_best_of_all_rows(descending, emit):
    """Rows that are equal count each, unlike those of a key; NaN is last, of equal ones the first wins."""
    draw, n = np.random.default_rng(5), 700
    data = pa.table({
        "x": [math.nan if i % 50 == 0 else i * 37 % 90 / 4 for i in range(n)],
        "u": pa.array(draw.integers(0, 40, n, np.uint64)),
        "s": [None if i % 11 == 0 else "abc"[i % 3] * (i % 3) for i in range(n)],
        "l": [None if i % 5 == 0 else [f"x{i}"] * (i % 3) for i in range(n)],
        "m": [{"a": i % 9, "b": None} for i in range(n)],
    })  # fmt: skip
    for k, column in ((1, "u"), (5, "x"), (300, "u"), (9999, "x")):
        made = od.Pipeline(data.schema).top_k(k, column, (), descending=descending, emit=emit)
        rows = answers(made, data, "x", "s")
        assert len(rows) == min(k, n) or emit == "updates"
    if emit == "final":
        made = od.Pipeline(data.schema).top_k(9, "x", key=[], descending=descending)
        finite = [x for x in data["x"].to_pylist() if x == x]
        assert [x for x, _ in answers(made, data, "x", "s")] == sorted(finite, reverse=descending)[:9]


def test_the_best_of_all_rows_go_on_and_are_told():
    rows = many()
    made = od.Pipeline(rows.schema).top_k(5, "x", (), name="best")
    expected = run_serial(made, rows).table
    with Segment(made, workers=2, chunk_rows=64) as segment:
        segment.push(rows.slice(0, 9_000))
        state = segment.state()
    assert state["best"].num_rows == 1
    with Segment(made, workers=0) as segment:
        segment.install(state)
        segment.push(rows.slice(9_000))
        segment.finish()
        assert pa.Table.from_batches(segment.batches).equals(expected)
    assert made.run(rows, processes=2).table.equals(expected)
    told = "top_k 5: x descending, then as they came"
    assert told in str(made.explain())
    for wrong, text in (
        ({"key": (), "window": "row"}, "key=.. lists the best of all rows at the end: no window"),
        ({"descending": False}, "say key=.., or put key_by"),
        ({"key": "k", "descending": False}, "say key=.., or put key_by"),
        ({"key": (), "descending": 1}, "descending must be True or False"),
    ):
        with pytest.raises(od.PlanError, match=text):
            od.Pipeline(rows.schema).top_k(5, "x", **wrong)


def test_many_rows_in_an_order_that_moves_each_of_them():
    """Ascending, descending and other values; k between none and all of them."""
    n = 3_000
    for values in (range(n), range(n, 0, -1), [i * 7919 % n for i in range(n)]):
        data = pa.table({"k": [i % 2 for i in range(n)], "v": list(values)})
        for k in (1, 4, 5, 700, 1 << 20):
            made = od.Pipeline(data.schema).key_by("k").top_k(k, by="v")
            expected = run_serial(made, data).table
            assert made.run(data, workers=2, chunk_rows=64).table.equals(expected)
            assert len(expected) == min(2 * k, n)


def many() -> pa.Table:
    draw, n = np.random.default_rng(11), 20_000
    return pa.table({
        "row": np.arange(n),
        "k": draw.integers(0, 700, n),
        "j": draw.integers(0, 3, n),
        "x": draw.permutation(n),
        "s": [None if i % 9 == 0 else f"text {i}" * (i % 4) for i in range(n)],
    })  # fmt: skip


@pytest.mark.parametrize("key", [["k"], ["k", "j"]])
@pytest.mark.parametrize("descending", [True, False])
def test_the_answer_is_duckdbs_and_polars(key, descending):
    rows = many()
    found = od.Pipeline(rows.schema).key_by(*key).top_k(3, by="x", descending=descending, rank="n").run(rows)
    names, direction = ", ".join(key), "desc" if descending else "asc"
    query = (
        f"select *, row_number() over (partition by {names} order by x {direction}) as n from rows "
        f"qualify n <= 3 order by {names}, n"
    )
    wanted = pa.table(duckdb.sql(query).arrow())
    assert found.table.equals(wanted.cast(found.table.schema))
    frame = pl.from_arrow(rows).sort("x", descending=descending).group_by(key, maintain_order=True).head(3)
    frame = frame.sort(key, maintain_order=True).select(rows.schema.names)
    assert found.table.drop("n").equals(frame.to_arrow().cast(rows.schema))


def test_nodes_and_moves_of_keys_give_the_same():
    rows = many().slice(0, 6_000)
    for emit in ("final", "updates"):
        made = od.Pipeline(rows.schema).key_by("k").top_k(3, by="x", emit=emit)
        expected = run_serial(made, rows).table
        assert made.run(rows, processes=2).table.equals(expected)
        moving = made.run(rows.to_batches(max_chunksize=500), processes=2, balance=od.Mixed())
        assert moving.table.equals(expected)


def test_a_null_is_an_error_at_its_row():
    data = pa.table({"k": [1, 1, 2], "v": pa.array([3, None, None], pa.int64())})
    with pytest.raises(od.OperatorError, match="null"):
        od.Pipeline(data.schema).key_by("k").top_k(2, by="v").run(data)
    skips = od.Pipeline(data.schema).key_by("k").top_k(2, by="v", on_error="skip")
    assert answers(skips, data, "k", "v") == [(1, 3)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p.key_by("s").top_k(0, "i"), "k must be an int of at least 1"),
        (lambda p: p.key_by("s").top_k(1 << 21, "i"), "k must be at most 1048576"),
        (lambda p: p.key_by("i").top_k(1, "i"), "is a key column"),
        (lambda p: p.key_by("i").top_k(1, "s"), "must be a number, date or time"),
        (lambda p: p.key_by("i").top_k(1, "x", emit="always"), "emit must be 'updates' or 'final'"),
        (lambda p: p.key_by("i").top_k(1, "x", descending="no"), "descending must be True or False"),
        (lambda p: p.key_by("i").top_k(1, "x", rank="s"), "'s'"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises(od.OrdstreamError, match=message):
        build(pipeline())


# ---------------------------------------------------------------------------------------------- its state


def test_a_stored_state_fits_the_same_ranking_only():
    def identity(*arguments, **options):
        return by("k").top_k(*arguments, **options).plan.operators[0].state_identity()

    assert identity(2, "score") == identity(2, "score", emit="updates", rank="place")
    for other in (identity(3, "score"), identity(2, "score", descending=False)):
        assert identity(2, "score") != other


def test_rows_of_state_are_the_best_first():
    made = by("k").top_k(2, by="score", name="best")
    with Segment(made, workers=0) as segment:
        segment.push(FEW)
        state = segment.state()["best"]
        assert state.schema.names == ["k", "rows", "values"]
        assert state.sort_by("k")["rows"].to_pylist() == [2, 2, 1]
        segment.push(FEW)  # it is as before, for the rows to come
        segment.finish()
        assert pa.Table.from_batches(segment.batches).num_rows == 6
    with Segment(made, workers=0) as segment:
        segment.install({"best": state})
        segment.push(FEW.slice(6))
        segment.finish()
        found = pa.Table.from_batches(segment.batches)
    assert repr(found.to_pylist()) == repr(run_serial(made, FEW).table.to_pylist())


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\x02" * 9, b"\x00" * 3, b"\x01" + b"\xff" * 8])
def test_a_row_of_state_that_none_left_is_refused(damage):
    made = by("k").top_k(2, by="score", name="best")
    with Segment(made, workers=0) as segment:
        segment.push(FEW)
        state = segment.state()["best"]
    wrong = state.set_column(2, state.schema.field(2), pa.array([damage] * 3, pa.binary()))
    more = state.set_column(1, state.schema.field(1), pa.array([3] * 3))
    with Segment(made, workers=0) as segment:
        for one in (wrong, more):
            with pytest.raises(od.PlanError, match="no rows that the operator keeps"):
                segment.install({"best": one})
        segment.install({"best": state})
        assert segment.state()["best"].num_rows == 3


def test_a_row_of_state_that_is_not_best_first_is_refused():
    data = pa.table({"k": [1, 1], "v": [3, 4]})
    up, down = (
        od.Pipeline(data.schema).key_by("k").top_k(2, "v", descending=way, name="best")
        for way in (False, True)
    )
    with Segment(up, workers=0) as segment:
        segment.push(data)
        state = segment.state()["best"]
    with Segment(down, workers=0) as segment, pytest.raises(od.PlanError, match="no rows that"):
        segment.install({"best": state})


def test_memory_is_that_of_the_best_rows_and_is_given_back():
    made = od.Pipeline({"k": int, "v": int, "s": str}).key_by("k").top_k(3, by="v", name="best")
    with Segment(made, workers=0) as segment:
        empty, held = segment.bytes("best"), []
        for turn in range(5):
            v = list(range(turn * 2_000, (turn + 1) * 2_000))
            texts = ["x" * (500, 5)[i % 2] for i in v]
            segment.push(pa.table({"k": [i % 100 for i in v], "v": v, "s": texts}))
            held.append(segment.bytes("best"))
        assert max(held) < empty + 100 * 3 * 700 + 40_000
        assert segment.remove("best", segment.state_of("best")) == 100
        assert segment.bytes("best") <= empty
