"""Aggregations that keep values: in aggregate, scan and every window the same, beside Polars and DuckDB."""

from __future__ import annotations

import math
import random

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from property.compare import agree, run_core
from state_runs import Segment, check_memory_comes_back, check_state_moves

import ordstream as od
from ordstream.testing import run_serial

TYPES = {
    "ts": pa.int64(),
    "k": pa.int64(),
    "x": pa.float64(),
    "u": pa.uint64(),
    "f": pa.float32(),
    "b": pa.bool_(),
    "s": pa.string(),
    "z": pa.binary(),
    "d": pa.date32(),
    "l": pa.list_(pa.int32()),
}
SCHEMA = pa.schema(TYPES)
POOLS = {
    "x": [None, 0.0, -0.0, math.nan, -math.nan, 1.5, -2.25, math.inf, -math.inf, 1e300],
    "u": [None, 0, 1, 2**63, 2**64 - 1],
    "f": [None, 0.5, math.nan, -3.25],
    "b": [None, True, False],
    "s": [None, "", "a", "b" * 40, "ä", "z" * 20, "a" * 17],
    "z": [None, b"", b"\0", b"\xff" * 30],
    "d": [None, 0, -5, 20_000],
    "l": [None, [1], []],
}


def table(n, seed=1, keys=3):
    rng = random.Random(seed)
    now, columns = 0, {"ts": [], "k": [rng.randrange(keys) for _ in range(n)]}
    for _ in range(n):
        now += rng.choice([0, 0, 1, 2, 7])
        columns["ts"].append(now)
    for name, pool in POOLS.items():
        columns[name] = [rng.choice(pool) for _ in range(n)]
    arrays = [
        pa.array(columns[name], pa.int32()).cast(type_) if name == "d" else pa.array(columns[name], type_)
        for name, type_ in TYPES.items()
    ]
    return pa.table(arrays, schema=SCHEMA)


SMALL = od.col("ts") % 3 > 0
CALLS = {
    **{f"distinct_{c}": od.count_distinct(c) for c in "xufbszd"},
    **{f"{end}_{c}": getattr(od, end)(c) for c in "sz" for end in ("first", "last", "min", "max")},
    **{"min_b": od.min("b"), "max_b": od.max("b"), "sum": od.sum("ts"), "mean": od.mean("x")},
    **{f"median_{c}": od.median(c) for c in "xuf"},
    "tenth": od.quantile("x", 0.1, where=SMALL),
    "most": od.quantile("ts", 1),
    **{f"last_{c}": od.collect(c, n) for c, n in (("x", 2), ("f", 1), ("b", 3), ("d", 5), ("u", 2))},
    "s_at": od.arg_min("s", "x"),
    "x_at": od.arg_max("x", "s", where=SMALL),
    "z_at": od.arg_max("z", "f"),
    "b_at": od.arg_min("b", "u"),
    "d_at": od.arg_max("d", "b"),
}
KINDS = {
    "scan": lambda p: p.scan(**CALLS),
    "aggregate": lambda p: p.aggregate(**CALLS),
    "final": lambda p: p.aggregate(**CALLS, emit="final"),
    "tumbling": lambda p: p.window(od.tumbling(9), time="ts").aggregate(**CALLS, emit="both"),
    "hopping": lambda p: p.window(od.hopping(12, every=5), time="ts").aggregate(**CALLS, emit="both"),
    "session": lambda p: p.window(od.session(2), time="ts").aggregate(**CALLS),
    "rolling": lambda p: p.window(od.rolling(9), time="ts").aggregate(**CALLS),
    "left": lambda p: p.window(od.rolling(9, closed="left"), time="ts").aggregate(**CALLS),
    "rows": lambda p: p.window(od.rows(4)).aggregate(**CALLS),
}
WAYS = ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7, "buckets": 3}, {"workers": 1})


@pytest.mark.parametrize("key", ["k", "s", None])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_everywhere(kind, key):
    data = table(90)
    source = od.Pipeline(SCHEMA)
    pipeline = KINDS[kind](source.key_by(key) if key else source)
    expected = run_serial(pipeline, data)
    for way in WAYS:
        agree(pipeline, expected, run_core(pipeline, data, **way))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "final"])
