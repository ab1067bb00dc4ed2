"""Windows: what closes them, what is kept, and what Polars and DuckDB say of the same rows."""

from __future__ import annotations

import itertools
import math
import random
import statistics
import sys
from fractions import Fraction

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.compare import agree, run_core
from state_runs import Segment

import ordstream as od
from ordstream.operators.aggregation import running_value, spread
from ordstream.operators.rolling import alone, merged
from ordstream.testing import run_serial

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.string(), "x": pa.int64()})


def rows(*tuples):
    columns = list(zip(*tuples, strict=True)) if tuples else [[], [], []]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def both(pipeline, data, **options):
    """Rows and serials, the same from the core in three ways and from the reference."""
    expected = run_serial(pipeline, data)
    for way in (
        {"workers": 0, "chunk_rows": 1},
        {"workers": 2, "chunk_rows": 3, "buckets": 3},
        {"workers": 1},
    ):
        agree(pipeline, expected, run_core(pipeline, data, **way, **options))
    return expected.rows, [serial for serial, _ in expected.tags]


def per_key(kind, *, emit="close", by="k", time="ts", source=None, **calls):
    source = source or od.Pipeline(SCHEMA)
    keyed = source.key_by(by) if by else source
    return keyed.window(kind, time=time).aggregate(emit=emit, **(calls or {"n": od.count()}))


# ------------------------------------------------------------------------------------------------ closing


def test_the_clock_closes_windows_of_keys_that_have_no_more_rows():
    data = rows((1, "b", 1), (2, "a", 1), (12, "c", 1), (13, "c", 1))
    found, serials = both(per_key(od.tumbling(10)), data)
    assert found == [("a", 0, 10, 1), ("b", 0, 10, 1), ("c", 10, 20, 2)]  # by (end, key), then at the end
    assert serials == [3, 3, 4]


def test_a_tuple_that_a_filter_drops_moves_the_clock():
    source = od.Pipeline(SCHEMA).filter(od.col("x") > 0)
    found, serials = both(
        per_key(od.tumbling(10), source=source), rows((1, "a", 1), (25, "z", -1), (26, "b", 1))
    )
    assert found == [("a", 0, 10, 1), ("b", 20, 30, 1)]
    assert serials == [2, 3]


def test_a_session_closes_at_the_first_multiple_of_its_timeout_that_is_too_late():
    data = rows((1, "a", 1), (4, "a", 1), (9, "z", 1), (10, "z", 1), (14, "z", 1), (16, "z", 1))
    found, serials = both(per_key(od.session(5)), data)
    assert found == [("a", 1, 4, 2), ("z", 9, 16, 4)]
    assert serials == [4, 6]  # the mark 10 is more than 5 after 4


