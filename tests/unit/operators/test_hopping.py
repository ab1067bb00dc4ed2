"""Hopping windows: what closes them, and what Polars and DuckDB say of the same rows."""

from __future__ import annotations

import math

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from property.compare import agree, run_core
from state_runs import Segment
from unit.operators.test_window import SCHEMA, both, close_to, generated, per_key, rows

import ordstream as od
from ordstream.testing import run_serial


def test_windows_of_a_row_and_when_they_close():
    data = rows((1, "b", 1), (4, "a", 10), (7, "a", 20), (23, "c", 5))
    found, serials = both(per_key(od.hopping(6, every=3), s=od.sum("x")), data)
    assert found == [
        *(("b", -3, 3, 1),),  # the marks 3, 6, ...: before the row that shows them
        *(("a", 0, 6, 10), ("b", 0, 6, 1)),
        *(("a", 3, 9, 30), ("a", 6, 12, 20)),
        *(("c", 18, 24, 5), ("c", 21, 27, 5)),
    ]
    assert serials == [2, 3, 3, 4, 4, 4, 4]


def test_emissions():
    data = rows((1, "a", 5), (3, "a", 7), (8, "a", 1))
    total = {"s": od.sum("x")}
    updates, _ = both(per_key(od.hopping(4, every=2), emit="updates", **total), data)
    assert updates == [("a", -2, 2, 5), ("a", 0, 4, 5), ("a", 0, 4, 12), ("a", 2, 6, 7), ("a", 6, 10, 1),
                       ("a", 8, 12, 1)]  # fmt: skip
    shown, _ = both(per_key(od.hopping(4, every=2), emit="both", **total), data)
    assert [row[:-1] for row in shown if not row[-1]] == updates
    assert [row[:-1] for row in shown if row[-1]] == both(per_key(od.hopping(4, every=2), **total), data)[0]


def test_a_length_that_is_no_multiple_closes_at_the_next_one():
    data = rows((0, "a", 1), (5, "z", 1), (6, "z", 1), (10, "z", 1))
    found, serials = both(per_key(od.hopping(5, every=3)), data)
    assert [(row, serial) for row, serial in zip(found, serials, strict=True) if row[0] == "a"] == [
        *((("a", -3, 2, 1), 2), (("a", 0, 5, 1), 3)),  # ends at 2, the mark is 3; at 5, the mark is 6
    ]


def test_every_as_long_as_the_window_is_tumbling():
    data = generated(800)
    calls = {"n": od.count(), "s": od.sum("x"), "v": od.var("x")}

    def table(kind):
        return (
            od.Pipeline(data.schema).key_by("k").window(kind, time="ts").aggregate(**calls).run(data).table
        )

    assert table(od.hopping(40, every=40)).equals(table(od.tumbling(40)))