def test_their_state_moves(kind):
    check_state_moves(KINDS[kind](od.Pipeline(SCHEMA).key_by("k")), table(60, seed=4))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "final"])
def test_memory_comes_back(kind):
    data = table(400, keys=200)
    closes_nothing = data.set_column(0, "ts", pa.array([5] * 400))
    check_memory_comes_back(KINDS[kind](od.Pipeline(SCHEMA).key_by("k")), closes_nothing)


def test_a_state_that_is_none_is_refused():
    data = table(30)
    pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(s=od.max("s"), n=od.count_distinct("x"))
    with Segment(pipeline, workers=0) as segment:
        segment.push(data)
        (name,) = segment.stages
        state = segment.state_of(name)
    assert state.schema.names == ["k", "s.values", "n.values"]
    for column in ("s.values", "n.values"):
        bad = [{**state.to_pylist()[0], column: state.to_pylist()[0][column] + b"\1"}]
        with Segment(pipeline, workers=0) as segment, pytest.raises(od.PlanError, match="are cut off"):
            segment.install({name: pa.Table.from_pylist(bad, state.schema)})


@pytest.mark.parametrize("kind", [od.tumbling(9), od.hopping(12, every=5)], ids=str)
def test_values_of_windows_that_no_state_has_are_refused(kind):
    window = od.Pipeline(SCHEMA).key_by("k").window(kind, time="ts")
    pipeline = window.aggregate(s=od.max("s"), n=od.count_distinct("x"), name="w")
    with Segment(pipeline, workers=0) as segment:
        segment.push(table(30))
        state = segment.state_of("w")
    good = next(row for row in state.to_pylist() if row["n.values"])
    # of hopping windows eight bytes say how many follow: here none, of one window more
    for made, message in ((b"\1", "cut off|too many"), (b"\0" * 8, "too many"))[: 1 + bool(kind.every)]:
        with Segment(pipeline, workers=0) as segment:
            bad = pa.Table.from_pylist([{**good, "n.values": good["n.values"] + made}], state.schema)
            empty = segment.bytes("w")
            with pytest.raises(od.PlanError, match=message):
                segment.install({"w": bad})
            assert segment.state_of("w").num_rows == 0
            assert segment.bytes("w") < empty + 2_000
            segment.install({"w": pa.Table.from_pylist([good], state.schema)})
            assert segment.state_of("w").to_pylist() == [good]


NOTHING_BUT_NULLS = (
    r"\('none'\) is not defined for null, nothing but nulls: "
    r"cast it, od.\w+\(od.col\('none'\).cast\(pa.float64"
)


def test_what_is_not_defined():
    keyed = od.Pipeline(SCHEMA.append(pa.field("none", pa.null()))).key_by("k")
    for call, message in (
        (od.median("s"), "median\\('s'\\) is not defined for string"),
        (od.quantile("d", 0.5), r"not defined for date32.*: give it a number.*cast\(pa.int64"),
        (od.min("l"), "can't be compared"),
        (od.arg_min("x", "l"), "'l' can't be compared"),
        (od.count_distinct("l"), "can't be compared"),
        (od.sum("s"), "not defined for string"),
        *((call("none"), NOTHING_BUT_NULLS) for call in (od.min, od.max, od.count_distinct, od.sum)),
        (od.median("none"), NOTHING_BUT_NULLS),
        (od.arg_min("x", "none"), "it is null, nothing but nulls: cast it, od.col.'none'.*float64"),
    ):
        with pytest.raises(od.SchemaError, match=message):
            keyed.aggregate(a=call)
    cast = od.col("none").cast(pa.float64())
    assert keyed.aggregate(lo=od.min(cast), n=od.count_distinct(cast), last=od.last("none"))
    for call, message in (
        (lambda: od.quantile("x", 1.5), "a number from 0 to 1"),
        (lambda: od.quantile("x", math.nan), "a number from 0 to 1"),
        (lambda: od.collect("x", 0), "at least 1"),
        (lambda: keyed.sessionize("ts", 3, aggregate={"a": od.median("x")}), "use .window\\(od.session"),
    ):
        with pytest.raises(od.PlanError, match=message):
            call()


def test_explain_names_what_decides():
    pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(
        a=od.arg_max("s", "x"), q=od.quantile("x", 0.25), c=od.collect("x", 3)
    )  # fmt: skip
    assert "arg_max(s, by x), quantile(x, 0.25), collect(x, 3)" in pipeline.explain()


