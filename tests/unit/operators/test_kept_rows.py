"""lag, lead, head, tail and deduplicate: their meaning on a few rows, and Polars' and DuckDB's answers on
many.
"""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from state_runs import Segment

import ordstream as od
from ordstream.testing import run_serial

FEW = pa.table({
    "k": ["a", "b", "a", "a", "b", None],
    "t": [0, 1, 5, 30, 31, 32],
    "s": ["one", None, "drei", "", "fünf", "six"],
    "l": pa.array([[1], [], None, [2, 3], [4], [5]], pa.list_(pa.int16())),
})  # fmt: skip


def checked(pipeline: od.Pipeline, data: pa.Table, **options) -> list[dict]:
    """The rows that every run gives, with their serials."""
    expected = run_serial(pipeline, data, punctuate=options.get("punctuate"))
    for workers, rows in ((0, 1), (1, 3), (2, 64)):
        found = pipeline.run(data, workers=workers, chunk_rows=rows, tags=True, **options).table
        assert found.drop(["_serial", "_index"]).equals(expected.table)
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
    return found.drop("_index").to_pylist()


def by(*key: str) -> od.Pipeline:
    return od.Pipeline(FEW.schema).key_by(*key)


def test_lag_of_any_type_and_of_any_row_before():
    rows = checked(by("k").lag({"s1": "s", "l1": "l", "t1": "t"}), FEW)
    assert [row["s1"] for row in rows] == [None, None, "one", "drei", None, None]
    assert [row["l1"] for row in rows] == [None, None, [1], None, [], None]
    rows = checked(by("k").lag({"s2": "s"}, 2), FEW)
    assert [row["s2"] for row in rows] == [None, None, None, "one", None, None]


def test_lead_gives_a_row_when_the_one_behind_it_comes():
    rows = checked(by("k").lead({"next": "s", "then": "t"}), FEW)
    assert [(row["k"], row["t"], row["next"], row["then"], row["_serial"]) for row in rows] == [
        ("a", 0, "drei", 5, 3),
        ("a", 5, "", 30, 4),
        ("b", 1, "fünf", 31, 5),
        (None, 32, None, None, 6),  # the rest at the end, by ascending key
        ("a", 30, None, None, 6),
        ("b", 31, None, None, 6),
    ]
    assert [row["then"] for row in checked(od.Pipeline(FEW.schema).lead({"then": "t"}, 4), FEW)] == [
        *(31, 32),
        *[None] * 4,
    ]


def test_the_first_and_the_last_rows():
    assert [row["t"] for row in checked(by("k").head(1), FEW)] == [0, 1, 32]
    assert [(row["t"], row["_serial"]) for row in checked(by("k").tail(2), FEW)] == [
        *((32, 6), (5, 6), (30, 6), (1, 6), (31, 6)),
    ]
    assert [row["t"] for row in checked(od.Pipeline(FEW.schema).head(2), FEW)] == [0, 1]
    assert [row["s"] for row in checked(od.Pipeline(FEW.schema).tail(2), FEW)] == ["fünf", "six"]


def test_duplicates_are_those_within_a_span_of_the_first():
    data = pa.table({"k": [1] * 6 + [2], "t": [0, 10, 11, 21, 22, 40, 41], "v": list("abcdefg")})
    one = od.Pipeline(data.schema)
    first = checked(one.deduplicate("k", 10, time="t"), data)
    assert "".join(row["v"] for row in first) == "acefg"
    last = checked(one.deduplicate("k", 10, "last", time="t"), data)
    assert [(row["v"], row["_serial"]) for row in last] == [("b", 3), ("d", 5), ("e", 6), ("f", 7), ("g", 7)]
    assert "".join(row["v"] for row in checked(one.deduplicate("k"), data)) == "ag"
    ends = checked(one.deduplicate("k", keep="last"), data)
    assert [(row["v"], row["_serial"]) for row in ends] == [("f", 7), ("g", 7)]


def test_a_time_punctuation_settles_what_no_row_can_change():
    data = pa.table({"k": [2, 1, 3, 3], "t": [0, 0, 30, 60], "v": list("abcd")})
    pipeline = od.Pipeline(data.schema).deduplicate("k", 10, "last", time="t")
    rows = checked(pipeline, data, punctuate=od.every("t", 20))
    assert [(row["v"], row["_serial"]) for row in rows] == [("b", 3), ("a", 3), ("c", 4), ("d", 4)]
    forgets = od.Pipeline(data.schema).deduplicate("k", 10, time="t")
    with forgets.stream(data, punctuate=od.every("t", 20), end="suspend") as stream:
        list(stream)
    assert stream.snapshot is not None
    checked(forgets, data, punctuate=od.every("t", 20))