@pytest.mark.parametrize("time", [2**63 - 2, -(2**63) + 1], ids=["behind", "before"])
def test_a_window_that_no_time_can_tell_is_an_error(time):
    schema = pa.schema([*SCHEMA, pa.field("when", pa.int64())])
    source = od.Pipeline(SCHEMA).map(lambda row: (*row, row.x), schema=schema)
    pipeline = per_key(od.tumbling(10), source=source, time="when")
    for one in (time, time // 10 * 10 - 20 if time > 0 else time // 10 * 10 + 20):
        data = rows((0, "a", one))
        expected = run_serial(pipeline, data)
        assert (expected.error is None) == (one != time)
        agree(pipeline, expected, run_core(pipeline, data, workers=0))


@pytest.mark.parametrize("kind", [od.tumbling(10), od.hopping(10, every=10), od.session(10)], ids=str)
def test_a_mark_closes_a_window_that_came_in_as_state(kind):
    """The bucket had nothing left, and knew it."""
    pipeline = per_key(kind, source=od.Pipeline(SCHEMA).filter(od.col("x") > 0), n=od.count(), name="w")
    with Segment(pipeline, workers=0, buckets=1) as segment:
        segment.push(rows((41, "b", 1)))
        state = segment.state_of("w")
    with Segment(pipeline, workers=0, buckets=1) as segment:
        segment.push(rows((1, "a", 1), (39, "z", -1)))
        assert segment.state_of("w").num_rows == 0
        segment.install({"w": state})
        segment.push(rows((80, "z", -1)))
        found = [row["k"] for batch in segment.batches for row in batch.to_pylist()]
    assert found == ["a", "b"]


@pytest.mark.parametrize(
    "kind", [od.tumbling(10), od.hopping(10, every=10), od.session(10), od.rolling(10)], ids=str
)
def test_marks_forget_keys_that_come_when_nothing_was_left(kind):
    keyed = od.Pipeline(SCHEMA).filter(od.col("x") > 0).key_by("k")
    pipeline = keyed.window(kind, time="ts").aggregate(n=od.count(), name="w")
    with Segment(pipeline, workers=0, buckets=1) as segment:
        for time in (1, 101, 201):
            segment.push(rows((time, "a", 1)))
            assert segment.state_of("w").num_rows == 1
            segment.push(rows((time + 50, "z", -1)))
            assert segment.state_of("w").num_rows == 0


def test_windows_of_all_keys_together():
    found, _ = both(per_key(od.tumbling(10), by=None), rows((1, "a", 1), (12, "b", 1), (33, "c", 1)))
    assert found == [(0, 10, 1), (10, 20, 1), (30, 40, 1)]


def test_a_session_that_ends_before_it_begins_is_no_state():
    pipeline = per_key(od.session(10), n=od.count(), name="w")
    with Segment(pipeline, workers=0) as segment:
        segment.push(rows((5, "a", 1)))
        (good,) = segment.state_of("w").to_pylist()
        schema = segment.state_of("w").schema
    with Segment(pipeline, workers=0) as segment:
        with pytest.raises(od.PlanError, match="its latest tuple is outside"):
            segment.install({"w": pa.Table.from_pylist([{**good, "last": 4}], schema)})
        assert segment.state_of("w").num_rows == 0


@pytest.mark.parametrize("closed", ["left", "neither"])
def test_rows_that_wait_to_be_seen_overflow_when_they_are(closed):
    data = rows((0, "a", 2**63 - 1), (1, "a", 1), (1, "a", -1), (2, "a", 1))
    keyed = od.Pipeline(SCHEMA).key_by("k")
    pipeline = keyed.window(od.rolling(9, closed=closed), time="ts").aggregate(s=od.sum("x"))
    assert run_serial(pipeline, data).error is None
    data = rows((0, "a", 2**63 - 1), (1, "a", 1), (2, "a", 1), (3, "a", 5))
    expected = run_serial(pipeline, data)
    assert len(expected.rows) == 2
    for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 1}):
        agree(pipeline, expected, run_core(pipeline, data, **way))


@pytest.mark.parametrize("kind", [od.tumbling(10), od.session(3)], ids=["tumbling", "session"])
def test_a_sum_begins_anew_in_the_window_that_a_row_opens(kind):
    schema = pa.schema([*SCHEMA, pa.field("half", pa.int64())])
    source = od.Pipeline(SCHEMA).map(lambda row: (*row, row.ts // 2), schema=schema)
    large = 2**63 - 1
    data = rows((0, "a", large), (40, "a", large), (41, "a", -1), (42, "a", 2))
    pipeline = per_key(kind, source=source, time="half", s=od.sum("x"))
    expected = run_serial(pipeline, data)
    assert expected.rows == [("a", 0, 0 if kind == od.session(3) else 10, large)]
    assert "overflow" in str(expected.error)
    for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 1}):
        agree(pipeline, expected, run_core(pipeline, data, **way))


