"""Sources whose merge columns have names of their own: as if they had one name."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.plan.sources import merge_columns, with_one_source
from ordstream.testing import run_serial

CLICKS = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("page", pa.string()), ("at", pa.int64())])
#: `ts` is no time here, and `page` has another type than that of the clicks.
ORDERS = pa.schema([("user", pa.int64()), ("ts", pa.int64()), ("at", pa.int64()), ("page", pa.float64())])
#: With one name for the time.
SAME = pa.schema([("user", pa.int64()), ("other", pa.int64()), ("ts", pa.int64()), ("page", pa.float64())])
OF_EACH = {"clicks": "ts", "orders": "at"}
WAYS = [(0, "auto", "qst"), (1, 1, "ct"), (2, 3, "lp"), (4, "auto", "et"), (2, 64, "qst")]


def tables(seed: int, rows: int = 300) -> dict[str, pa.Table]:
    rng = random.Random(seed)

    def column(values: range) -> list[int]:
        return [rng.choice(values) for _ in range(rows)]

    clicks = {
        "ts": sorted(column(range(200))), "user": column(range(5)),
        "page": [rng.choice(["", "home", None]) for _ in range(rows)], "at": column(range(9)),
    }  # fmt: skip
    orders = {
        "user": column(range(5)), "ts": column(range(200)), "at": sorted(column(range(200))),
        "page": [rng.random() for _ in range(rows)],
    }  # fmt: skip
    return {"clicks": pa.table(clicks, schema=CLICKS), "orders": pa.table(orders, schema=ORDERS)}


def with_one_name(data: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: table.rename_columns(SAME.names) if name == "orders" else table
            for name, table in data.items()}  # fmt: skip


def windows(clicks: od.Pipeline, orders: od.Pipeline) -> od.Pipeline:
    """Behind a union of both: closed by the clock."""
    both = od.union(clicks.select("user", "ts"), orders.filter(od.col("page") > 0.2).select("user", "ts"))
    return both.key_by("user").window(od.tumbling(7), time="ts").aggregate(n=od.count())


def windows_in_each(clicks: od.Pipeline, orders: od.Pipeline) -> od.Pipeline:
    first = clicks.key_by("user").window(od.rolling(9), time="ts").aggregate(n=od.count())
    second = orders.key_by("user").window(od.session(3), time="ts").aggregate(n=od.count())
    return od.union(first.select("user", "n"), second.select("user", "n"))


def interval(how: str) -> Callable[[od.Pipeline, od.Pipeline], od.Pipeline]:
    def made(clicks: od.Pipeline, orders: od.Pipeline) -> od.Pipeline:
        return clicks.join_interval(
            orders.select("user", "ts", "page"), on="user", time="ts", within=(-3, 8), how=how
        )

    return made


def as_of(clicks: od.Pipeline, orders: od.Pipeline) -> od.Pipeline:
    return clicks.join_asof(orders.select("user", "ts", "page"), on="user", time="ts", tolerance=20)


def timers(clicks: od.Pipeline, orders: od.Pipeline) -> od.Pipeline:
    both = od.union(clicks.select("user", "ts"), orders.select("user", "ts"))

    def alarm(row, state, emit):
        state.due = row.ts + 3

    def ring(key, state, at, emit):
        emit(key, at)

    return both.key_by("user").process(
        alarm, schema={"user": int, "at": int}, state={"due": int}, timer="due", on_timer=ring,
        clock=od.every("ts", 1),
    )  # fmt: skip


GRAPHS = {
    "windows": windows,
    "windows in each": windows_in_each,
    **{f"interval {how}": interval(how) for how in ("inner", "left", "right", "full")},
    "as of": as_of,
    "timers": timers,
}


def both_ways(name: str) -> tuple[od.Pipeline, od.Pipeline]:
    """The graph over sources with names of their own for the time, and over sources with one."""
    make, clicks = GRAPHS[name], od.Pipeline(CLICKS, source="clicks")
    orders = od.Pipeline(ORDERS, source="orders").rename({"ts": "other", "at": "ts"})
    return make(clicks, orders), make(clicks, od.Pipeline(SAME, source="orders"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", GRAPHS)
def test_each_source_is_merged_by_a_column_of_its_own(name, seed):
    graph, plain = both_ways(name)
    data = tables(seed)
    for order in (("clicks", "orders"), ("orders", "clicks")):
        given = {name: data[name] for name in order}
        expected = run_serial(plain, with_one_name(given), merge_by="ts").table
        assert expected.num_rows > 50
        assert run_serial(graph, given, merge_by=OF_EACH).table.equals(expected)
        for workers, chunk_rows, scheduler in WAYS:
            options = {"workers": workers, "chunk_rows": chunk_rows, "scheduler": scheduler}
            found = graph.run(given, merge_by=OF_EACH, **options)
            assert found.table.equals(expected)
    wanted = [one.clock_wanted() for one in with_one_source(graph.plan, OF_EACH).operators]
    assert any(one is not None and one[0] == 1 for one in wanted), "the merge is the clock"


@pytest.mark.parametrize("name", ["windows", "interval left", "as of"])
def test_over_processes_and_from_a_snapshot(name, tmp_path):
    graph, plain = both_ways(name)
    data = tables(5)
    expected = plain.run(with_one_name(data), merge_by="ts").table
    assert graph.run(data, merge_by=OF_EACH, processes=2).table.equals(expected)
    fails = [True]

    def check(row):
        if fails[0] and row.ts > 120:
            raise ValueError("the first time")
        return row

    clicks = od.Pipeline(CLICKS, source="clicks").map(check, schema=CLICKS, name="check")
    orders = od.Pipeline(ORDERS, source="orders").rename({"ts": "other", "at": "ts"})
    graph = GRAPHS[name](clicks, orders)
    stored = {"checkpoint": tmp_path, "every": 40, "chunk_rows": 1, "workers": 1}
    with pytest.raises(od.OperatorError, match="the first time"):
        graph.run(data, merge_by=OF_EACH, **stored)
    fails[0] = False
    times = data["orders"]["at"]
    same = {**data, "orders": data["orders"].set_column(1, ORDERS.field("ts"), times)}
    with pytest.raises(od.SourceError, match=r"'merge_by': \{'clicks': 'ts', 'orders': 'at'\}"):
        graph.run(same, merge_by="ts", **stored)
    rest = graph.run(data, merge_by=OF_EACH, **stored).table
    assert 0 < rest.num_rows < expected.num_rows
    whole = run_serial(graph, data, merge_by=OF_EACH).table
    assert rest.equals(whole.slice(whole.num_rows - rest.num_rows))


def test_the_log_and_silent_sources():
    graph, _ = both_ways("interval left")
    data = tables(6)
    found = graph.run(data, merge_by=OF_EACH, idle="1s")
    again = graph.run(data, merge_by=OF_EACH, merge_log=found.merge_log.table)
    assert again.table.equals(found.table)


def test_a_join_whose_times_have_two_names():
    clicks, orders = od.Pipeline(CLICKS, source="clicks"), od.Pipeline(ORDERS, source="orders")
    joined = clicks.drop("at").join_interval(
        orders.select("user", "at"), on="user", time=("ts", "at"), within=(0, 5), how="left"
    )
    data = tables(7)
    expected = run_serial(joined, data, merge_by=OF_EACH).table
    assert joined.run(data, merge_by=OF_EACH).table.equals(expected)
    (join,) = (one for one in with_one_source(joined.plan, OF_EACH).operators if one.op == "join_interval")
    assert join.clock_wanted() == (1, 5)


def test_windows_on_another_column_than_that_of_their_source_have_no_clock():
    """`ts` merges the clicks, and `at` the orders: on `ts` behind both, or on the orders', there is none."""
    clicks, orders = od.Pipeline(CLICKS, source="clicks"), od.Pipeline(ORDERS, source="orders")
    both = od.union(clicks.select("user", "ts"), orders.select("user", "ts"))
    behind = both.key_by("user").window(od.tumbling(7), time="ts").aggregate(n=od.count())
    of_orders = orders.key_by("user").window(od.tumbling(7), time="ts").aggregate(n=od.count())
    for graph in (behind, od.union(of_orders, behind)):
        found = [one for one in with_one_source(graph.plan, OF_EACH).operators if one.op == "window"]
        assert [one.clock_wanted() for one in found] == [None] * len(found)
    alone = clicks.window(od.tumbling(7), time="ts").aggregate(n=od.count())
    one = od.union(behind.select("n"), alone.select("n"))
    found = [one for one in with_one_source(one.plan, OF_EACH).operators if one.op == "window"]
    assert [one.clock_wanted() for one in found] == [None, (1, 7)]


