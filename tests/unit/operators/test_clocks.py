"""Clocks that are computed, and that leave `reorder`: what moves them, and what is behind them."""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
from property.compare import agree, exact_rows, run_core
from unit.operators.test_timers import timed
from unit.operators.test_window import SCHEMA, both, per_key, rows

import ordstream as od
from ordstream.operators.clocks import ComputedClock, ReorderedClock
from ordstream.testing import run_serial


def generated(n=400, seed=1, jitter=0, step=3):
    rng = random.Random(seed)
    now, made = 0, []
    for _ in range(n):
        now += rng.randrange(step)
        late = rng.randrange(jitter + 1)
        made.append((now - late, rng.choice("abcde"), rng.randrange(10)))
    return rows(*made)


def computed(source=None):
    """Twice the time, in three steps, behind a filter."""
    source = (source or od.Pipeline(SCHEMA)).filter(od.col("x") > 0).rename({"ts": "at"})
    source = source.with_columns(t=od.col("at") * 2).select("k", "x", "t", ts=od.col("t").cast(pa.int32()))
    return source.drop("t")


# ---------------------------------------------------------------------------------------------- computed


def test_a_time_that_is_computed_is_the_clock_and_dropped_tuples_move_it():
    pipeline = per_key(od.tumbling(20), source=computed())
    found, serials = both(pipeline, rows((1, "a", 1), (25, "z", -1), (26, "b", 1)))
    assert found == [("a", 0, 20, 1), ("b", 40, 60, 1)]
    assert serials == [2, 3]
    assert "closed by the clock 'ts', computed of every tuple of the source" in pipeline.explain()
    assert isinstance(pipeline.plan.operators[-1].clock, ComputedClock)


def test_a_renamed_column_is_the_column_of_the_source():
    source = od.Pipeline(SCHEMA).rename({"ts": "at"}).select("k", when=od.col("at"))
    assert per_key(od.tumbling(20), source=source, time="when").plan.operators[-1].clock == 0


@pytest.mark.parametrize("kind", [od.tumbling(6), od.hopping(8, every=4), od.session(3), od.rolling(5)])
def test_windows_by_a_computed_clock(kind):
    data = generated()
    given = {} if kind.kind == "rolling" else {"emit": "both"}
    keyed = computed().key_by("k").window(kind, time="ts")
    pipeline = keyed.aggregate(n=od.count(), s=od.sum("x"), **given)
    expected = run_serial(pipeline, data)
    assert expected.error is None
    assert expected.rows
    for workers in (0, 1, 2, 4):
        for chunk in (1, 7, None):
            agree(pipeline, expected, run_core(pipeline, data, workers=workers, chunk_rows=chunk, buckets=3))