def test_windows_on_another_column_close_at_the_keys_next_row():
    schema = pa.schema([*SCHEMA, pa.field("half", pa.int64())])
    source = od.Pipeline(SCHEMA).map(lambda row: (*row, row.ts // 2), schema=schema)
    pipeline = per_key(od.tumbling(10), source=source, time="half")
    found, serials = both(pipeline, rows((0, "a", 1), (90, "b", 1), (91, "a", 1)))
    assert found == [("a", 0, 10, 1), ("a", 40, 50, 1), ("b", 40, 50, 1)]
    assert serials == [3, 3, 3]
    assert "'half' is not the clock" in pipeline.explain()


def test_what_a_window_emits_does_not_depend_on_the_windows_beside_it():
    rng = random.Random(3)
    times, now = [], 0
    for _ in range(300):
        now += rng.choice([0, 1, 1, 2, 9])
        times.append((now, rng.choice("abcde"), 1))
    alone = per_key(od.session(6))
    beside = per_key(od.session(6), source=per_key_rolling(od.Pipeline(SCHEMA)))
    one, other = both(alone, rows(*times)), both(beside, rows(*times))
    assert one == other


def per_key_rolling(source):
    return source.key_by("k").window(od.rolling(4), time="ts").aggregate(r=od.count()).drop("r")


def test_marks_of_the_clock_are_for_windows():
    """A session's time may lie in another column: a window beside it changes nothing."""
    data = rows((0, "a", 0), (1000, "b", 1), (2000, "a", 2))

    def sessions(source):
        found, serials = both(source.key_by("k").sessionize("x", 5), data)
        return [row[:3] for row in found], serials

    alone = sessions(od.Pipeline(SCHEMA))
    assert alone == ([("a", 0, 2), ("b", 1, 1)], [3, 3])
    assert sessions(per_key(od.rolling(10), emit=None)) == alone


def test_updates_and_both():
    data = rows((1, "a", 5), (3, "a", 7), (11, "a", 1))
    total = {"total": od.sum("x")}
    found, _ = both(per_key(od.tumbling(10), emit="updates", **total), data)
    assert found == [("a", 0, 10, 5), ("a", 0, 10, 12), ("a", 10, 20, 1)]
    found, _ = both(per_key(od.tumbling(10), emit="both", **total), data)
    assert found == [
        *(("a", 0, 10, 5, False), ("a", 0, 10, 12, False), ("a", 0, 10, 12, True)),
        *(("a", 10, 20, 1, False), ("a", 10, 20, 1, True)),
    ]


def test_closed_windows_leave_no_state():
    pipeline = od.Pipeline(SCHEMA).key_by("k").window(od.tumbling(10), time="ts").aggregate(n=od.count())
    keys = [(1, f"key {i}", 1) for i in range(20_000)]
    with Segment(pipeline, workers=1, buckets=2) as segment:
        segment.push(rows(*keys), rows=20_000)
        name = pipeline.plan.operators[0].name
        full = segment.bytes(name)
        segment.push(rows((11, "z", 1)))
        segment.push(rows((21, "z", 1)))
        segment.push(rows((31, "z", 1)))
        assert len(segment.state()[name]) == 1
        assert segment.bytes(name) < full / 50


def test_a_rolling_window_forgets_keys():
    pipeline = od.Pipeline(SCHEMA).key_by("k").window(od.rolling(10), time="ts").aggregate(n=od.count())
    with Segment(pipeline, workers=1, buckets=2) as segment:
        segment.push(rows(*((1, f"key {i}", 1) for i in range(2_000))))
        assert len(segment.state()[pipeline.plan.operators[0].name]) == 2_000
        segment.push(rows((9, "z", 1), (20, "z", 1)))
        assert segment.state()[pipeline.plan.operators[0].name]["k"].to_pylist() == ["z"]


# ------------------------------------------------------------------------------------------------ refusals


def test_what_is_refused():
    window = od.Pipeline(SCHEMA).key_by("k").window
    with pytest.raises(od.PlanError, match="needs its time column"):
        window(od.tumbling(10)).aggregate(n=od.count())
    with pytest.raises(od.PlanError, match="the length must be at least 1, got 0"):
        window(od.tumbling(0), time="ts").aggregate(n=od.count())
    with pytest.raises(od.PlanError, match="at least one aggregation"):
        window(od.tumbling(10), time="ts").aggregate()
    with pytest.raises(od.PlanError, match="'close' or 'updates' or 'both'"):
        window(od.tumbling(10), time="ts").aggregate(n=od.count(), emit="final")
    with pytest.raises(od.PlanError, match="takes no emit, got 'close'"):
        window(od.rolling(10), time="ts").aggregate(n=od.count(), emit="close")
    with pytest.raises(od.PlanError, match="looks at no time"):
        window(od.rows(3), time="ts").aggregate(n=od.count())
    with pytest.raises(od.PlanError, match="window takes od"):
        window("1m", time="ts")
    with pytest.raises(od.PlanError, match="closed must be one of"):
        od.rolling(3, closed="up")


def test_windows_of_dates_in_ms_are_whole_days():
    schema = pa.schema({"ts": pa.date64(), "k": pa.string(), "x": pa.int64()})
    source, day = od.Pipeline(schema), 86_400_000
    for kind in (od.tumbling(1), od.hopping("3d", every="36h"), od.hopping(day + 1, every=1)):
        with pytest.raises(od.PlanError, match="must be whole days, such as '1d', for 'ts'"):
            per_key(kind, source=source)
    with pytest.raises(od.PlanError, match="must be whole days"):
        source.reorder("ts", slack="1h", late="adjust")
    with pytest.raises(od.PlanError, match="must be whole days"):
        source.key_by("k").count(window="36h", time="ts")
    data = pa.table([pa.array([0, day, 3 * day], pa.date64()), ["a"] * 3, [1, 2, 3]], schema=schema)
    for built in (
        per_key(od.tumbling("2d"), source=source),
        per_key(od.hopping("2d", every=day), source=source),
        per_key(od.session(5), source=source),
        source.reorder("ts", slack="1h", late="drop"),
        source.reorder("ts", slack="1d", late="adjust"),
        source.key_by("k").count(window="2d", time="ts"),
    ):
        both(built, data)


@pytest.mark.parametrize("kind", [od.tumbling(10), od.session(10), od.rolling(10)])
def test_the_end_of_the_stream_alone_is_refused_by_name(kind):
    pipeline = (
        od.Pipeline(SCHEMA).key_by("k").window(kind, time="ts").aggregate(n=od.count(), name="per ten")
    )
    with pytest.raises(od.PlanError, match="'per ten' forgets"):
        pipeline.run(rows(), emit="final")


def test_another_punctuation_than_the_clock():
    schema = pa.schema([*SCHEMA, pa.field("u", pa.int64())])
    pipeline = per_key(od.tumbling(10), source=od.Pipeline(schema))
    with pytest.raises(od.PlanError, match="'u', but the clock of the windows is 'ts'"):
        pipeline.run(schema.empty_table(), punctuate=od.every("u", 3))


def test_keys_may_move_beside_a_clock():
    pipeline, data = per_key(od.tumbling(10)), rows(*((t, "abcd"[t % 4], t) for t in range(200)))
    moved = pipeline.run(data, processes=2, balance=od.Mixed(), tags=True)
    assert moved.table.equals(pipeline.run(data, tags=True).table)


def test_a_source_that_runs_backwards():
    pipeline, data = per_key(od.tumbling(10)), rows((5, "a", 1), (1, "a", 1))
    with pytest.raises(od.SourceError, match="runs backwards: 1 after 5; the clock of 'window_1' needs"):
        pipeline.run(data)
    assert "the clock of 'window_1' needs" in str(run_serial(pipeline, data).error)
    with pytest.raises(od.SourceError, match=r"punctuate=od.every\(\.\.\.\) needs"):
        od.Pipeline(SCHEMA).key_by("k").count().run(data, punctuate=od.every("ts", 3))


def test_late_rows_of_another_column_are_counted():
    schema = pa.schema([*SCHEMA, pa.field("when", pa.int64())])
    source = od.Pipeline(SCHEMA).map(lambda row: (*row, row.x), schema=schema)
    pipeline = (
        source.key_by("k")
        .window(od.rolling(5), time="when")
        .aggregate(n=od.count(), on_error="skip", name="late")
    )
    result = pipeline.run(rows((1, "a", 10), (2, "a", 7), (3, "a", 11)))
    assert result.table["n"].to_pylist() == [1, 2]
    assert "1 skipped" in str(result.report) or "skipped" in str(result.report)
    assert next(o.skipped for o in result.report.operators if o.name == "late") == 1


def test_a_row_that_overflows_leaves_the_window_as_it_was():
    large = 2**63 - 1
    data = rows((0, "a", large), (1, "a", 1), (2, "a", -5), (10, "a", large), (12, "a", 4))
    pipeline = (
        od.Pipeline(SCHEMA).key_by("k").window(od.rolling(10), time="ts")
        .aggregate(s=od.sum("x"), on_error="skip", name="sums")
    )  # fmt: skip
    found, serials = both(pipeline, data)
    assert serials == [1, 3, 4]  # 1 more is too much; -5 later leaves, and 4 is too much again
    assert [row[-1] for row in found] == [large, large - 5, large - 5]


# ------------------------------------------------------------------------------- beside others


def generated(n=3000, keys=7, seed=5):
    rng = random.Random(seed)
    now, ts = 0, []
    for _ in range(n):
        now += rng.choice([1, 1, 2, 3, 30])  # no ties
        ts.append(now)
    x = [None if rng.random() < 0.1 else rng.uniform(-100, 100) for _ in range(n)]
    columns = {"ts": ts, "k": [rng.randrange(keys) for _ in range(n)], "x": x}
    return pa.table(columns, schema=pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.float64()}))