@pytest.mark.parametrize(
    ("merge_by", "text"),
    [
        ({"clicks": "ts"}, "a column of each source, which are 'clicks', 'orders'; got one of 'clicks'$"),
        ({**OF_EACH, "others": "ts"}, "got one of 'clicks', 'orders', 'others'"),
        ({}, "got one of none"),
        ({"clicks": "ts", "orders": 5}, "such as {'clicks': 'ts', 'orders': 'ts'}; got {'clicks': 'ts', "),
        ({"clicks": "ts", "orders": "when"}, "'orders' has no such column; it has: user, ts, at, page$"),
        ({"clicks": "ts", "orders": "page"}, "one type in all sources: clicks: int64, orders: double; cast"),
        ({"clicks": "page", "orders": "at"}, "one type in all sources: clicks: string, orders: int64"),
        ("when", r"'clicks' has no such column.*merge_by={'clicks': 'when', 'orders': 'when'}"),
    ],
)  # fmt: skip
def test_what_is_no_column_of_each_source_is_told(merge_by, text):
    graph, _ = both_ways("windows")
    for run in (graph.run, lambda data, **options: run_serial(graph, data, **options)):
        with pytest.raises(od.PlanError, match=text):
            run(tables(1), merge_by=merge_by)


def test_errors_name_the_source_and_its_own_column():
    graph, _ = both_ways("windows")
    data = tables(1)
    times = data["orders"]["at"].to_pylist()
    at = pa.array([*times[:9], None, *times[10:]], pa.int64())
    hole = {**data, "orders": data["orders"].set_column(2, "at", at)}
    with pytest.raises(od.SourceError, match="'orders': 'at', by which it is merged, is null in row 10"):
        graph.run(hole, merge_by=OF_EACH)
    falls = {**data, "orders": data["orders"].take(list(reversed(range(300))))}
    with pytest.raises(od.SourceError, match=r"over several sources needs it .* sort each source by it"):
        graph.run(falls, merge_by=OF_EACH)
    assert merge_columns(graph.plan, OF_EACH) == ("ts", "at")