# ------------------------------------------------------------------------------------------- beside others


def plain(n=2000, seed=7):
    """Rows without ties in time and in x, for engines that choose another one of equal rows."""
    rng = random.Random(seed)
    now, ts = 0, []
    for _ in range(n):
        now += rng.choice([1, 2, 9])
        ts.append(now)
    x = [None if rng.random() < 0.1 else rng.uniform(-9, 9) for _ in range(n)]
    s = [None if rng.random() < 0.1 else rng.choice(["a", "bb", "ä", "c" * 20]) for _ in range(n)]
    return pa.table({"ts": ts, "k": [rng.randrange(5) for _ in range(n)], "x": x, "s": s})


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a == b or math.isclose(a, b, rel_tol=1e-12), (one, other)


def test_tumbling_beside_polars_and_duckdb():
    data = plain()
    calls = {"u": od.count_distinct("s"), "m": od.median("x"), "q": od.quantile("x", 0.9)}
    calls |= {"lo": od.min("s"), "hi": od.max("s"), "at": od.arg_max("s", "x"), "last": od.collect("x", 3)}
    found = (
        od.Pipeline(data.schema).key_by("k").window(od.tumbling(60), time="ts").aggregate(**calls).run(data)
    )
    ours = pl.from_arrow(found.table).sort("start", "k")
    x, s = pl.col("x"), pl.col("s")
    both = pl.col("x").is_not_null() & s.is_not_null()
    theirs = (
        pl.from_arrow(data).group_by_dynamic("ts", every="60i", group_by="k")
        .agg(
            u=s.drop_nulls().n_unique(), m=x.median(), q=x.quantile(0.9, "linear"), lo=s.min(), hi=s.max(),
            at=s.filter(both).get(x.filter(both).arg_max(), null_on_oob=True), last=x.drop_nulls().tail(3),
        )
        .sort("ts", "k")
    )  # fmt: skip
    names = ["u", "m", "q", "lo", "hi", "at"]
    same(ours.select("start", "k", *names).rows(), theirs.select("ts", "k", *names).rows())
    assert ours["last"].to_list() == theirs["last"].to_list()
    sql = duckdb.sql(
        "select ts // 60 * 60 as start, k, count(distinct s), median(x), quantile_cont(x, 0.9), min(s), "
        "max(s), arg_max(s, x) from data group by all order by start, k"
    ).fetchall()
    same(ours.select("start", "k", *names).rows(), sql)


def test_rolling_beside_duckdb():
    data = plain(600)
    found = (
        od.Pipeline(data.schema).key_by("k").window(od.rolling(40), time="ts")
        .aggregate(m=od.median("x"), q=od.quantile("x", 0.2), lo=od.min("s"), at=od.arg_min("s", "x"))
    ).run(data).table  # fmt: skip
    theirs = duckdb.sql(
        "select median(x) over w, quantile_cont(x, 0.2) over w, min(s) over w, arg_min(s, x) over w "
        "from data window w as (partition by k order by ts range between 39 preceding and current row) "
        "order by ts"
    ).fetchall()
    same(pl.from_arrow(found).select("m", "q", "lo", "at").rows(), theirs)


def test_zeros_and_nans_are_one_value_each():
    data = pa.table({"x": [0.0, -0.0, math.nan, -math.nan, 1.0]})
    found = od.Pipeline(data.schema).aggregate(n=od.count_distinct("x"), emit="final").run(data).table
    assert found["n"].to_pylist() == [3]


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session"])
def test_windows_that_rows_close_give_their_values_back(kind):
    """No mark closes them: their column is not the clock."""
    kinds = {"tumbling": od.tumbling(10), "hopping": od.hopping(10, every=5), "session": od.session(4)}
    source, made = {"k": pa.int64(), "n": pa.int64()}, {"k": int, "at": int, "s": str}
    rows = od.Pipeline(source).map(lambda row: (row.k, row.n * 20, f"{row.n:0500}"), schema=made)
    calls = {"d": od.count_distinct("s"), "m": od.max("s"), "name": "kept"}
    pipeline = rows.key_by("k").window(kinds[kind], time="at").aggregate(**calls)
    held = []
    with Segment(pipeline, workers=0, buckets=1, chunk_rows=10) as segment:
        for turn in range(3):
            n = range(turn * 100, turn * 100 + 100)
            segment.push(pa.table({"k": [i % 4 for i in n], "n": list(n)}))
            held.append(segment.bytes("kept"))
    assert held[2] < held[1] + 2_000