def close_to(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            same = a is None and b is None
            assert same or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-7), (one, other)


@pytest.mark.parametrize("closed", ["right", "left", "both", "neither"])
def test_rolling_beside_polars(closed):
    data = generated()
    pipeline = (
        od.Pipeline(data.schema).key_by("k").window(od.rolling(50, closed=closed), time="ts")
        .aggregate(n=od.count("x"), m=od.mean("x"), lo=od.min("x"), hi=od.max("x"), v=od.var("x"))
    )  # fmt: skip
    found = pipeline.run(data, workers=2).table
    x = pl.col("x")
    frame = pl.from_arrow(data).sort("k", "ts")
    ends = {"neither": "none"}.get(closed, closed)
    theirs = frame.rolling("ts", period="50i", closed=ends, group_by="k").agg(
        n=x.count(), m=x.mean(), lo=x.min(), hi=x.max(), v=x.var()
    )
    ours = pl.from_arrow(found).sort("k", "ts").select("n", "m", "lo", "hi", "v").rows()
    close_to(ours, theirs.sort("k", "ts").select("n", "m", "lo", "hi", "v").rows())


def test_last_rows_beside_duckdb():
    data = generated()
    found = (
        od.Pipeline(data.schema).key_by("k").window(od.rows(9))
        .aggregate(n=od.count(), s=od.sum("x"), sd=od.std("x"), f=od.first("x"), m=od.mean("x"))
    ).run(data, workers=2).table  # fmt: skip
    theirs = duckdb.sql(
        "select count(*) over w, coalesce(sum(x) over w, 0), stddev_samp(x) over w, "
        "first_value(x ignore nulls) over w, avg(x) over w from data "
        "window w as (partition by k order by ts rows between 8 preceding and current row) order by ts"
    ).fetchall()
    close_to(pl.from_arrow(found).select("n", "s", "sd", "f", "m").rows(), theirs)


