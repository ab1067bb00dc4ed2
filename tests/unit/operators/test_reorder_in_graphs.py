"""What goes by the clock that leaves a `reorder`, where the pipeline is a graph: branches, unions, joins,
second outputs, several sources.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from property.compare import exact_rows
from unit.fragments.test_clocks_of_nodes import over_nodes
from unit.operators.test_rejected import drain, tables
from unit.operators.test_timers import timed
from unit.operators.test_window import SCHEMA, per_key, rows

import ordstream as od
from ordstream.errors import OperatorError
from ordstream.fragments.fragmenting import fragments_of
from ordstream.ground.ordertags import OrderTag
from ordstream.testing import run_serial

WAYS = (
    {"workers": 0, "chunk_rows": 1},
    {"workers": 0, "chunk_rows": 50, "buckets": 1},
    {"workers": 1, "chunk_rows": 7, "buckets": 2},
    {"workers": 2, "chunk_rows": 16, "scheduler": "qst", "reorder": "lock"},
    {"workers": 4, "chunk_rows": 5, "buckets": 3, "partitioning": "shared", "depth": 4},
    {"workers": 2},
)
WINDOWS = [od.tumbling(6), od.hopping(8, every=4), od.session(3), od.rolling(9)]


def disordered(n=140, seed=1, jitter=12):
    rng = random.Random(seed)
    times = (max(0, 2 * i + rng.randrange(-jitter, jitter)) for i in range(n))
    return rows(*((t, rng.choice("abcd"), rng.randrange(10)) for t in times))


def ordered(slack=8, late="drop", source=None, name="front"):
    return (source or od.Pipeline(SCHEMA)).reorder("ts", slack=slack, late=late, name=name)


def windows(kind, source, **options):
    emit = {} if kind.kind == "rolling" else {"emit": "both"}
    window = source.key_by("k").window(kind, time="ts")
    return window.aggregate(n=od.count(), s=od.sum("x"), **emit, **options)


def graph(outputs, data, ways=WAYS, **options):
    """The outputs of `run_serial`, which every way gives too."""
    first = next(iter(outputs.values()))
    expected = run_serial(first, data, outputs=outputs, **options)
    assert expected.error is None
    for way in ways:
        found, report = tables(first, data, outputs, **way, **options)
        for name, table in expected.outputs.items():
            assert exact_rows(found[name].to_batches(), table.schema) == exact_rows(
                table.to_batches(), table.schema
            ), (name, way)
        assert report.emitted_through == expected.emitted_through
    return {name: table.drop_columns(["_serial", "_index"]) for name, table in expected.outputs.items()}


@pytest.mark.parametrize("kind", WINDOWS, ids=["tumbling", "hopping", "session", "rolling"])
def test_with_a_second_output_the_rows_are_those_of_a_line(kind):
    data = disordered()
    line = run_serial(windows(kind, ordered()), data).table
    source = ordered(late="side_output")
    pipeline, late = windows(kind, source.filter(od.col("x") > -1)), source.side_output()
    for outputs in ({"w": pipeline, "late": late}, {"late": late, "all": source, "w": pipeline}):
        found = graph(outputs, data)
        assert found["w"].equals(line)
        assert found["late"].num_rows > 5


@pytest.mark.parametrize("kind", WINDOWS, ids=["tumbling", "hopping", "session", "rolling"])
def test_the_union_of_a_branch_is_its_input(kind):
    data, source = disordered(), ordered()
    line = run_serial(windows(kind, source), data).table
    hit, miss = source.branch(od.col("x") > 4)
    few, many = miss.branch(od.col("k") == "a")
    for united in (od.union(hit, miss), od.union(od.union(few, many), hit)):
        assert graph({"w": windows(kind, united)}, data)["w"].equals(line)


def test_a_mark_cuts_what_a_tuple_causes():
    """Tuple 3 shows 10 in front of the rows that it lets go, and 30 behind them. What it causes beside the
    reorder comes in front of the first mark."""
    source = od.Pipeline(SCHEMA)
    behind, beside = ordered(slack=5, source=source), source.select("k", t="ts")
    passed = behind.select("k", t="ts")
    closed = per_key(od.tumbling(10), source=behind).select("k", t="end")
    data = rows((11, "a", 0), (13, "b", 0), (40, "c", 0))
    united = od.union(passed, beside, closed)
    found = run_serial(united, data)
    assert [serial for serial, _ in found.tags] == [1, 2, 3, 3, 3, 3, 3, 3, 3]
    assert found.rows[:7] == [
        *(("a", 11), ("b", 13)),  # beside
        *(("c", 40), ("a", 11), ("b", 13)),
        *(("a", 20), ("b", 20)),
    ]
    assert found.rows[7:] == [("c", 40), ("c", 50)]  # the end
    graph({"o": united}, data)
    assert run_serial(od.union(passed, beside), data).rows[2:5] == [("a", 11), ("b", 13), ("c", 40)]


def test_lanes_that_meet_rows_beside_close_per_key():
    source = od.Pipeline(SCHEMA)
    behind, beside = source.branch(od.col("x") > 4)
    united = od.union(ordered(source=behind), beside)
    assert per_key(od.tumbling(6), source=united).plan.operators[-1].clock is None
    two = od.union(ordered(source=behind, name="r1"), ordered(source=beside, name="r2"))
    assert per_key(od.tumbling(6), source=two).plan.operators[-1].clock is None
    renamed = od.union(*(one.rename({"ts": "at"}) for one in ordered().branch(od.col("x") > 4)))
    assert per_key(od.tumbling(6), source=renamed, time="at").plan.operators[-1].clock is not None
    united = od.union(ordered(source=behind, slack=0), beside)
    data = disordered(jitter=1)
    assert graph({"w": windows(od.rolling(6), united), "b": beside}, data)["w"].num_rows > 50


def test_two_reorders_of_one_name_on_two_branches_have_a_clock_each():
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("x") > 4)
    ends = [
        per_key(kind, source=one.reorder("ts", slack=slack, late="drop"))
        for one, kind, slack in ((hit, od.tumbling(6), 3), (miss, od.tumbling(7), 30))
    ]
    assert ends[0].plan.operators[-2].name == ends[1].plan.operators[-2].name
    data = disordered()
    found = graph({"hit": ends[0], "miss": ends[1]}, data)
    for end, name in zip(ends, found, strict=True):
        assert found[name].equals(run_serial(end, data).table)


def test_timers_and_joins():
    data, source = disordered(), ordered(late="side_output")
    late = source.side_output()
    hit, miss = source.branch(od.col("x") > 4)
    joined = hit.join_interval(miss, on="k", within=(-3, 5), how="left", time="ts")
    outputs = {
        "timed": timed(source=source, every=4),
        "joined": joined,
        "asof": hit.join_asof(miss, on="k", time="ts", tolerance=9),
        "late": late,
    }
    found = graph(outputs, data)
    assert found["timed"].equals(run_serial(timed(source=ordered(), every=4), data).table)
    assert joined.plan.operators[-1].clock is not None
    assert min(table.num_rows for table in found.values()) > 3


def test_a_reorder_behind_another_and_behind_a_flush():
    data, source = disordered(), ordered(late="side_output")
    ends = windows(od.tumbling(5), source).with_columns(at=od.col("end") - od.col("n") * 3)
    behind = ends.reorder("at", slack=4, late="side_output", name="second")
    again = behind.key_by("k").window(od.tumbling(9), time="at").aggregate(n=od.count(), emit="both")
    outputs = {"again": again, "late": behind.side_output("second"), "first": source.side_output("front")}
    found = graph(outputs, data)
    line = windows(od.tumbling(5), ordered()).with_columns(at=od.col("end") - od.col("n") * 3)
    line = line.reorder("at", slack=4, late="drop").key_by("k").window(od.tumbling(9), time="at")
    assert found["again"].equals(run_serial(line.aggregate(n=od.count(), emit="both"), data).table)


def test_dead_letters_beside_a_reorder_that_cuts_their_unit():
    data = disordered()
    checked = od.Pipeline(SCHEMA).map(
        lambda row: (row.ts, row.k, 10 // (row.x % 4)), schema=SCHEMA, on_error="dead_letter", name="check"
    )
    behind = ordered(source=checked, late="side_output")
    outputs = {
        "w": windows(od.tumbling(6), behind),
        "late": behind.side_output("front"),
        "bad": checked.side_output("check"),
    }
    found = graph(outputs, data)
    assert found["bad"].num_rows == sum(x % 4 == 0 for x in data["x"].to_pylist())


def test_several_sources_and_a_reorder_on_one_of_them():
    sources = [od.Pipeline({"n": int, **{f.name: f.type for f in SCHEMA}}, source=name) for name in "ab"]
    a, b = disordered(), disordered(seed=2)
    data = {name: one.add_column(0, "n", [list(range(140))]) for name, one in (("a", a), ("b", b))}
    behind = sources[0].reorder("ts", slack=8, late="drop")
    outputs = {"w": windows(od.tumbling(6), behind), "both": od.union(behind, sources[1])}
    found = graph(outputs, data, merge_by="n")
    assert found["w"].equals(run_serial(windows(od.tumbling(6), ordered()), a).table)


@pytest.mark.parametrize("front", [True, False])
def test_failures_on_either_side(front):
    """A row that fails behind the reorder, or beside it, ends the run where the order says."""
    source, data = od.Pipeline(SCHEMA), disordered()
    for lane in ("behind", "beside"):
        for bad in (3, 5, 9):
            behind, beside = ordered(source=source), source
            if lane == "behind":
                behind = behind.with_columns(x=7 // (od.col("x") - bad))
            else:
                beside = beside.with_columns(x=7 // (od.col("x") - bad))
            ends = {"w": windows(od.tumbling(6), behind), "b": beside, "all": behind}
            outputs = ends if front else dict(reversed(ends.items()))
            expected = run_serial(source, data, outputs=outputs)
            assert isinstance(expected.error, OperatorError)
            for way in WAYS:
                found = {name: [] for name in outputs}
                with source.stream(data, outputs=outputs, tags=True, **way) as stream:
                    with pytest.raises(OperatorError) as caught:
                        drain(stream, found)
                    schemas = stream.schemas
                assert caught.value.serial == expected.error.serial
                assert caught.value.operator == expected.error.operator
                for name, table in expected.outputs.items():
                    assert exact_rows(found[name], schemas[name]) == exact_rows(
                        table.to_batches(), table.schema
                    ), (name, way, lane, bad)


def test_more_marks_than_an_operator_takes_at_a_time():
    """A chunk of 4,096 rows becomes 8,193 chunks, with as many pieces of the other lanes."""
    n = 6_000
    data = pa.table(
        [pa.array(range(n)), pa.array(["a", "b", "c"] * (n // 3)), pa.array([1] * n)], schema=SCHEMA
    )
    source = ordered(slack=1, late="side_output")
    ends = per_key(od.tumbling(1), source=source, s=od.sum("x"))
    outputs = {"w": ends, "late": source.side_output(), "beside": source.select("ts")}
    for workers in (0, 2):
        found = source.run(data, outputs=outputs, workers=workers, chunk_rows=4096)
        assert found["w"]["start"].to_pylist() == list(range(n))
        assert found["beside"]["ts"].to_pylist() == list(range(n))
        assert found["late"].num_rows == 0


def test_a_run_that_is_cut_in_the_middle_goes_on():
    data, source = disordered(), ordered(late="side_output")
    outputs = {"w": windows(od.tumbling(6), source), "late": source.side_output(), "t": timed(source=source)}
    whole = run_serial(source, data, outputs=outputs)
    for cut in (1, 37, 90):
        first = source.run(data.slice(0, cut), outputs=outputs, end="suspend", workers=2, chunk_rows=9)
        rest = source.run(data.slice(cut), outputs=outputs, restore=first.snapshot, workers=2, chunk_rows=5)
        for name, table in whole.outputs.items():
            joined = pa.concat_tables([first[name], rest[name]])
            assert joined.equals(table.drop_columns(["_serial", "_index"])), (name, cut)


def test_over_processes():
    """Behind the last union the marks go from node to node; in front, the graph runs in one node."""
    data = disordered()
    hit, miss = od.Pipeline(SCHEMA).branch(od.col("x") > 4)
    behind = windows(od.tumbling(6), ordered(source=od.union(hit, miss)))
    inside = windows(od.tumbling(6), od.union(*ordered().branch(od.col("x") > 4)))
    assert over_nodes(behind, data, least=3).rows
    with pytest.raises(od.PlanError, match="front has one state for all rows"):
        fragments_of(inside.plan)
    assert "front has one state for all rows" in inside.explain(processes=2)


@pytest.mark.parametrize(("wrong", "through"), [(1, (5, -1)), (9, (8, -1)), (4, (6, 0))])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in front of the window", "on another branch"])
def test_a_failing_row_among_marks_is_the_commit_point(wrong, through, elsewhere):
    """What a `reorder` gives for one chunk comes in pieces between its marks; behind a failure the last one,
    which says how far all of them are, is not written.
    """
    times = [1, 2, 3, 4, 5, 9, 9, 9, 20, 20] if wrong == 4 else [1, 1, 1, 1, 1, 9, 9, 9, 20, 20]
    data, front = pa.table({"a": times}), od.Pipeline(pa.schema([("a", pa.int64())]))
    front = front.reorder("a", slack=3, late="drop", name="front")
    failing = {"b": od.col("a") // (od.col("a") - wrong)}
    if elsewhere:
        rare, rest = front.branch(od.col("a") > 100)
        outputs = {"w": counted(rare), "rest": rest.with_columns(**failing).filter(od.col("b") == 77)}
    else:
        outputs = {"w": counted(front.with_columns(**failing))}
    expected = run_serial(front, data, outputs=outputs)
    for way in WAYS:
        stream = front.stream(data, outputs=outputs, **way)
        with pytest.raises(OperatorError) as error:
            drain(stream, {name: [] for name in outputs})
        assert error.value.serial == expected.error.serial
        assert stream.report.emitted_through == expected.emitted_through, way
    if not elsewhere:
        assert expected.emitted_through == OrderTag(*through)


def counted(source):
    return source.window(od.tumbling(2), time="a").aggregate(n=od.count())