def test_the_clock_settles_spans_at_the_multiples_of_their_length():
    """Of the span from 0 the mark 40 is the first multiple of 15 behind 15; punctuate= shows its own."""
    data = pa.table({"k": [2, 1, 3, 3, 3], "t": [0, 0, 20, 40, 60], "v": list("abcde")})
    pipeline = od.Pipeline(data.schema).deduplicate("k", 15, "last", time="t")
    rows = checked(pipeline, data)
    assert [(row["v"], row["_serial"]) for row in rows] == [
        ("b", 4), ("a", 4), ("c", 4), ("d", 5), ("e", 5)
    ]  # fmt: skip
    rows = checked(pipeline, data, punctuate=od.every("t", 20))
    assert [(row["v"], row["_serial"]) for row in rows][:2] == [("b", 3), ("a", 3)]
    assert "spans end by the clock, at multiples of 15" in pipeline.explain()
    starts = od.Pipeline(data.schema).key_by("k").window(od.tumbling(4), time="t").aggregate(v=od.first("v"))
    beside = od.union(pipeline, starts.select("k", "v", t="start").select("k", "t", "v"))
    rows = checked(beside, data)  # marks at every number, of which spans see those that they saw alone
    assert [(row["v"], row["_serial"]) for row in rows] == [
        *[("b", 3), ("a", 3), ("b", 4), ("a", 4), ("c", 4), ("c", 4)],
        *[("d", 5), ("d", 5), ("e", 5), ("e", 5)],
    ]


def kept_keys(pipeline: od.Pipeline, data: pa.Table, name: str, **options) -> int:
    """How many keys an operator knows when the stream is suspended."""
    with pipeline.stream(data, end="suspend", **options) as stream:
        list(stream)
    assert stream.snapshot is not None
    return stream.snapshot.states[name].num_rows


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("processes", [None, 2])
def test_keys_that_never_come_again_are_forgotten_by_the_clock(keep, processes):
    data = pa.table({"k": range(1000), "t": range(1000)})
    made = od.Pipeline(data.schema).deduplicate("k", 10, keep, time="t", name="once")
    assert kept_keys(made, data, "once", processes=processes) <= 21
    nothing = od.Pipeline(data.schema).deduplicate("k", keep="first", name="once")
    assert kept_keys(nothing, data, "once") == 1000


def test_it_goes_without_the_clock_that_a_window_wants():
    data = pa.table({"k": [1, 2, 1, 2], "t": [0, 1, 30, 60], "u": [9, 3, 20, 90]})
    once = od.Pipeline(data.schema).deduplicate("k", 5, time="u")  # u does not ascend
    behind = once.key_by("k").window(od.tumbling(10), time="t").aggregate(n=od.count())
    assert behind.plan.operators[-1].clock_wanted() == (1, 10)
    assert [row["start"] for row in checked(behind, data)] == [0, 0, 30, 60]
    assert "'u' is not the clock" in behind.explain()
    with pytest.raises(od.SourceError, match="deduplicate"):
        once.run(data)
    with pytest.raises(od.SourceError, match="punctuate"):
        once.run(data, punctuate=od.every("u", 7))


def test_the_clock_behind_a_reorder():
    data = pa.table({"k": [1, 2, 3, 4, 5], "t": [3, 0, 9, 30, 70]})
    made = od.Pipeline(data.schema).reorder("t", slack=5).deduplicate("k", 10, "last", time="t")
    found = [(row["k"], row["_serial"]) for row in checked(made, data)]
    assert found == [(2, 4), (1, 4), (3, 4), (4, 5), (5, 5)]
    assert "the clock that leaves 'reorder_1'" in made.explain()


@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_span_goes_on_behind_a_snapshot(keep):
    data = pa.table({"k": [1] * 4, "t": [0, 10, 11, 22], "v": list("abcd")})
    made = od.Pipeline(data.schema).deduplicate("k", 10, keep, time="t")
    before = made.run(data.slice(0, 2), end="suspend")
    behind = made.run(data.slice(2), restore=before.snapshot)
    assert pa.concat_tables([before.table, behind.table]).equals(made.run(data).table)


def test_a_timedelta_is_a_span():
    times = pa.array([0, 599, 601, 1201], pa.timestamp("s"))
    data = pa.table({"k": [1] * 4, "t": times})
    made = od.Pipeline(data.schema).deduplicate("k", datetime.timedelta(minutes=10), time="t")
    assert [row["_serial"] for row in checked(made, data)] == [1, 3]


def test_times_that_run_backwards_or_are_null_are_errors_at_their_rows():
    data = pa.table({"k": [1, 1, 1], "t": pa.array([5, None, 4])})
    for keep in ("first", "last"):
        made = od.Pipeline(data.schema).deduplicate("k", 9, keep, time="t", name="once")
        with pytest.raises(od.OperatorError, match="serial 2"):
            made.run(data)
        skipped = od.Pipeline(data.schema).deduplicate("k", 9, keep, time="t", on_error="skip")
        with pytest.raises(od.SourceError, match="tuple 3 of the source"):
            skipped.run(data)
        made = od.Pipeline(data.schema).map(lambda row: row, schema=data.schema)  # its time is no clock
        assert len(checked(made.deduplicate("k", 9, keep, time="t", on_error="skip"), data)) == 1


