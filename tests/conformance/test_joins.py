"""Joins of two pipelines of one graph: branches, a pipeline with itself, two sources; any key, any names."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

TS = pa.timestamp("s")
SCHEMA = pa.schema([("user", pa.string()), ("ts", TS), ("kind", pa.string()), ("cents", pa.int64())])


def events(n: int = 3000, seed: int = 0) -> pa.Table:
    """Clicks and orders of some users, in the order of time, with ties and users that are null."""
    rng = np.random.default_rng(seed)
    users = [None if i == 0 else f"user {i}" for i in rng.integers(0, 60, n)]
    kinds = np.array(["click", "order"])[(rng.random(n) < 0.3).astype(int)]
    ts = pa.array(np.cumsum(rng.integers(0, 5, n))).cast(TS)
    return pa.table([users, ts, kinds, rng.integers(1, 99, n)], schema=SCHEMA)


def branches() -> tuple[od.Pipeline, od.Pipeline]:
    clicks, orders = od.Pipeline(SCHEMA).branch(od.col("kind") == "click")
    return clicks, orders.select("user", "ts", "cents")


def checked(made: od.Pipeline, data, **options) -> pa.Table:
    """The answer that every run gives."""
    expected = run_serial(made, data, **options)
    assert expected.error is None, expected.error
    for workers, size in ((0, 1), (1, 3), (2, 64), (2, None)):
        found = made.run(data, workers=workers, chunk_rows=size, tags=True, **options).table
        assert found.drop(["_serial", "_index"]).equals(expected.table)
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
    return expected.table


def by_loop(left: list[dict], right: list[dict], low: int, high: int) -> list[tuple]:
    """(left row, right row) of each pair, in any order."""
    return sorted(
        (a["n"], b["n"]) for a in left for b in right
        if a["user"] is not None and a["user"] == b["user"]
        and low <= (b["ts"] - a["ts"]).total_seconds() <= high
    )  # fmt: skip


@pytest.mark.parametrize(
    ("within", "how"),
    [
        (("0s", "90s"), "inner"),
        (("-2m", "-1s"), "left"),
        ((0, 0), "left"),
        (("0s", "90s"), "right"),
        (("-2m", "-1s"), "right"),
        (("0s", "90s"), "full"),
        ((0, 0), "full"),
    ],
)
def test_two_branches(within, how):
    data = events(600)
    numbered = data.append_column("n", pa.array(range(len(data))))
    clicks, orders = od.Pipeline(numbered.schema).branch(od.col("kind") == "click")
    table = checked(clicks.join_interval(orders, "user", within, how), numbered)
    low, high = {"0s": (0, 90), "-2m": (-120, -1), 0: (0, 0)}[within[0]]
    rows = numbered.to_pylist()
    left, right = ([row for row in rows if (row["kind"] == "click") == is_left] for is_left in (True, False))
    pairs = [(row["n"], row["n_right"]) for row in table.to_pylist()]
    met = [pair for pair in pairs if None not in pair]
    assert sorted(met) == by_loop(left, right, low, high)
    for side, rows, given in ((0, left, ("left", "full")), (1, right, ("right", "full"))):
        alone = sorted(pair[side] for pair in pairs if pair[1 - side] is None)
        matched = {pair[side] for pair in met}
        assert alone == [row["n"] for row in rows if how in given and row["n"] not in matched]


def test_names_of_the_output_and_of_the_time():
    clicks, orders = branches()
    made = clicks.join_interval(orders, "user", ("0s", "1m"))
    assert made.schema.names == ["user", "ts", "kind", "cents", "ts_right", "cents_right"]
    renamed = orders.rename({"user": "buyer", "ts": "at", "cents": "side"})
    made = clicks.join_interval(
        renamed, {"user": "buyer"}, ("0s", "1m"), time=("ts", "at"), suffix="_of_order"
    )
    assert made.schema.names == ["user", "ts", "kind", "cents", "at", "side"]
    same = checked(clicks.join_interval(orders, "user", ("0s", "1m")), events())
    assert checked(made, events()).rename_columns(same.schema.names).equals(same)


def test_a_pipeline_with_itself():
    p = od.Pipeline(SCHEMA).with_columns(kind=od.col("kind").str.upper())
    data = events(400)
    pairs = checked(p.join_interval(p, "user", (0, 0)), data)  # each tuple with itself, and with ties
    users = [user for user in data["user"].to_pylist() if user is not None]
    assert len(pairs) >= len(users)
    latest = checked(p.join_asof(p.filter(od.col("kind") == "ORDER"), "user", "5m"), data)
    assert len(latest) == len(data)
    assert 50 < latest["ts_right"].null_count < 300


def test_a_chain_of_joins_and_windows_behind_and_in_front():
    clicks, orders = branches()
    paid = clicks.join_interval(orders, "user", ("0s", "1m"), "left")
    visits = clicks.key_by("user").sessionize("ts", "10m", ["cents"]).rename({"start": "ts"})
    visits = visits.drop("cents", "end", "count")
    both = paid.join_asof(visits, "user", time="ts", suffix="_of_visit", on_error="skip")
    checked(both.key_by("user").window(od.rows(3)).aggregate(total=od.sum("cents")), events(800))


def test_left_rows_come_by_the_clock_of_the_source():
    clicks, orders = branches()
    made = clicks.join_interval(orders, "user", ("0s", "10s"), "left", name="paid")
    assert "forgotten by the clock, at multiples of 10" in made.explain()
    times = [0, 1, 60, 120]
    data = pa.table([["a", "b", "c", "c"], pa.array(times, TS), ["click"] * 4, [1, 2, 3, 4]], schema=SCHEMA)
    found = made.run(data, tags=True).table
    assert found["_serial"].to_pylist() == [3, 3, 4, 4]  # a and b at the mark before c, the last at the end
    checked(made, data)
    windows = clicks.with_columns(other=od.col("ts")).key_by("user").window(od.tumbling("1m"), time="ts")
    beside = windows.aggregate(n=od.count()).rename({"start": "ts"}).join_asof(orders, "user")
    assert "by the clock" in beside.explain()


def test_two_sources_in_one_order():
    a, b = od.Pipeline(SCHEMA, source="clicks"), od.Pipeline(SCHEMA, source="orders").drop("kind")
    tables = {"clicks": events(500, 1), "orders": events(300, 2)}
    made = a.join_interval(b, "user", ("0s", "20s"), "left")
    for workers in (0, 2):
        found = made.run(tables, merge_by="ts", workers=workers).table
        assert found.equals(run_serial(made, tables, merge_by="ts").table)
    rows = [
        [{**row, "n": n} for n, row in enumerate(tables[name].to_pylist())] for name in ("clicks", "orders")
    ]
    assert len(found) - found["ts_right"].null_count == len(by_loop(*rows, 0, 20))


def test_a_join_of_sources_goes_by_the_clock_of_the_merge():
    a, b = od.Pipeline(SCHEMA, source="clicks"), od.Pipeline(SCHEMA, source="orders")
    one = pa.table([["a", "b"], pa.array([0, 100], TS), ["x"] * 2, [1, 2]], schema=SCHEMA)
    other = one.slice(0, 0)
    made = a.join_interval(b, "user", ("0s", "10s"), "left")
    found = made.run({"clicks": one, "orders": other}, merge_by="ts", tags=True).table
    assert found["_serial"].to_pylist() == [2, 2]  # the mark 100 stands in front of the second tuple
    assert found["cents"].to_pylist() == [1, 2]


def test_snapshots_hold_both_sides():
    clicks, orders = branches()
    data = events(500)
    for made in (
        clicks.join_interval(orders, "user", ("-1m", "1m"), "left"),
        clicks.join_interval(orders, "user", ("-1m", "1m"), "full"),
        clicks.join_asof(orders, "user", "2m"),
    ):
        first = made.run(data.slice(0, 250), end="suspend")
        behind = made.run(data.slice(250), restore=first.snapshot)
        assert pa.concat_tables([first.table, behind.table]).equals(made.run(data).table)


def test_more_state_than_may_be_is_told():
    clicks, orders = branches()
    made = clicks.join_interval(orders, "user", ("0s", "3d"), name="paid", max_state_bytes=30_000)
    with pytest.raises(
        od.OperatorError, match=r"'paid' failed .*max_state_bytes is 30000; largest key: 'user \d+'"
    ):
        made.run(events(), workers=1)


def test_mistakes_are_told():
    clicks, orders = branches()
    within = ("0s", "1m")
    with pytest.raises(od.PlanError, match="the other side must be a Pipeline, got Table"):
        clicks.join_interval(events(), "user", within)
    with pytest.raises(od.SchemaError, match=r"'user' is string, 'cents' of the other side is int64; cast"):
        clicks.join_asof(orders, {"user": "cents"})
    with pytest.raises(od.PlanError, match="join_asof: time must be a column"):
        clicks.join_asof(orders, "user", time=[])
    with pytest.raises(od.SchemaError, match=r"'ts' is timestamp\[s\], 'cents' of the other"):
        clicks.join_asof(orders, "user", time=("ts", "cents"))
    with pytest.raises(od.PlanError, match=r"say which column is the time.*and there is none"):
        clicks.join_asof(orders.rename({"ts": "at"}), "user")
    twice = [p.with_columns(also=od.col("ts")) for p in (clicks, orders)]
    with pytest.raises(od.PlanError, match="and they are ts, also"):
        twice[0].join_asof(twice[1], "user")
    with pytest.raises(od.PlanError, match="the time can't be a key column too"):
        clicks.join_asof(orders, ["user", "ts"], time="ts")
    with pytest.raises(od.SchemaError, match="unknown column 'usr'"):
        clicks.join_interval(orders, "usr", within)
    with pytest.raises(od.PlanError, match="source"):
        clicks.join_interval(od.Pipeline({"user": str, "ts": TS}), "user", within)
    with pytest.raises(od.SchemaError, match="another suffix="):
        clicks.with_columns(ts_right=od.col("ts")).join_interval(orders, "user", within, time="ts")
    assert isinstance(events()["ts"][0].as_py(), datetime.datetime)