@pytest.mark.parametrize("q", [-0.1, 1.5, float("nan"), True, None, "0.5"])
def test_a_quantile_is_a_number_from_0_to_1(q):
    with pytest.raises(od.PlanError, match="q must be a number from 0 to 1, got "):
        od.quantile("x", q)


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([-math.inf, 1.0], 0.5, -math.inf),
        ([1.0, math.inf], 0.5, math.inf),
        ([-math.inf, 1.0, math.inf], 0.25, -math.inf),
        ([-math.inf, 1.0, math.inf], 0.75, math.inf),
        ([-math.inf, -math.inf, 1.0], 0.25, -math.inf),
        ([-math.inf, math.inf], 0.5, math.nan),
        ([-math.inf, 1.0, math.inf], 0.5, 1.0),
        ([-1.7e308, 1.7e308], 0.5, 0.0),
    ],
)
def test_a_quantile_beside_an_infinite_value_is_infinite(values, q, expected):
    source = pa.table({"k": [1] * len(values), "x": values})
    pipeline = od.Pipeline(source.schema).key_by("k").aggregate(q=od.quantile("x", q), emit="final")
    for found in (pipeline.run(source), run_serial(pipeline, source)):
        assert repr(found.table["q"].to_pylist()) == repr([expected])


@pytest.mark.parametrize("step", [1, 8, 1 << 20, 1 << 32, 1 << 44, 1 << 61, 0x9E3779B97F4A7C15 // 2])
@pytest.mark.parametrize("distinct", [3, 4, 7, 40, 900])
def test_distinct_values_come_and_go(step, distinct):
    rng = random.Random(distinct)
    values = [(step * rng.randrange(distinct) + (1 << 63)) % (1 << 64) - (1 << 63) for _ in range(3000)]
    source = pa.table({"ts": range(3000), "k": [rng.randrange(3) for _ in values], "x": values})
    source = source.append_column("s", source["x"].cast(pa.string()))
    calls = {"n": od.count_distinct("x"), "m": od.count_distinct("s")}
    window = od.rolling(distinct * 2)
    pipeline = od.Pipeline(source.schema).key_by("k").window(window, time="ts").aggregate(**calls)
    seen: list[list[tuple[int, int]]] = [[], [], []]
    expected = []
    for ts, k, x in zip(*(source[name].to_pylist() for name in ("ts", "k", "x")), strict=True):
        seen[k].append((ts, x))
        expected.append(len({x for at, x in seen[k] if at > ts - distinct * 2}))
    for options in ({"workers": 0}, {"workers": 2, "buckets": 2, "chunk_rows": 64}):
        found = pipeline.run(source, **options).table
        assert found["n"].to_pylist() == found["m"].to_pylist() == expected


@pytest.mark.parametrize("values", ["whole numbers", "halves", "upper bits", "lower bits", "both"])
def test_distinct_numbers_that_differ_in_few_bits(values):
    """Where such lie at one place of the table, this takes minutes in place of a tenth of a second."""
    shift = {"upper bits": 44, "lower bits": 0, "both": 32}.get(values)
    given = pa.array(np.arange(40_000) % 16_384)
    if shift is None:
        given = pc.divide(given.cast(pa.float64()), 1 if values == "whole numbers" else 2)
    else:
        given = pc.multiply(given, (1 << shift) + (values == "both"))
    source = pa.table({"ts": range(len(given)), "k": np.zeros(len(given), np.int64), "x": given})
    calls = {"n": od.count_distinct("x")}
    keyed = od.Pipeline(source.schema).key_by("k")
    rolling = keyed.window(od.rolling(16_000), time="ts").aggregate(**calls)
    expected = [min(i + 1, 16_000) for i in range(40_000)]
    assert rolling.run(source, workers=0).table["n"].to_pylist() == expected
    assert keyed.aggregate(**calls, emit="final").run(source, workers=0).table["n"].to_pylist() == [16_384]
