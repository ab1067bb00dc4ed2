"""What a graph promises beside its order: its sources, its outputs, its state, and what it refuses."""

from __future__ import annotations

import itertools
import random
import threading

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.plan.sources import with_one_source
from ordstream.testing import run_serial

CLICKS = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("page", pa.string())])
ORDERS = pa.schema(
    [("user", pa.int64()), ("amount", pa.int64()), ("ts", pa.int64()), ("tags", pa.list_(pa.int64()))]
)
PATIENCE = 60.0  # seconds that no test should need
WAYS = [(0, "auto"), (1, 1), (2, 3), (4, "auto")]


def times_of(rng: random.Random, rows: int, ascending: bool) -> list[int]:
    times = sorted(rng.randrange(40) for _ in range(rows))
    return times if ascending else [time + rng.randrange(-6, 7) for time in times]


def clicks_of(rng: random.Random, rows: int, ascending: bool = True) -> pa.Table:
    times = times_of(rng, rows, ascending)
    return pa.table(
        {
            "ts": times,
            "user": [rng.randrange(3) for _ in times],
            "page": [rng.choice(["", "a", "a longer page than fits into a view", None]) for _ in times],
        },
        schema=CLICKS,
    )


def orders_of(rng: random.Random, rows: int, ascending: bool = True) -> pa.Table:
    times = times_of(rng, rows, ascending)
    return pa.table(
        {
            "user": [rng.randrange(3) for _ in times],
            "amount": list(range(rows)),
            "ts": times,
            "tags": [rng.choice([[], [1, 2], None]) for _ in times],
        },
        schema=ORDERS,
    )


def sources() -> tuple[od.Pipeline, od.Pipeline]:
    return od.Pipeline(CLICKS, source="clicks"), od.Pipeline(ORDERS, source="orders")


# ---------------------------------------------------------------- several sources


@pytest.mark.parametrize("seed", range(6))
def test_several_sources_are_merged_by_a_column(seed):
    """Also where their times fall, where one is empty, and in batches of any size."""
    rng = random.Random(seed)
    clicks, orders = sources()
    both = od.union(
        clicks.select("user", "ts", what="page"), orders.select("user", "ts", what=od.lit("order"))
    )
    tables = {
        "clicks": clicks_of(rng, rng.choice([0, 1, 40]), seed % 2 == 0),
        "orders": orders_of(rng, rng.choice([1, 40]), seed % 2 == 0),
    }
    for names in (["clicks", "orders"], ["orders", "clicks"]):
        data = {name: tables[name] for name in names}
        cut = {
            name: table.to_batches(max_chunksize=rng.randint(1, 9)) or table for name, table in data.items()
        }
        expected = run_serial(both, data, merge_by="ts").table
        assert expected.num_rows == sum(table.num_rows for table in tables.values())
        outputs = {"clicks": clicks, "big": orders.filter(od.col("amount") > 5)}
        apart = run_serial(clicks, data, merge_by="ts", outputs=outputs).outputs
        for workers, chunk_rows in WAYS:
            options = {"merge_by": "ts", "workers": workers, "chunk_rows": chunk_rows}
            assert both.run(cut, **options).table.equals(expected)
            found = clicks.run(cut, outputs=outputs, tags=True, **options)
            assert {name: found[name].to_pylist() for name in found} == {
                name: table.to_pylist() for name, table in apart.items()
            }


def test_ties_come_in_the_order_of_the_mapping():
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    both = od.union(p.with_columns(of=od.lit("p")), q.with_columns(of=od.lit("q")))
    one = pa.table({"ts": [1, 1, 2]})
    for names in ("pq", "qp"):
        table = both.run({name: one for name in names}, merge_by="ts").table
        assert "".join(table["of"].to_pylist()) == f"{names[0] * 2}{names[1] * 2}{names}"
        assert table["ts"].to_pylist() == [1, 1, 1, 1, 2, 2]


