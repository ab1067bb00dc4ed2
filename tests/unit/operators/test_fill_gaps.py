"""Windows that fill gaps: which empty windows there are, when they come, what they hold, and their state."""

from __future__ import annotations

import datetime
import itertools
import random

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.moved_state import goes_on_anywhere
from state_runs import Segment
from unit.operators.test_window import SCHEMA, both, rows

import ordstream as od
from ordstream.testing import run_serial


def filled(kind, *, emit="close", by="k", time="ts", source=None, fills=True, **calls):
    source = od.Pipeline(SCHEMA) if source is None else source
    keyed = source.key_by(by) if by else source
    calls = calls or {"n": od.count()}
    return keyed.window(kind, time=time, fill_gaps=fills).aggregate(emit=emit, **calls)


def test_empty_windows_come_in_front_of_their_keys_next_window():
    data = rows((1, "a", 1), (2, "b", 1), (41, "a", 1), (42, "b", 1), (55, "a", 1))
    found, serials = both(filled(od.tumbling(10)), data)
    assert found == [
        *(("a", 0, 10, 1), ("b", 0, 10, 1)),  # at the mark 40; what follows is not known yet
        *(("a", 10, 20, 0), ("a", 20, 30, 0), ("a", 30, 40, 0), ("a", 40, 50, 1)),  # at the mark 50
        *(("b", 10, 20, 0), ("b", 20, 30, 0), ("b", 30, 40, 0), ("b", 40, 50, 1)),
        ("a", 50, 60, 1),  # at the end: nothing behind a key's last window
    ]
    assert serials == [3, 3, *[5] * 9]


def test_with_updates_they_come_as_soon_as_the_next_window_has_a_row():
    data = rows((1, "a", 1), (31, "a", 5), (32, "a", 5))
    for emit, told in ("both", [(True,), (False,)]), ("updates", [(), ()]):
        found, serials = both(filled(od.tumbling(10), emit=emit, s=od.sum("x")), data)
        closed, open_ = told
        updates = [
            ("a", 0, 10, 1, *open_),
            *(("a", 10, 20, 0, *closed), ("a", 20, 30, 0, *closed)),
            *(("a", 30, 40, 5, *open_), ("a", 30, 40, 10, *open_)),
        ]
        shown = [one for one in found if emit == "updates" or one[3] == 0 or not one[-1]]
        assert shown == updates
        assert serials[found.index(updates[1])] == 2


VALUES = pa.table(
    {
        "ts": [0, 1, 25],
        "i": [1, 2, 3],
        "f": [0.5, 1.5, 2.5],
        "s": ["x", "y", "z"],
        "dec": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
        "span": pa.array([1, 2, 3], pa.duration("s")),
        "struct": [{"a": 1}] * 3,
        "lists": [["x"]] * 3,
    }
)


def test_what_an_empty_window_holds():
    zero = {"n": od.count(), "where": od.count(where=od.col("i") > 5), "distinct": od.count_distinct("s")}
    zero |= {"i": od.sum("i"), "f": od.sum("f"), "dec": od.sum("dec"), "span": od.sum("span")}
    lists = {f"list_{name}": od.collect(name, 2) for name in ("i", "s", "dec", "struct", "lists")}
    null = {"mean": od.mean("f"), "dec_mean": od.mean("dec"), "std": od.std("i"), "median": od.median("i")}
    null |= {
        "first": od.first("s"),
        "last": od.last("struct"),
        "low": od.min("s"),
        "best": od.arg_max("s", "i"),
    }
    calls = {**zero, **lists, **null}
    pipeline = filled(od.tumbling(10), by=None, source=od.Pipeline(VALUES.schema), **calls)
    both(pipeline, VALUES)
    _, empty, _ = pipeline.run(VALUES).table.to_pylist()
    assert (empty["start"], empty["end"]) == (10, 20)
    assert all(empty[name] is not None and not empty[name] for name in zero)
    assert all(empty[name] == [] for name in lists)
    assert all(empty[name] is None for name in null)


def without_clock(pipeline):
    """Its windows close at their key's next row: a segment knows no time in front."""
    plan = pipeline.plan
    operators = (one if one.clock_wanted() is None else one.with_clock(None) for one in plan.operators)
    return od.Pipeline.of(plan.replaced([*operators]))


KINDS = (
    *(od.tumbling(1), od.tumbling(7), od.tumbling(40, offset=7), od.hopping(7, every=3)),
    *(od.hopping(3, every=1), od.hopping(40, every=20, offset=-1)),
)


@st.composite
def tables(draw):
    step, key = st.sampled_from([0, 0, 1, 3, 11, 90]), st.sampled_from(["", "a", "b", None])
    one = st.tuples(step, key, st.sampled_from([None, -3, 4]))
    ts, found = -20, []
    for step, k, x in draw(st.lists(one, min_size=1, max_size=60)):
        ts += step
        found.append((ts, k, x))
    return rows(*found)