def test_another_column_and_no_key():
    source = od.Pipeline(SCHEMA).with_columns(half=od.col("ts") // 2)
    data = rows((0, "a", 1), (9, "b", 1), (30, "a", 1), (31, "b", 2))
    found, serials = both(per_key(od.hopping(6, every=3), source=source, time="half", by=None), data)
    assert found[:3] == [(-3, 3, 1), (0, 6, 2), (3, 9, 1)]
    assert serials[:3] == [2, 3, 3]
    both(per_key(od.hopping(6, every=3), source=source, time="half", emit="both"), data)


def test_rows_that_fail_leave_the_windows_as_they_were():
    large = 2**63 - 1
    data = rows((0, "a", large), (1, "a", 1), (5, "a", -2), (2, "a", 3), (2**63 - 2, "a", 1))
    pipeline = (
        od.Pipeline(SCHEMA).with_columns(when=od.col("ts") + 0).key_by("k")
        .window(od.hopping(8, every=4), time="when")
        .aggregate(s=od.sum("x"), on_error="skip", name="sums")
    )  # fmt: skip
    expected = run_serial(pipeline, data.slice(0, 3))
    assert expected.rows == [("a", -4, 4, large), ("a", 0, 8, large - 2), ("a", 4, 12, -2)]
    everything = run_serial(pipeline, data.take([0, 1, 2, 4]))
    assert len(everything.skipped) == 2
    found, _ = both(pipeline, data.take([0, 1, 2, 4]))
    assert found == expected.rows


def test_closed_windows_leave_no_state():
    pipeline = per_key(od.hopping(10, every=5), d=od.count_distinct("x"))
    keys = [(1, f"key {i}", i) for i in range(5_000)]
    with Segment(pipeline, workers=1, buckets=2) as segment:
        segment.push(rows(*keys), rows=5_000)
        name = pipeline.plan.operators[0].name
        full = segment.bytes(name)
        for time in (6, 11, 16, 21, 26):
            segment.push(rows((time, "z", 1)))
        assert segment.state()[name]["k"].to_pylist() == ["z"]
        assert segment.bytes(name) < full / 50


def test_what_is_refused():
    window = od.Pipeline(SCHEMA).key_by("k").window
    for kind, message in (
        (od.hopping(10, every=11), "at most the length"),
        (od.hopping(10, every=0), "every must be at least 1"),
        (od.hopping(5000, every=1), "in 5000 windows, and 1024 are the most: od.rolling"),
        (od.hopping(10, every="5m"), "has no unit of time"),
    ):
        with pytest.raises(od.PlanError, match=message):
            window(kind, time="ts").aggregate(n=od.count())
    with pytest.raises(od.PlanError, match="'per ten' forgets"):
        window(od.hopping(10, every=5), time="ts").aggregate(n=od.count(), name="per ten").run(
            rows(), emit="final"
        )


@pytest.mark.parametrize(("length", "every"), [(50, 10), (30, 30), (25, 10), (1, 1)])
def test_beside_polars_and_duckdb(length, every):
    data = generated(1500)
    found = (
        od.Pipeline(data.schema).key_by("k").window(od.hopping(length, every=every), time="ts")
        .aggregate(n=od.count(), s=od.sum("x"), m=od.median("x"))
    ).run(data, workers=2).table  # fmt: skip
    x = pl.col("x")
    theirs = (
        pl.from_arrow(data)
        .group_by_dynamic("ts", every=f"{every}i", period=f"{length}i", group_by="k")
        .agg(n=pl.len(), s=x.sum(), m=x.median()).sort("ts", "k")
    )  # fmt: skip
    ours = pl.from_arrow(found).sort("start", "k")  # Polars leaves out the first windows of each key
    ours_too = ours.join(theirs, left_on=["start", "k"], right_on=["ts", "k"], how="semi").sort("start", "k")
    assert ours_too.select("start", "k", "n").rows() == theirs.select("ts", "k", "n").rows()
    close_to(ours_too.select("s", "m").rows(), theirs.select("s", "m").rows())
    sql = duckdb.sql(
        f"select start, k, count(*) from (select *, floor((ts - {length}) / {every})::bigint + 1 as first, "
        f"unnest(range(first * {every}, ts + 1, {every})) as start from data) group by start, k "
        "order by start, k"
    ).fetchall()
    assert ours.select("start", "k", "n").rows() == sql


def test_durations():
    schema = pa.schema({"ts": pa.timestamp("ms"), "k": pa.int64()})
    pipeline = (
        od.Pipeline(schema).key_by("k").window(od.hopping("5m", every="1m"), time="ts")
        .aggregate(n=od.count())
    )  # fmt: skip
    assert "hopping 5m every 1m" in pipeline.explain()
    assert pipeline.schema.field("start").type == pa.timestamp("ms")


@pytest.mark.parametrize("keys", ["k", "u", "f", ["k", "f"], ["f", "s"], "s"], ids=str)
def test_many_windows_that_one_mark_closes_come_by_time_then_key(keys):
    """16 to 511 of them are sorted as words, where time and key fit into one."""
    n = 120
    data = pa.table({
        "ts": pa.array([-40 + i // 8 for i in range(n)] + [90]),
        "k": pa.array([None if i % 29 == 0 else i * 7919 % 41 - 20 for i in range(n)] + [None], pa.int32()),
        "u": pa.array([2**64 - 1 - i * 31 % 50 for i in range(n)] + [0], pa.uint64()),
        "f": pa.array([[-0.0, 1.5, math.nan, -math.inf, None, 2.0][i % 6] for i in range(n)] + [0.0]),
        "s": pa.array([f"key {i * 31 % 50}" for i in range(n)] + [""]),
    })  # fmt: skip
    given = od.Pipeline(data.schema).key_by(*([keys] if isinstance(keys, str) else keys))
    pipeline = given.window(od.hopping(20, every=5), time="ts").aggregate(n=od.count())
    expected = run_serial(pipeline, data)
    serials = [serial for serial, _ in expected.tags]
    assert any(16 <= serials.count(one) < 512 for one in set(serials))
    for way in ({"workers": 0, "chunk_rows": 7, "buckets": 1}, {"workers": 2, "buckets": 3}):
        agree(pipeline, expected, run_core(pipeline, data, **way))


@pytest.mark.parametrize("change", [{"start": 1}, {"start": -5}, {"last": 40}], ids=str)
def test_windows_that_the_latest_tuple_is_not_in_are_refused(change):
    pipeline = per_key(od.hopping(10, every=5), s=od.sum("x"))
    with Segment(pipeline, workers=0) as segment:
        segment.push(rows((7, "a", 1)))
        (name,) = segment.stages
        state = segment.state_of(name)
    (good,) = state.to_pylist()
    assert (good["start"], good["last"]) == (0, 7)
    with Segment(pipeline, workers=0) as segment:
        with pytest.raises(od.PlanError, match="the latest tuple is not in the windows"):
            segment.install({name: pa.Table.from_pylist([{**good, **change}], state.schema)})
        assert segment.state_of(name).num_rows == 0


def test_what_a_closed_window_summed_is_not_in_the_next_one():
    large = 2**63 - 1
    data = rows((-1, "a", large), (1, "a", 0), (6, "a", 1))
    found, _ = both(per_key(od.hopping(10, every=5), s=od.sum("x")), data)
    assert found[-2:] == [("a", 0, 10, 1), ("a", 5, 15, 1)]