def test_tumbling_beside_polars():
    data = generated()
    found = (
        od.Pipeline(data.schema).key_by("k").window(od.tumbling(40), time="ts")
        .aggregate(n=od.count(), s=od.sum("x"), v=od.var("x"), l=od.last("x"))
    ).run(data, workers=2).table  # fmt: skip
    x = pl.col("x")
    theirs = (
        pl.from_arrow(data).group_by_dynamic("ts", every="40i", group_by="k")
        .agg(n=pl.len(), s=x.sum(), v=x.var(), l=x.drop_nulls().last()).sort("ts", "k")
    )  # fmt: skip
    ours = pl.from_arrow(found).sort("start", "k")
    assert ours.select("start", "k").rows() == theirs.select("ts", "k").rows()
    close_to(ours.select("n", "s", "v", "l").rows(), theirs.select("n", "s", "v", "l").rows())


def test_sessions_are_those_of_sessionize():
    data = generated()
    total = {"total": od.sum("x")}
    ours = (
        od.Pipeline(data.schema)
        .key_by("k")
        .window(od.session(9), time="ts")
        .aggregate(**total)
        .run(data)
        .table
    )
    theirs = od.Pipeline(data.schema).key_by("k").sessionize("ts", 9, aggregate=total).run(data).table
    assert ours.sort_by([("k", "ascending"), ("start", "ascending")]) == theirs.drop_columns(
        "count"
    ).sort_by([("k", "ascending"), ("start", "ascending")])