def test_unsigned_values_above_the_middle_are_merged_in_their_order() -> None:
    schema = pa.schema([("ts", pa.uint64())])
    both = od.union(od.Pipeline(schema, source="p"), od.Pipeline(schema, source="q"))
    data = {
        "p": pa.table({"ts": [1, 2**63 + 5, 2**64 - 1]}, schema=schema),
        "q": pa.table({"ts": [2**63 - 1, 2**63]}, schema=schema),
    }
    found = both.run(data, merge_by="ts").table
    assert found["ts"].to_pylist() == [1, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1]
    assert found.equals(run_serial(both, data, merge_by="ts").table)


def test_windows_take_the_merge_column_for_their_clock():
    clicks, orders = sources()
    rng = random.Random(1)
    data = {"clicks": clicks_of(rng, 60), "orders": orders_of(rng, 60)}
    windows = od.union(
        clicks.key_by("user").window(od.tumbling(5), time="ts").aggregate(n=od.count()),
        orders.key_by("user").window(od.tumbling(4), time="ts").aggregate(n=od.count()),
    )
    expected = run_serial(windows, data, merge_by="ts").table
    assert expected.num_rows > 40
    ends = expected["end"].to_pylist()
    assert ends == sorted(ends)  # the clock closes them, not their key's next row
    for workers, chunk_rows in WAYS:
        found = windows.run(data, merge_by="ts", workers=workers, chunk_rows=chunk_rows)
        assert found.table.equals(expected)
    assert "is not the clock" in windows.explain()  # which one it is, merge_by says
    by_amount = orders.window(od.tumbling(5), time="amount").aggregate(n=od.count())
    assert by_amount.plan.operators[-1].clock_wanted() is not None  # alone it would be the clock
    plan = with_one_source(od.union(windows.select("n"), by_amount.select("n")).plan, "ts")
    assert [one.clock_wanted() for one in plan.operators if one.op == "window"] == [(1, 5), (1, 4), None]
    both = od.union(clicks.select("user", "ts"), orders.filter(od.col("amount") > 3).select("user", "ts"))
    behind = both.key_by("user").window(od.tumbling(5), time="ts").aggregate(n=od.count())
    expected = run_serial(behind, data, merge_by="ts").table
    assert expected["end"].to_pylist() == sorted(expected["end"].to_pylist())
    for workers, chunk_rows in WAYS:
        found = behind.run(data, merge_by="ts", workers=workers, chunk_rows=chunk_rows)
        assert found.table.equals(expected)


def test_the_clock_behind_a_union():
    """It is that of a line where all inputs pass its column on, and none where one of them computes it."""
    p = od.Pipeline({"k": int, "ts": int, "late": int})
    hit, miss = p.branch(od.col("k") == 0)

    def windows(pipeline, time="ts"):
        return pipeline.key_by("k").window(od.tumbling(10), time=time).aggregate(n=od.count())

    rows = pa.table({"k": [i % 3 for i in range(90)], "ts": list(range(90)), "late": [0] * 90})
    joined = windows(od.union(hit.filter(od.col("ts") % 2 == 0), miss))
    alone = windows(p.filter((od.col("k") != 0) | (od.col("ts") % 2 == 0)))
    assert "closed by the clock" in joined.explain()
    assert joined.run(rows, workers=2, chunk_rows=3).table.equals(alone.run(rows).table)
    assert run_serial(joined, rows).table.equals(alone.run(rows).table)
    computed = windows(od.union(hit.with_columns(ts=od.col("ts") + 0), miss))
    renamed = windows(od.union(hit.select("k", "late", ts="late"), miss.select("k", "late", "ts")))
    for pipeline in (computed, renamed):
        assert "'ts' is not the clock" in pipeline.explain()
        assert pipeline.run(rows, workers=2).table.equals(run_serial(pipeline, rows).table)
    two = od.union(windows(hit), windows(miss, "late"))
    with pytest.raises(od.PlanError, match="from the columns late, ts: there is one clock"):
        two.run(rows)