@pytest.mark.parametrize("merge_by", ["stream", {"a": "stream", "b": "stream"}], ids=str)
def test_a_merge_column_may_be_named_as_the_wide_source_s_own(merge_by):
    a = pa.table({"stream": [1, 5, 20], "user": [1, 2, 1]})
    b = pa.table({"x": [9, 6], "stream": [2, 30], "user": [1, 2]})
    both = od.union(
        *(
            od.Pipeline(data.schema, source=name).select("user", "stream")
            for name, data in (("a", a), ("b", b))
        )
    )
    pipeline = both.key_by("user").window(od.tumbling(5), time="stream").aggregate(n=od.count())
    renamed = [data.rename_columns({"stream": "ts"}) for data in (a, b)]
    plain = od.union(
        *(
            od.Pipeline(one.schema, source=name).select("user", "ts")
            for name, one in zip("ab", renamed, strict=True)
        )
    )
    plain = plain.key_by("user").window(od.tumbling(5), time="ts").aggregate(n=od.count())
    expected = run_serial(plain, dict(zip("ab", renamed, strict=True)), merge_by="ts").table
    assert run_serial(pipeline, {"a": a, "b": b}, merge_by=merge_by).table.equals(expected)
    for workers in (0, 2):
        assert pipeline.run({"a": a, "b": b}, merge_by=merge_by, workers=workers).table.equals(expected)


@pytest.mark.parametrize("merge_by", ["ts", {"a": "ts", "b": "at"}], ids=str)
def test_columns_may_have_the_names_that_the_wide_source_would_give(merge_by):
    at = "ts" if merge_by == "ts" else "at"
    a = pa.table({"ts": [1, 3], "user": [1, 2], "x": [1, 2], "x (b)": [3, 4], "ts/at (b)": [5, 6]})
    b = pa.table({at: [2, 4], "user": [5, 6], "x": ["p", "q"], "ts/at": [0.5, 1.5]})
    of_a, of_b = od.Pipeline(a.schema, source="a"), od.Pipeline(b.schema, source="b")
    both = od.union(of_a.select("user", v=od.col("x (b)") + od.col("x")), of_b.select("user", v=od.lit(0)))
    expected = [{"user": 1, "v": 4}, {"user": 5, "v": 0}, {"user": 2, "v": 6}, {"user": 6, "v": 0}]
    assert run_serial(both, {"a": a, "b": b}, merge_by=merge_by).table.to_pylist() == expected
    assert both.run({"a": a, "b": b}, merge_by=merge_by).table.to_pylist() == expected
    texts = of_b.select("x", "ts/at").run({"b": b})
    assert texts.table["x"].to_pylist() == ["p", "q"]


def test_a_window_behind_both_has_the_clock_in_either_order_of_the_union():
    """Beside another window, whose time stands elsewhere in its source."""
    clicks, orders = od.Pipeline(CLICKS, source="clicks"), od.Pipeline(ORDERS, source="orders")
    rolling = orders.key_by("user").window(od.rolling(5), time="at").aggregate(n=od.count())
    ways = clicks.select("user", "ts"), rolling.select("user", ts=od.col("at"))
    data = tables(8)
    found = []
    for both in (od.union(*ways), od.union(*reversed(ways))):
        behind = both.key_by("user").window(od.tumbling(7), time="ts").aggregate(n=od.count())
        wanted = [one.clock_wanted() for one in with_one_source(behind.plan, OF_EACH).operators]
        assert [one for one in wanted if one is not None] == [(1, 5), (1, 7)]
        found.append(run_serial(behind, data, merge_by=OF_EACH).table)
        assert behind.run(data, merge_by=OF_EACH, workers=2).table.equals(found[-1])
    assert found[0].equals(found[1])