@st.composite
def pipelines(draw):
    source = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        source = source.filter(od.col("x") > 0)
    calls = {"n": od.count(), "x": od.sum("x"), "last": od.last("k"), "c": od.collect("x", 2)}
    emit = draw(st.sampled_from(["close", "updates", "both"]))
    kind, key = draw(st.sampled_from(KINDS)), draw(st.sampled_from(["k", None]))
    fills = draw(st.sampled_from([True, True, 1, 4, 12, 100]))
    built = filled(kind, emit=emit, by=key, source=source, fills=fills, **calls)
    return built.key_by("n").cum_count("rank") if draw(st.booleans()) else built


@settings(max_examples=60, deadline=None)
@given(table=tables(), pipeline=pipelines())
def test_the_core_gives_what_the_reference_gives(table, pipeline):
    both(pipeline, table)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    goes_on_anywhere(data.draw, table, without_clock(pipeline))


@settings(max_examples=40, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_suspended_run_goes_on_by_its_clock(data, table, pipeline):
    cut = data.draw(st.integers(0, len(table)))
    first = pipeline.run(table.slice(0, cut), end="suspend")
    rest = pipeline.run(table.slice(cut), restore=first.snapshot, workers=2, chunk_rows=3)
    found = pa.concat_tables([first.table, rest.table])
    assert found.equals(run_serial(pipeline, table).table)


def stamped(zone=None):
    draw, at, found = random.Random(3), 1_700_000_000, []
    for _ in range(400):
        at += draw.choice([0, 50, 9_000, 400_000, 9_000_000])
        found.append((at, draw.choice("abc"), draw.randrange(9)))
    data = rows(*found)
    return data.set_column(0, "ts", data["ts"].cast(pa.timestamp("s")).cast(pa.timestamp("s", zone)))


@pytest.mark.parametrize("interval", ["1d", "1w", "1mo", "1q", "1y"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.thin(4)
def test_windows_of_the_calendar_follow_each_other_without_a_gap(interval, zone):
    data = stamped(zone)
    pipeline = filled(od.calendar(interval), source=od.Pipeline(data.schema))
    both(pipeline, data)
    found = pipeline.run(data).table.to_pylist()
    for key in "abc":
        mine = [row for row in found if row["k"] == key]
        assert all(a["end"] == b["start"] for a, b in itertools.pairwise(mine))
        assert sum(row["n"] for row in mine) == data["k"].to_pylist().count(key)
    assert interval == "1y" or any(row["n"] == 0 for row in found)


WAYS = (
    *({"workers": 2, "chunk_rows": 5, "scheduler": "qst"}, {"processes": 2}),
    {"workers": 2, "partitioning": "partitioned", "reorder": "lock"},
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.thin(2)
def test_pandas_resamples_to_the_same(way):
    data = stamped()
    pipeline = filled(od.tumbling("1h"), source=od.Pipeline(data.schema), n=od.count(), x=od.sum("x"))
    found = pipeline.run(data, **way).table
    assert found.equals(run_serial(pipeline, data).table)
    frame = found.to_pandas()
    for key, group in data.to_pandas().groupby("k"):
        wanted = group.resample("1h", on="ts").agg(n=("x", "size"), x=("x", "sum"))
        mine = frame[frame.k == key].set_index("start")
        pd.testing.assert_frame_equal(mine[["n", "x"]], wanted, check_names=False, check_freq=False)


def test_a_gap_that_is_too_long_is_an_error():
    data = rows((1, "a", 1), (3 * 10**12, "a", 1))
    pipeline = filled(od.tumbling(10))
    with pytest.raises(od.OperatorError, match=r"'window_1: gaps' failed at serial 2: more than 1048576"):
        pipeline.run(data)
    assert "more than 1048576 empty windows" in str(run_serial(pipeline, data).error)
    far = rows((1, "a", 1), (10 * 2**20 + 10, "a", 1))
    assert filled(od.tumbling(10)).run(far).table.num_rows == 2**20 + 2


@pytest.mark.parametrize("kind", [od.session(5), od.rolling(5), od.rows(5)], ids=str)
def test_other_windows_have_no_gaps(kind):
    with pytest.raises(od.PlanError, match=r"fill_gaps is for windows that begin at fixed times"):
        od.Pipeline(SCHEMA).window(kind, time="ts", fill_gaps=True)


def test_a_state_that_begins_elsewhere_is_refused():
    data = stamped()
    pipeline = without_clock(filled(od.calendar("1mo"), source=od.Pipeline(data.schema)))
    name = "window_1: gaps"
    with Segment(pipeline) as segment:
        schema = segment.state_of(name).schema
        assert schema.names == ["k", "start"]
        with pytest.raises(od.PlanError, match=r"begins elsewhere"):
            segment.install({name: pa.table([["a"], [datetime.datetime(2024, 1, 2)]], schema=schema)})
    with Segment(pipeline) as segment:
        segment.install({name: pa.table([["a"], [datetime.datetime(2023, 9, 1)]], schema=schema)})
        segment.push(data)
        segment.finish()
    found = pa.Table.from_batches(segment.batches).to_pylist()
    first = next(row for row in found if row["k"] == "a")
    assert (first["start"], first["n"]) == (datetime.datetime(2023, 10, 1), 0)


@pytest.mark.parametrize("fills", ["zero", 0, -1, 1.5, [1]])
def test_it_is_true_or_false_or_a_length_of_time(fills):
    with pytest.raises(od.PlanError, match="window: fill_gaps must be"):
        filled(od.tumbling(5), fills=fills)


def test_longer_gaps_stay_where_a_length_is_given():
    data = rows((1, "a", 1), (31, "a", 1), (72, "a", 1), (80, "b", 1), (101, "a", 1))
    found, _ = both(filled(od.tumbling(10), fills=30), data)
    starts = [(key, start, n) for key, start, _, n in found]
    assert starts == [
        *(("a", 0, 1), ("a", 10, 0), ("a", 20, 0), ("a", 30, 1)),
        *(("a", 70, 1), ("b", 80, 1), ("a", 80, 0), ("a", 90, 0), ("a", 100, 1)),
    ]


def without_forgetting(pipeline):
    """Its windows close by the clock, and every key's start is kept."""
    operators = (one.with_clock(None) if one.op == "fill_gaps" else one for one in pipeline.plan.operators)
    return od.Pipeline.of(pipeline.plan.replaced([*operators]))


@settings(max_examples=60, deadline=None)
@given(table=tables(), pipeline=pipelines())
def test_nobody_sees_that_a_key_was_forgotten(table, pipeline):
    kept = run_serial(without_forgetting(pipeline), table)
    for found in (run_serial(pipeline, table), pipeline.run(table, workers=2, chunk_rows=3)):
        assert found.table.equals(kept.table)


def come_and_go(unit, each=4, keys=1500):
    """Keys with some rows each, one key behind the other, then never again."""
    times = [row * 3 * unit + row // each * 500 * unit for row in range(each * keys)]
    ts = pa.array(times, pa.timestamp("s", "Europe/Berlin") if unit > 1 else pa.int64())
    return pa.table({"k": [f"key {row // each}" for row in range(each * keys)], "ts": ts})


@pytest.mark.parametrize(
    ("kind", "fills", "unit"),
    [
        *((od.tumbling(1), 90, 1), (od.hopping(5, every=1), 90, 1), (od.tumbling(7, offset=3), 90, 1)),
        *((od.calendar("1d"), "40d", 3600), (od.calendar("1mo"), "70d", 3600)),
    ],
    ids=str,
)
@pytest.mark.thin(3)
def test_keys_that_never_come_again_are_forgotten_by_the_clock(kind, fills, unit):
    data = come_and_go(unit)
    keyed = od.Pipeline(data.schema).key_by("k", buckets=4)
    pipeline, full = (keyed.window(kind, time="ts", fill_gaps=one).aggregate(n=od.count())
                      for one in (fills, True))  # fmt: skip
    assert "keys are forgotten by the clock, at multiples of" in pipeline.explain()
    expected = run_serial(pipeline, data).table
    assert expected.equals(full.run(data).table)  # no key comes again, so none has a longer gap
    for way in ({"workers": 0}, {"workers": 2, "chunk_rows": 7}, {"processes": 2}):
        result = pipeline.run(data, **way)
        assert result.table.equals(expected)
        if "workers" in way:
            kept = full.run(data, **way).report.operators[-1].state_bytes
            assert result.report.operators[-1].state_bytes < kept / 2


def test_where_the_windows_have_no_clock_keys_are_kept():
    source = od.Pipeline(SCHEMA).map(tuple, schema=SCHEMA)
    pipeline = filled(od.tumbling(10), source=source, fills=30)
    assert "no key is forgotten" in pipeline.explain()
    both(pipeline, rows((1, "a", 1), (2, "b", 1), (1000, "a", 1), (1000, "b", 1)))


def test_what_an_operator_behind_carries_on():
    data = rows((1, "a", 5), (31, "a", 7))
    closes = filled(od.tumbling(10), close=od.last("x"), n=od.count())
    found, _ = both(closes.key_by("k").forward_fill("close"), data)
    assert found == [("a", 0, 10, 5, 1), ("a", 10, 20, 5, 0), ("a", 20, 30, 5, 0), ("a", 30, 40, 7, 1)]


def test_explain_shows_it():
    source = od.Pipeline({"ts": pa.timestamp("s"), "k": str})
    text = filled(od.tumbling("5m"), source=source).explain()
    assert "window_1: gaps: fill_gaps by k: tumbling 5m of ts" in text
    assert "no key is forgotten" in text