def test_a_null_or_a_failing_expression_moves_no_clock():
    source = od.Pipeline(SCHEMA).filter(od.col("x") > 0).with_columns(t=100 // od.col("x") + od.col("ts"))
    pipeline = per_key(od.tumbling(10), source=source, time="t")
    data = rows((0, "a", 50), (30, "b", 0), (None, "b", 1), (20, "b", 50), (30, "c", 50))
    expected = run_serial(pipeline, data)
    # 100 // 0 fails in a tuple that the filter drops: no clock, no error; null: the window refuses the row
    assert "serial 3" in str(expected.error)
    skips = source.key_by("k").window(od.tumbling(10), time="t").aggregate(n=od.count(), on_error="skip")
    found, serials = both(skips, data)
    assert found == [("a", 0, 10, 1), ("b", 20, 30, 1), ("c", 30, 40, 1)]
    assert serials == [4, 5, 5]  # by the tuple that shows 22, not by the one that would have shown 30


def test_a_failing_expression_is_an_error_where_the_row_gets_there():
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") + 100 // od.col("x"))
    pipeline = per_key(od.tumbling(10), source=source, time="t")
    data = rows((0, "a", 50), (30, "b", 0))
    expected = run_serial(pipeline, data)
    assert "with_columns_1" in str(expected.error)
    agree(pipeline, expected, run_core(pipeline, data, workers=2, chunk_rows=1))


def test_a_computed_clock_that_runs_backwards():
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") - od.col("x"))
    pipeline, data = per_key(od.tumbling(10), source=source, time="t"), rows((5, "a", 1), (6, "a", 4))
    expected = "tuple 2 of the source: column 't' runs backwards: 2 after 4; the clock of 'window_2' needs"
    with pytest.raises(od.SourceError, match=expected):
        pipeline.run(data)
    assert expected in str(run_serial(pipeline, data).error)


def test_computed_strings_and_types():
    schema = pa.schema({"s": pa.string(), "k": pa.string(), "d": pa.date32()})
    texts = ["a", "bb", None, "dddd", "e" * 9, "f" * 30]
    data = pa.table([texts, list("aabbcc"), pa.array([1, 2, 3, 4, 40, 41], pa.int32()).cast(pa.date32())],
                    schema=schema)  # fmt: skip
    by_text = (
        od.Pipeline(schema)
        .with_columns(n=od.col("s").str.upper())
        .with_columns(n=od.col("n").str.length().cast(pa.int16()))
    )
    by_text = by_text.filter(od.col("n").is_not_null())
    both(per_key(od.tumbling(3), source=by_text, time="n"), data)
    by_day = od.Pipeline(schema).with_columns(m=od.col("d").dt.truncate("1w"))
    found, serials = both(per_key(od.tumbling("7d"), source=by_day, time="m"), data)
    assert len(found) == 4
    assert serials[:2] == [4, 4]


def test_two_windows_have_one_clock_and_another_expression_has_none():
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") + 1, u=od.col("ts") + 2)
    first = source.key_by("k").window(od.rolling(5), time="t").aggregate(n=od.count())
    assert per_key(od.session(5), source=first, time="t").plan.operators[-1].clock is not None
    assert per_key(od.session(5), source=first, time="u").plan.operators[-1].clock is None
    with pytest.raises(od.PlanError, match=r"punctuate= names the column 'ts', but the clock .* is 't'"):
        first.run(generated(), punctuate=od.every("ts", 3))


def test_branches_the_source_s_column_goes_before_one_that_is_computed():
    low, high = od.Pipeline(SCHEMA).branch(od.col("x") < 5)
    a = per_key(od.tumbling(10), source=low)
    b = per_key(od.tumbling(10), source=high.with_columns(t=od.col("ts") + 5), time="t")
    data = generated()
    pipeline = od.union(a, b)
    expected = run_serial(pipeline, data)
    for workers in (0, 2):
        agree(pipeline, expected, run_core(pipeline, data, workers=workers, chunk_rows=9), reports=False)
    assert "'t' is not the clock" in pipeline.explain()


def test_a_run_goes_on_with_its_computed_clock():
    pipeline, data = per_key(od.tumbling(20), source=computed(), n=od.sum("x")), generated()
    goes_on(pipeline, data)


def goes_on(pipeline, data):
    """Three cuts, and other workers and buckets behind each."""
    expected = exact_rows(run_serial(pipeline, data).table.to_batches(), pipeline.schema)
    found, snapshot = [], None
    cuts = [0, len(data) // 7, len(data) // 2, len(data) - 3, len(data)]
    for first, last in itertools.pairwise(cuts):
        end = "finish" if last == len(data) else "suspend"
        given = {"restore": snapshot} if snapshot is not None else {}
        part = pipeline.run(data.slice(first, last - first), workers=first % 3, buckets=1 + first % 4,
                            chunk_rows=5, end=end, **given)  # fmt: skip
        found += exact_rows(part.table.to_batches(), pipeline.schema)
        snapshot = part.snapshot
    assert found == expected
    assert expected


# ---------------------------------------------------------------------------------------------- reorder


def test_what_leaves_reorder_is_a_clock():
    source = od.Pipeline(SCHEMA).reorder("ts", slack=5).filter(od.col("x") > 0)
    pipeline = per_key(od.tumbling(10), source=source)
    data = rows((1, "a", 1), (4, "b", 1), (3, "z", -1), (14, "z", -1), (15, "c", 1), (27, "z", -1))
    found, serials = both(pipeline, data)
    # 14 lets all before 10 go, and shows no more than 9; 15 shows 10; 27 lets 15 go: no new multiple
    assert found == [("a", 0, 10, 1), ("b", 0, 10, 1), ("c", 10, 20, 1)]
    assert serials == [5, 5, 6]
    assert "closed by the clock that leaves 'reorder_1', at multiples of 10" in pipeline.explain()
    assert pipeline.plan.operators[-1].clock == ReorderedClock("reorder_1")


def test_rows_that_one_tuple_lets_go_have_marks_among_them():
    pipeline = per_key(od.tumbling(10), source=od.Pipeline(SCHEMA).reorder("ts", slack=100))
    data = rows((31, "d", 1), (1, "a", 1), (12, "b", 1), (21, "c", 1), (140, "z", 1))
    found, serials = both(pipeline, data)
    assert found == [(k, t, t + 10, 1) for k, t in zip("abcdz", (0, 10, 20, 30, 140), strict=True)]
    assert serials == [5, 5, 5, 5, 5]


@pytest.mark.parametrize("late", ["drop", "adjust"])
@pytest.mark.parametrize("kind", [od.tumbling(6), od.hopping(8, every=4), od.session(3)])
def test_windows_behind_reorder(kind, late):
    data = generated(jitter=12)
    source = od.Pipeline(SCHEMA).reorder("ts", slack=8, late=late).filter(od.col("x") > 2)
    pipeline = per_key(kind, source=source, emit="both", n=od.count(), s=od.sum("x"))
    expected = run_serial(pipeline, data)
    assert expected.error is None
    assert expected.rows
    for workers in (0, 1, 2, 4):
        for chunk in (1, 7, None):
            agree(pipeline, expected, run_core(pipeline, data, workers=workers, chunk_rows=chunk, buckets=3))


def test_rows_in_disorder_give_the_windows_of_rows_in_order():
    data = generated(jitter=9)
    ordered = data.sort_by("ts")
    behind = per_key(od.tumbling(7), source=od.Pipeline(SCHEMA).reorder("ts", slack=9), s=od.sum("x"))
    alone = per_key(od.tumbling(7), s=od.sum("x"))
    found = behind.run(data, workers=2, chunk_rows=16).table
    wanted = alone.run(ordered, workers=2).table
    assert sorted(found.to_pylist(), key=str) == sorted(wanted.to_pylist(), key=str)
    closed = len(found) - 40  # those at the end come by key, the others by their end
    assert found.slice(0, closed).equals(wanted.slice(0, closed))


def test_more_marks_than_an_operator_takes_at_a_time():
    """A chunk of 4,096 rows becomes 8,193 chunks; the operator behind has room for 128."""
    n = 9_000
    data = pa.table(
        [pa.array(range(n)), pa.array(["a", "b", "c"] * (n // 3)), pa.array([1] * n)], schema=SCHEMA
    )
    source = od.Pipeline(SCHEMA).reorder("ts", slack=1).with_columns(x=od.col("x") + 1)
    pipeline = per_key(od.tumbling(1), source=source, s=od.sum("x"))
    for workers in (0, 1, 2):
        found = pipeline.run(data, workers=workers, chunk_rows=4096, tags=True).table
        assert found["start"].to_pylist() == list(range(n))
        # closed by the tuple that shows the time behind it, two later; the end closes the last two
        assert found["_serial"].to_pylist() == [min(t + 3, n) for t in range(n)]


def test_times_at_the_ends_of_their_type():
    most, least = 2**63 - 1, -(2**63)
    pipeline = per_key(od.session(7), source=od.Pipeline(SCHEMA).reorder("ts", slack=2**62))
    both(pipeline, rows((least, "a", 1), (least + 9, "b", 1), (0, "c", 1), (2**62, "d", 1), (most, "e", 1)))


def test_an_error_among_marks():
    source = od.Pipeline(SCHEMA).reorder("ts", slack=2).with_columns(x=10 // od.col("x"))
    pipeline = per_key(od.tumbling(3), source=source, s=od.sum("x"))
    data = rows(*((i, "ab"[i % 2], int(i != 37)) for i in range(60)))
    late = rows(*((i if i != 44 else 3, "ab"[i % 2], 1) for i in range(60)))
    for one in (data, late):
        expected = run_serial(pipeline, one)
        assert expected.error is not None
        for workers in (0, 2):
            for chunk in (1, 9, 64):
                agree(pipeline, expected, run_core(pipeline, one, workers=workers, chunk_rows=chunk))


def test_a_run_goes_on_behind_reorder():
    source = od.Pipeline(SCHEMA).reorder("ts", slack=8, late="drop")
    goes_on(per_key(od.tumbling(7), source=source, n=od.sum("x")), generated(jitter=12))


def test_timers_by_both_clocks():
    data = generated(jitter=6)
    made = timed(source=od.Pipeline(SCHEMA).reorder("ts", slack=8), every=4)
    assert "timers fire by the clock that leaves 'reorder_1'" in made.explain()
    assert both(made, data)[0]
    goes_on(made, data)
    made = timed(source=od.Pipeline(SCHEMA).with_columns(ts=od.col("ts") * 2), every=4)
    assert "timers fire by the clock 'ts', computed" in made.explain()
    assert both(made, generated())[0]


def test_windows_in_front_of_reorder_and_behind_have_their_own_clocks():
    schema = pa.schema([*SCHEMA, pa.field("at", pa.int64())])
    rng = random.Random(5)
    made = generated().append_column("at", pa.array([i - rng.randrange(9) for i in range(400)]))
    front = od.Pipeline(schema).key_by("k").window(od.rolling(5), time="ts").aggregate(n=od.count())
    behind = per_key(od.tumbling(7), source=front.reorder("at", slack=9), time="at", m=od.sum("n"))
    assert [one.clock for one in behind.plan.operators if hasattr(one, "clock")] == [
        0, ReorderedClock("reorder_2")]  # fmt: skip
    assert both(behind, made)[0]


def test_the_clock_leaves_reorder_on_every_branch():
    low, high = od.Pipeline(SCHEMA).reorder("ts", slack=6).branch(od.col("x") < 5)
    pipeline = od.union(per_key(od.tumbling(7), source=low), per_key(od.session(3), source=high))
    assert pipeline.explain().count("closed by the clock that leaves 'reorder_1'") == 2
    data = generated(jitter=6)
    expected = run_serial(pipeline, data)
    assert expected.rows
    for workers in (0, 2):
        agree(pipeline, expected, run_core(pipeline, data, workers=workers, chunk_rows=9), reports=False)


def test_what_is_refused():
    behind = per_key(od.tumbling(7), source=od.Pipeline(SCHEMA).reorder("ts", slack=3))
    for pipeline in (behind, per_key(od.tumbling(7), source=computed())):
        with pytest.raises(od.PlanError, match="emit='final': 'window_"):
            pipeline.run(generated(), emit="final")


def test_times_of_a_batch_that_is_computed_in_several_blocks():
    """Of 4,096 rows each: values, nulls and what can't be computed lie elsewhere in each of them."""
    n = 9_000
    lacking = [i % 7 == 0 if i < 4_096 else i % 11 == 0 for i in range(n)]
    data = pa.table([
        pa.array([None if lacks else i for i, lacks in enumerate(lacking)], pa.int64()),
        [f"k{i % 3}" for i in range(n)],
        [0 if lacks or i % 13 == 5 else 1 for i, lacks in enumerate(lacking)],
    ], schema=SCHEMA)  # fmt: skip
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") * (4 // od.col("x")), on_error="skip")
    pipeline = per_key(od.tumbling(200), source=source.filter(od.col("t").is_not_null()), time="t")
    expected = run_serial(pipeline, data)
    assert len(expected.rows) == 3 * n * 4 // 200
    assert len(expected.skipped) > n // 13
    agree(pipeline, expected, run_core(pipeline, data, workers=0))


def test_several_columns_of_one_step_make_a_time():
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") * 2, u=od.col("ts") + 1)
    pipeline = per_key(od.tumbling(30), source=source.with_columns(w=od.col("t") + od.col("u")), time="w")
    assert isinstance(pipeline.plan.operators[-1].clock, ComputedClock)
    data = rows((1, "a", 1), (2, "b", 1), (21, "c", 1), (23, "d", 1), (40, "a", 1))
    found, serials = both(pipeline, data)
    assert found[:2] == [("a", 0, 30, 1), ("b", 0, 30, 1)]
    assert found[2:] == [("c", 60, 90, 1), ("d", 60, 90, 1), ("a", 120, 150, 1)]
    assert serials[:4] == [3, 3, 5, 5]


def test_times_of_rows_that_come_later_than_they_were_are_no_clock():
    """A window behind a top_k would close before its rows come, and show each window twice."""
    n = range(200)
    data = pa.table(
        {"w": [i // 10 for i in n], "t": list(n), "k": [i % 3 for i in n], "x": [i * 7 % 11 for i in n]}
    )
    best = od.Pipeline(data.schema).top_k(3, by="x", window="w")
    for time, span in (("t", 20), ("w", 3)):
        pipeline = best.key_by("k").window(od.tumbling(span), time=time).aggregate(n=od.count())
        assert pipeline.plan.operators[-1].clock_wanted() is None
        found, _ = both(pipeline, data)
        assert len({(k, start) for k, start, *_ in found}) == len(found) > 15