def test_a_source_is_asked_only_when_the_merge_needs_it():
    """Memory is bounded where one source runs ahead of the other."""
    asked = {"sparse": 0, "dense": 0}
    ahead = []

    def batches(name, step, count):
        for number in range(count):
            asked[name] += 1
            ahead.append(asked["sparse"] - asked["dense"] / 100)  # a batch has 10 rows
            yield pa.record_batch({"ts": [(number * 10 + i) * step for i in range(10)]})

    sparse, dense = (od.Pipeline({"ts": int}, source=name) for name in asked)
    data = {"sparse": batches("sparse", 100, 5), "dense": batches("dense", 1, 500)}
    times = od.union(sparse, dense).run(data, merge_by="ts", workers=2).table["ts"].to_pylist()
    assert times == sorted(times)
    assert len(times) == 5_050
    assert max(ahead) < 2


def test_a_row_without_a_place_in_the_merge():
    clicks, orders = sources()
    rows = clicks_of(random.Random(1), 9).to_pylist()
    rows[7]["ts"] = None
    bad = pa.Table.from_pylist(rows, schema=CLICKS).to_batches(max_chunksize=3)
    data = {"clicks": bad, "orders": orders_of(random.Random(1), 5)}
    both = od.union(clicks.select("ts"), orders.select("ts"))
    with pytest.raises(
        od.SourceError, match="source 'clicks': 'ts', by which it is merged, is null in row 8"
    ):
        both.run(data, merge_by="ts")


def test_the_sources_that_are_given():
    clicks, orders = sources()
    both = od.union(clicks.select("ts"), orders.select("ts"))
    data = {"clicks": clicks_of(random.Random(1), 5), "orders": orders_of(random.Random(1), 5)}
    with pytest.raises(od.PlanError, match="has the sources 'clicks', 'orders': say which column"):
        both.run(data)
    with pytest.raises(od.PlanError, match="run it on a mapping of each to its data; got sources 'clicks'"):
        both.run({"clicks": data["clicks"]}, merge_by="ts")
    for given in ({"clicks": data["clicks"]}, data | {"more": data["clicks"]}):
        with pytest.raises(od.PlanError, match="run it on a mapping of each to its data; got sources"):
            run_serial(both, given, merge_by="ts")
    with pytest.raises(od.PlanError, match="the pipeline has the source 'clicks'; got 'orders'"):
        run_serial(clicks, {"orders": data["orders"]})
    assert run_serial(clicks, {"clicks": data["clicks"]}).table.equals(
        run_serial(clicks, data["clicks"]).table
    )
    with pytest.raises(od.PlanError, match="got Table"):
        both.run(data["clicks"], merge_by="ts")
    with pytest.raises(od.PlanError, match="source 'orders' has no such column"):
        both.run(data, merge_by="page")
    with pytest.raises(od.PlanError, match="merge_by is for a pipeline of several sources"):
        clicks.run(data["clicks"], merge_by="ts")
    with pytest.raises(od.PlanError, match="has the source 'clicks'; got 'orders'"):
        clicks.run({"orders": data["orders"]})
    assert clicks.run({"clicks": data["clicks"]}).table.equals(data["clicks"])
    other = od.Pipeline({"ts": float}, source="orders")
    with pytest.raises(od.PlanError, match="two sources are named 'orders'"):
        od.union(orders.select("ts"), other.select("ts", name="x").select(ts=od.col("ts").cast(int)))
    with pytest.raises(
        od.PlanError, match="'ts' must have one type in all sources: clicks: int64, orders: d"
    ):
        od.union(clicks.select("user"), other.select(user=od.lit(1))).run(data, merge_by="ts")
    with pytest.raises(od.PlanError, match="name the sources"):
        od.union(od.Pipeline({"a": int}), od.Pipeline({"b": int}).rename({"b": "a"}))