def test_mistakes():
    empty = od.Pipeline(FEW.schema)
    for make, text in (
        (lambda: empty.deduplicate("k", keep="any"), "keep must be 'first' or 'last'"),
        (lambda: empty.deduplicate("k", 3), "time and within go together"),
        (lambda: empty.deduplicate("k", -1, time="t"), "at least 0"),
        (lambda: empty.deduplicate("l"), "deduplicate_1: column 'l': list<item: int16> can't be a key"),
        (
            lambda: empty.deduplicate(),
            "without by= all columns are compared: column 'l': list<item: int16> can't",
        ),
        (lambda: empty.deduplicate(5), "deduplicate_1: column names are needed, got 5"),
        (lambda: empty.deduplicate([5]), "deduplicate_1: a column name is needed, got 5"),
        (lambda: empty.cum_sum(None), "cum_sum_1: a column name is needed, got None"),
        (lambda: empty.head(0), "n must be an int of at least 1"),
        (lambda: empty.lead({"t": "s"}), "duplicate column name"),
        (lambda: empty.lead(3), "columns must be a column, a list of columns, or a mapping"),
        (lambda: empty.lag({"x": "s"}, 0), "n must be an int of at least 1"),
        (lambda: empty.diff("s"), "must be a number, date or time"),
    ):
        with pytest.raises(od.OrdstreamError, match=text):
            make()


@pytest.fixture(scope="module")
def many() -> pa.Table:
    rng = np.random.default_rng(3)
    n = 20_000
    return pa.table({
        "row": np.arange(n),
        "k": rng.integers(0, 700, n),
        "x": rng.integers(-50, 50, n),
        "y": rng.normal(size=n),
        "s": pa.array([None if i % 9 == 0 else f"text {i}" * (i % 4) for i in range(n)]),
    })  # fmt: skip


K = pl.col("k")
JOBS = {
    "lag": (
        lambda p: p.key_by("k").lag({"a": "s", "b": "x"}, 3),
        lambda f: f.with_columns(
            pl.col("s").shift(3).over("k").alias("a"), pl.col("x").shift(3).over("k").alias("b")
        ),
    ),
    "lead": (
        lambda p: p.key_by("k").lead({"a": "s"}, 2),
        lambda f: f.with_columns(pl.col("s").shift(-2).over("k").alias("a")),
    ),
    "head": (lambda p: p.key_by("k").head(3), lambda f: f.filter(pl.row_index().over("k") < 3)),
    "tail": (
        lambda p: p.key_by("k").tail(3),
        lambda f: f.group_by("k").tail(3).select("row", "k", "x", "y", "s"),
    ),
    "first": (
        lambda p: p.deduplicate(["k", "x"]),
        lambda f: f.unique(["k", "x"], keep="first", maintain_order=True),
    ),
    "last": (
        lambda p: p.deduplicate(["k", "x"], keep="last"),
        lambda f: f.unique(["k", "x"], keep="last"),
    ),
    "cum_sum": (
        lambda p: p.key_by("k").cum_sum("x", "a"),
        lambda f: f.with_columns(pl.col("x").cum_sum().over("k").alias("a")),
    ),
    "cum_count": (
        lambda p: p.key_by("k").cum_count("a"),
        lambda f: f.with_columns((pl.row_index().over("k") + 1).cast(pl.Int64).alias("a")),
    ),
    "cum_min": (
        lambda p: p.key_by("k").cum_min("x", "a"),
        lambda f: f.with_columns(pl.col("x").cum_min().over("k").alias("a")),
    ),
    "cum_max": (
        lambda p: p.key_by("k").cum_max("y", "a"),
        lambda f: f.with_columns(pl.col("y").cum_max().over("k").alias("a")),
    ),
    "diff": (
        lambda p: p.key_by("k").diff("x", "a", n=2),
        lambda f: f.with_columns(pl.col("x").diff(2).over("k").alias("a")),
    ),
}


@pytest.mark.parametrize("job", JOBS)
def test_the_answer_is_polars(job, many):
    ours, theirs = JOBS[job]
    found = ours(od.Pipeline(many.schema)).run(many).table
    wanted = theirs(pl.from_arrow(many)).to_arrow().cast(found.schema)
    if job in ("lead", "tail", "last"):  # ours come when they are settled
        found, wanted = found.sort_by("row"), wanted.sort_by("row")
    assert found.equals(wanted)


def test_the_running_mean_is_duckdbs(many):
    found = od.Pipeline(many.schema).key_by("k").cum_mean("x", "a").run(many).table["a"]
    wanted = duckdb.sql(
        "select avg(x) over (partition by k order by row rows unbounded preceding) a from many order by row"
    ).arrow()
    assert np.allclose(found.to_numpy(), pa.table(wanted)["a"].to_numpy(), rtol=1e-12)


def test_bytes_of_rows_that_others_replace_are_given_back():
    data = {"k": [0] * 100, "s": ["x" * (10 if i % 2 else 3_000) for i in range(100)]}
    pipeline = od.Pipeline({"k": int, "s": str}).key_by("k").tail(3, name="last")
    held = []
    with Segment(pipeline, workers=0) as segment:
        for _ in range(3):
            segment.push(pa.table(data))
            held.append(segment.bytes("last"))
    assert max(held) < 20_000  # three rows and what their blocks are too large