def test_variances_in_every_aggregation():
    values = [3.5, -1.25, 8.0, 2.0]
    data = pa.table({"k": [1] * 4, "x": values})
    found = od.Pipeline(data.schema).key_by("k").scan(v=od.var("x"), s=od.std("x")).run(data).table
    assert found["v"].to_pylist()[0] is None
    for n in range(2, 5):
        assert math.isclose(found["v"][n - 1].as_py(), statistics.variance(values[:n]))
        assert math.isclose(found["s"][n - 1].as_py(), statistics.stdev(values[:n]))


def squares_of(values):
    """The sum of squared distances from the mean, exactly."""
    exact = list(map(Fraction, values))
    mean = sum(exact) / len(exact)
    return sum((value - mean) ** 2 for value in exact)


@settings(deadline=None)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([1e308, -1e308, sys.float_info.max, -sys.float_info.max, 1e154, -1e154, 1.0]),
        min_size=2,
        max_size=8,
    ),
    st.integers(0, 8),
)
def test_a_variance_of_finite_values_is_a_number_or_inf(values, cut):
    """Row by row, and of two runs that are merged. It was -inf, then nan."""
    parts = []
    for part in (values[:cut], values[cut:], values):
        state = (0.0, 0.0, 0)
        for value in part:
            state = spread(state, value)
        parts.append(state)
    apart = alone("var", values[-1])
    for value in reversed(values[:-1]):
        apart = merged("var", alone("var", value), apart)
    exact = squares_of(values)
    # of values a few units in the last place apart the mean is rounded to one of them
    span = Fraction(max(values)) - Fraction(min(values))
    close = span < 16 * Fraction(math.ulp(max(map(abs, values))))
    for state in (parts[2], merged("var", parts[0], parts[1]), apart):
        assert math.isfinite(state[0])
        variance, deviation = running_value("var", state), running_value("std", state)
        assert variance >= 0
        assert deviation == math.sqrt(variance)
        if exact > Fraction(sys.float_info.max) * 2 and not close:
            assert variance == math.inf
        elif exact < Fraction(sys.float_info.max) / 100:  # a merge multiplies by both counts first
            assert variance < math.inf