def test_a_silent_source_holds_the_others_back_until_it_is_idle():
    """Its rows come when they are there. The log says what was chosen, and repeats it."""
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    both = od.union(p.with_columns(of=od.lit("p")), q.with_columns(of=od.lit("q")))
    heard = threading.Event()

    def silent():
        yield pa.record_batch({"ts": [1, 4]})
        heard.wait(PATIENCE)  # until rows behind its next one have come out
        yield pa.record_batch({"ts": [5, 60]})

    def lively():
        for start in range(0, 50, 10):
            yield pa.record_batch({"ts": list(range(start, start + 10))})

    rows = []
    with both.stream({"p": silent(), "q": lively()}, merge_by="ts", idle="50ms", workers=1) as out:
        for batch in out:
            rows += batch.to_pylist()
            if len(rows) == 52:
                heard.set()
    assert [row["ts"] for row in rows if row["of"] == "q"] == list(range(50))
    assert [row["ts"] for row in rows if row["of"] == "p"] == [1, 4, 5, 60]
    assert [row["ts"] for row in rows][-2:] == [5, 60]
    log = out.merge_log.table
    assert log.num_rows < 12
    data = {
        "p": pa.table({"ts": [1, 4, 5, 60]}),
        "q": pa.table({"ts": list(range(50))}).to_batches(max_chunksize=3),
    }
    assert run_serial(both, data, merge_by="ts", merge_log=log).table.to_pylist() == rows
    again = both.run(data, merge_by="ts", merge_log=log)
    assert again.table.to_pylist() == rows
    assert sum(again.merge_log.table["rows"].to_pylist()) == 54
    shorter = both.run(data, merge_by="ts", merge_log=log.slice(0, 3)).table.to_pylist()
    assert shorter == run_serial(both, data, merge_by="ts", merge_log=log.slice(0, 3)).table.to_pylist()
    assert shorter != rows


def test_a_source_that_fails_while_others_are_silent():
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    failed = threading.Event()

    def silent():
        failed.wait(PATIENCE)
        yield pa.record_batch({"ts": [1]})

    def failing():
        yield pa.record_batch({"ts": [1]})
        failed.set()
        raise RuntimeError("the line is cut")

    with pytest.raises(od.SourceError, match="the line is cut"):
        od.union(p, q).run({"p": silent(), "q": failing()}, merge_by="ts", idle="10ms")


def test_the_log_of_a_stream_that_does_not_end_can_be_taken_or_left():
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    both = od.union(p, q)

    def endless(first):
        for start in range(first, 2_000, 4):
            yield pa.record_batch({"ts": [start, start + 1]})

    data = {"p": endless(0), "q": endless(2)}
    taken = []
    with both.stream(data, merge_by="ts", workers=1) as out:
        rows = []
        for batch in out:
            rows += batch.to_pylist()
            taken.append(out.merge_log.take())
    log = pa.concat_tables([*taken, out.merge_log.table])
    assert out.merge_log.take().num_rows == log.num_rows - sum(map(len, taken))
    assert out.merge_log.table.num_rows == 0
    assert sum(log["rows"].to_pylist()) == len(rows) == 2_000
    data = {"p": [*endless(0)], "q": [*endless(2)]}
    assert both.run(data, merge_by="ts", merge_log=log).table.to_pylist() == rows
    without = both.run(data, merge_by="ts", merge_log=False)
    assert without.merge_log is None
    assert without.table.to_pylist() == rows
    assert run_serial(both, data, merge_by="ts", merge_log=False).table.to_pylist() == rows


def test_logs_that_are_none_of_these_sources():
    p, q = od.Pipeline({"ts": int}, source="p"), od.Pipeline({"ts": int}, source="q")
    both, one = od.union(p, q), pa.table({"ts": [1, 2]})
    data = {"p": one, "q": one}
    log = both.run(data, merge_by="ts").merge_log.table
    assert log.to_pylist() == [{"source": s, "rows": 1} for s in "pqpq"]
    with pytest.raises(od.PlanError, match="merge_log must be the table of a run's merge_log, got int"):
        both.run(data, merge_by="ts", merge_log=3)
    with pytest.raises(od.PlanError, match="it has 'x'"):
        both.run(data, merge_by="ts", merge_log=pa.table({"source": ["x"], "rows": [1]}))
    for wrong in (None, -1):
        bad = pa.table([["p"], pa.array([wrong], pa.int64())], schema=log.schema)
        with pytest.raises(od.PlanError, match=f"merge_log has {wrong} rows in its row 1"):
            both.run(data, merge_by="ts", merge_log=bad)
    with pytest.raises(od.PlanError, match="it has None"):
        both.run(data, merge_by="ts", merge_log=pa.table([[None], [1]], schema=log.schema))
    with pytest.raises(od.SourceError, match="1 more rows of source 'p' than the source"):
        both.run(data, merge_by="ts", merge_log=pa.table({"source": ["p"], "rows": [3]}))
    with pytest.raises(od.PlanError, match="merge_log is for a pipeline of several sources"):
        p.run(one, merge_log=log)
    with pytest.raises(od.PlanError, match="idle: a duration is a number and a unit"):
        both.run(data, merge_by="ts", idle="soon")
    with pytest.raises(od.PlanError, match=r"idle must not be negative, got '-1s'"):
        both.run(data, merge_by="ts", idle="-1s")
    with pytest.raises(od.PlanError, match="can't be combined with snapshots"):
        both.run(data, merge_by="ts", merge_log=log, snapshots=True)