def test_a_variance_of_what_is_not_finite_is_nan():
    for values in itertools.permutations([-1e308, 1e308, -1e308, math.inf]):
        state, other = (0.0, 0.0, 0), (0.0, 0.0, 0)
        for value in values:
            state, other = spread(state, value), merged("var", other, alone("var", value))
        assert math.isnan(running_value("std", state))
        assert math.isnan(running_value("var", other))


EXTREME = [-1e308, 1e308, 0.0, 1e154, -1e154, sys.float_info.max, -sys.float_info.max, 1e200, -1e200, 2.5]
OF_EXTREME = {"v": od.var("x"), "s": od.std("x"), "m": od.median("x"), "q": od.quantile("x", 0.3)}
OVER_EXTREME = {
    "scan": lambda p: p.scan(**OF_EXTREME),
    "aggregate": lambda p: p.aggregate(**OF_EXTREME, emit="final"),
    "rows": lambda p: p.window(od.rows(4)).aggregate(**OF_EXTREME),
    "rolling": lambda p: p.window(od.rolling(5), time="ts").aggregate(**OF_EXTREME),
    "left": lambda p: p.window(od.rolling(5, closed="left"), time="ts").aggregate(**OF_EXTREME),
    "tumbling": lambda p: p.window(od.tumbling(5), time="ts").aggregate(**OF_EXTREME, emit="both"),
    "hopping": lambda p: p.window(od.hopping(6, every=2), time="ts").aggregate(**OF_EXTREME),
}


@pytest.mark.parametrize("kind", OVER_EXTREME)
def test_values_at_the_ends_of_float64(kind):
    """The same from the core and the reference, and no nan, and no variance below zero, of finite values.
    Keys are gone through one after the other, so that a window of some has what is not finite, too."""
    chosen = random.Random(5)
    values = [-1e308, 1e308, -1e308, 1e308, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0]
    values += [chosen.choice(EXTREME) for _ in range(190)]
    odd = [chosen.choice([*EXTREME, math.inf, -math.inf, math.nan]) for _ in range(100)]
    data = pa.table({"ts": range(300), "k": ["finite"] * 200 + ["odd"] * 100, "x": [*values, *odd]})
    pipeline = OVER_EXTREME[kind](od.Pipeline(data.schema).key_by("k"))
    expected = run_serial(pipeline, data)
    for workers, chunk_rows in itertools.product((0, 1, 2), (1, "auto")):
        agree(pipeline, expected, run_core(pipeline, data, workers=workers, chunk_rows=chunk_rows))
    found = [row for row in expected.table.to_pylist() if row["k"] == "finite"]
    assert all(row["v"] >= 0 and row["s"] >= 0 for row in found if row["v"] is not None)
    assert any(row["v"] == math.inf for row in found)
    assert all(math.isfinite(row[name]) for row in found for name in "mq" if row[name] is not None)


def test_the_variance_and_the_median_of_both_ends():
    data = pa.table({"x": [-1e308, 1e308]})
    pipeline = od.Pipeline(data.schema).scan(v=od.var("x"), s=od.std("x"), m=od.median("x"))
    for found in (run_serial(pipeline, data).table, pipeline.run(data, workers=0).table):
        assert [found[name][1].as_py() for name in "vsm"] == [math.inf, math.inf, 0.0]
    assert duckdb.sql("select median(x) from data").fetchall() == [(0.0,)]


def test_a_window_that_huge_values_left_has_a_variance_again():
    data = pa.table({"x": [-1e308, 1e308, -1e308, 1.0, 2.0, 4.0, 8.0]})
    pipeline = od.Pipeline(data.schema).window(od.rows(3)).aggregate(v=od.var("x"))
    for found in (run_serial(pipeline, data).table, pipeline.run(data, workers=0).table):
        shown = found["v"].to_pylist()
        assert shown[:5] == [None, *[math.inf] * 4]
        for n in (6, 7):
            assert math.isclose(shown[n - 1], statistics.variance(data["x"].to_pylist()[n - 3 : n]))