# ---------------------------------------------------------------- several outputs


def collect(out, found):
    for name, batch in out:
        found[name] += batch["a"].to_pylist()


def test_an_output_that_nobody_looks_at_holds_no_other_back():
    p = od.Pipeline({"a": int})
    few, many = p.branch(od.col("a") % 1000 == 0)
    rows = pa.table({"a": list(range(100_000))})
    seen: dict[str, int] = {"few": 0, "many": 0}
    with p.stream(rows, outputs={"few": few, "many": many}, max_ready=1, max_bytes=1 << 16) as out:
        for name, batch in out:
            seen[name] += batch.num_rows
    assert seen == {"few": 100, "many": 99_900}
    assert out.report.tuples == 100_000
    assert out.emitted_through == od.OrderTag(100_000, 0)


def test_the_commit_point_of_several_outputs():
    """It moves when all that was made together has been given out."""
    p = od.Pipeline({"a": int})
    small, large = p.branch(od.col("a") < 5)
    rows = pa.table({"a": list(range(10))})
    with p.stream(rows, outputs={"small": small, "large": large}, partial=False, workers=0) as out:
        points = [(name, out.emitted_through) for name, _ in out]
    assert points == [("small", od.OrderTag(0)), ("large", od.OrderTag(10, 0))]


def test_outputs_end_before_the_row_that_fails():
    p = od.Pipeline({"a": int})
    low, high = p.branch(od.col("a") < 50)
    outputs = {"low": low.with_columns(b=1 // (od.col("a") - 40)), "all": p, "high": high}
    rows = pa.table({"a": [70, 3, 80, 40, 90, 5]})
    expected = run_serial(p, rows, outputs=outputs)
    assert expected.error.serial == 4
    for workers, chunk_rows in WAYS:
        found: dict[str, list[int]] = {"low": [], "all": [], "high": []}
        out = p.stream(rows, outputs=outputs, workers=workers, chunk_rows=chunk_rows)
        with pytest.raises(od.OperatorError, match="failed at serial 4"), out:
            collect(out, found)
        assert found == {name: table["a"].to_pylist() for name, table in expected.outputs.items()}
        assert found == {"low": [3], "all": [70, 3, 80], "high": [70, 80]}


def test_outputs_that_are_none():
    p = od.Pipeline({"a": int})
    rows = pa.table({"a": [1]})
    for wrong in ({}, [p], {"a": 1}, {1: p}, {"": p}):
        with pytest.raises(od.PlanError, match="outputs must be a mapping of names to pipelines"):
            p.run(rows, outputs=wrong)
    with pytest.raises(od.PlanError, match="name the sources"):
        p.run(rows, outputs={"p": p, "q": od.Pipeline({"b": int})})
    with pytest.raises(od.PlanError, match="none of them goes on from the source"):
        p.run(rows, outputs={"q": od.Pipeline({"b": int})})
    found = p.run(rows, outputs={"only": p})
    assert found["only"].to_pylist() == [{"a": 1}]
    with pytest.raises(KeyError, match="there is no output 'x'; there are 'only'"):
        found["x"]


# ---------------------------------------------------------------- branches and unions


def test_null_goes_the_second_way():
    p = od.Pipeline({"a": int})
    hit, miss = p.branch(od.col("a") < 2)  # of the 0 under the null this would be true
    found = p.run(pa.table({"a": [1, None, 2]}), outputs={"hit": hit, "miss": miss})
    assert found["hit"]["a"].to_pylist() == [1]
    assert found["miss"]["a"].to_pylist() == [None, 2]


BRANCHES = {
    "diff": lambda p, n: p.key_by("k").diff("ts", n=n),
    "an expression": lambda p, n: p.key_by("k").aggregate(s=od.sum(od.col("ts") * n)),
    "shown input": lambda p, n: p.key_by("k").scan(s=od.sum(od.col("ts") * n)),
    "gaps": lambda p, n: (
        p.key_by("k")
        .window(od.tumbling(5 * n), time="ts", fill_gaps=True)
        .aggregate(s=od.sum(od.col("ts") * n))
    ),
}


@pytest.mark.parametrize("build", BRANCHES.values(), ids=BRANCHES)
@pytest.mark.parametrize("options", [{"workers": 2, "chunk_rows": 1}, {"processes": 2}], ids=str)
def test_what_is_made_of_several_operators_may_be_in_two_branches(build, options):
    data = pa.table({"k": [1, 2, 1, 2, 1], "ts": [1, 2, 9, 30, 41]})
    p = od.Pipeline(data.schema)
    both = od.union(build(p, 1), build(p, 2), build(p, 3))
    assert both.run(data, **options).table.equals(run_serial(both, data).table)


def test_the_parts_of_an_operator_are_renamed_with_it():
    p = od.Pipeline({"k": int, "ts": int})
    text = od.union(BRANCHES["diff"](p, 1), BRANCHES["diff"](p, 2)).explain()
    assert "diff_1_2: lag: lag 2 by k" in text
    mine = [p.diff("ts", name="mine"), p.diff("ts", n=2, name="mine")]
    with pytest.raises(od.PlanError, match="two operators are named 'mine: lag'"):
        od.union(*mine).explain()


def test_inputs_of_a_union():
    p = od.Pipeline({"a": int, "b": str})
    with pytest.raises(
        od.SchemaError, match=r"input 2 has other columns than the first; the first: a: int64"
    ):
        od.union(p, p.select("a"))
    with pytest.raises(od.PlanError, match="union takes pipelines"):
        od.union(p, "x")
    with pytest.raises(od.PlanError, match="got none"):
        od.union()
    with pytest.raises(od.PlanError, match="two operators are named 'mine'"):
        od.union(p.filter(od.col("a") > 1, name="mine"), p.filter(od.col("a") < 1, name="mine")).explain()
    many = od.union(*(p.filter(od.col("a") == i) for i in range(65)))
    with pytest.raises(od.PlanError, match="more than 64 streams of rows"):
        many.run(pa.table({"a": [1], "b": [""]}))
    few = od.union(*(p.filter(od.col("a") == i) for i in range(64)))
    assert few.run(pa.table({"a": [70, 63], "b": ["", "x"]})).table.to_pylist() == [{"a": 63, "b": "x"}]


def test_a_graph_without_a_common_key_is_not_cut():
    """With processes= it runs in this one, and `explain` says so."""
    p = od.Pipeline({"a": int})
    hit, miss = p.branch(od.col("a") > 1)
    both = od.union(hit.assert_ordered("a"), miss)
    rows = pa.table({"a": [1, 2, 3]})
    assert both.run(rows, processes=2).table.equals(rows)
    assert "has one state for all rows" in both.explain(processes=2).splitlines()[0]
    assert "has one state for all rows" in both.explain(nodes=2).splitlines()[0]


def test_explain_draws_the_graph():
    p = od.Pipeline({"a": int})
    hit, miss = p.branch(od.col("a") > 1)
    both = od.union(miss.filter(od.col("a") > 0), hit, p)
    assert both.explain().splitlines() == [
        "|      source  a: int64",
        "*       1  SL  source: copies: every row goes 2 ways",
        "|              copies no row: the ways share its columns",
        "|              -> a: int64",
        "+-+",
        "* |     2  SL  branch_1: branch (a > 1)",
        "| |            copies no row: the ways share its columns",
        "| |            -> a: int64",
        "+-|-+",
        "| | *   3  SL  filter_2: filter (a > 0)",
        "| | |          -> a: int64",
        "+-+-+",
        "*       4  SL  union_3: union of 3",
        "|              keeps nothing: no input waits for another",
        "|              -> a: int64",
    ]


# ---------------------------------------------------------------- state


def test_a_graph_goes_on_from_its_state():
    """Operators of one name on two branches keep states of their own."""
    p = od.Pipeline({"k": int, "v": int})
    hit, miss = p.branch(od.col("v") % 3 == 0)
    both = od.union(hit.key_by("k").scan(n=od.count()), miss.key_by("k").scan(n=od.count()))
    rows = pa.table({"k": [i % 4 for i in range(300)], "v": [i * i % 97 for i in range(300)]})
    whole = run_serial(both, rows).table
    for cut, (workers, chunk_rows) in itertools.product((0, 1, 133, 300), WAYS):
        options = {"workers": workers, "chunk_rows": chunk_rows}
        first = both.run(rows.slice(0, cut), end="suspend", snapshots=True, **options)
        assert set(first.snapshot.states) == {"scan_2", "scan_2_2"}
        second = both.run(rows.slice(cut), restore=first.snapshot, **options)
        assert pa.concat_tables([first.table, second.table]).equals(whole)


@pytest.mark.parametrize("ascending", [True, False])
def test_several_sources_go_on_from_a_checkpoint(tmp_path, ascending):
    """Each where it stood, in the middle of its batches too."""
    clicks, orders = sources()
    both = od.union(clicks.select("user", "ts"), orders.select("user", "ts"))
    counted = both.key_by("user").cum_count()
    rng = random.Random(5)
    tables = {"clicks": clicks_of(rng, 90, ascending), "orders": orders_of(rng, 60, ascending)}
    data = {name: table.to_batches(max_chunksize=7) for name, table in tables.items()}
    whole = run_serial(counted, data, merge_by="ts").table
    for number, stop in enumerate((1, 2, 30, 77, 149)):
        folder = str(tmp_path / str(number))
        found = []
        options = {"merge_by": "ts", "checkpoint": folder, "workers": 2, "chunk_rows": 1, "every": 10}
        with counted.stream(data, partial_after=0.0, max_ready=1, **options) as out:
            rows = 0
            for batch in out:
                found.append(batch)
                rows += batch.num_rows
                through = out.emitted_through
                if rows >= stop:
                    break
        rest = counted.run(data, emitted_through=through, **options)
        assert rest.report.tuples < 150 or stop < 20  # it went on from a snapshot
        table = pa.Table.from_batches([*found, *rest.batches], schema=whole.schema)
        assert table.equals(whole)
    backwards = {name: data[name] for name in ("orders", "clicks")}
    with pytest.raises(
        od.SourceError, match="give the sources that the snapshot was taken of, in their order"
    ):
        counted.run(backwards, **options)
    with pytest.raises(od.PlanError, match="a checkpoint needs a source that can go back"):
        counted.run(
            {"clicks": iter(data["clicks"]), "orders": data["orders"]}, merge_by="ts", snapshots=True
        )


def test_the_report_counts_the_rows_of_all_lanes():
    p = od.Pipeline({"a": int})
    hit, miss = p.branch(od.col("a") % 3 == 0)
    some, _ = miss.branch(od.col("a") % 2 == 0)
    both = od.union(hit.filter(od.col("a") > 10), some, p)
    report = both.run(pa.table({"a": list(range(3000))}), workers=2, chunk_rows=50).report
    assert [(one.name, one.tuples_in, one.tuples_out) for one in report.operators] == [
        ("source: copies", 3000, 6000),
        ("branch_1", 3000, 3000),
        ("filter_2", 1000, 996),
        ("branch_2", 2000, 1000),
        ("union_4", 4996, 4996),
    ]


def test_rows_that_a_branch_skips_are_counted():
    data = pa.table({"x": list(range(20))})
    hit, miss = od.Pipeline(data.schema).branch(20 // (od.col("x") % 5) > 5, on_error="skip", name="by")
    result = od.union(hit, miss).run(data, workers=0)
    assert result.table["x"].to_pylist() == [x for x in range(20) if x % 5]
    assert {o.name: o.skipped for o in result.report.operators}["by"] == 4
