"""Aggregations of expressions: the expressions are columns that nobody else sees, in every way to run."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema(
    [("ts", pa.int64()), ("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())]
)
N = 400
TABLE = pa.table(
    [
        [n // 2 for n in range(N)],
        [n * n % 7 for n in range(N)],
        [None if n % 11 == 0 else n % 13 - 6 for n in range(N)],
        [None if n % 17 == 0 else (n % 5) / 2 for n in range(N)],
        [None if n % 19 == 0 else "x" * (n % 4) for n in range(N)],
    ],
    schema=SCHEMA,
)
A, B = od.col("a"), od.col("b")
TOTALS = {
    "total": od.sum(A * 2),
    "plain": od.sum("a"),
    "longest": od.max(od.col("s").str.length()),
    "most": od.arg_max("s", by=A - od.col("ts"), where=A > 0),
    "computed": od.arg_min(B * 2, A % 4),
    "again": od.mean(A * 2, where=B > 1),
    "n": od.count(B + 1),
    "named": od.sum(A),
}
LISTS = {"last": od.collect(A + 1, 3), "middle": od.median(B * B), "first": od.first(od.col("s") + "!")}
EVERY = TOTALS | LISTS


def keyed(buckets=None):
    return od.Pipeline(SCHEMA).key_by("k", buckets=buckets)


def union(start):
    few, many = od.Pipeline(SCHEMA).branch(A > 0)
    many = many.key_by("k").scan(r=od.sum(A * 3)).select(*SCHEMA.names)
    return od.union(few, many).key_by("k").scan(**TOTALS)


WAYS = {
    "scan": lambda start: start.scan(**EVERY),
    "aggregate": lambda start: start.aggregate(**EVERY),
    "final": lambda start: start.aggregate(**EVERY, emit="final"),
    "tumbling": lambda start: start.window(od.tumbling(20), time="ts").aggregate(**EVERY),
    "hopping": lambda start: start.window(od.hopping(20, every=5), time="ts").aggregate(
        **EVERY, emit="both"
    ),
    "rolling": lambda start: start.window(od.rolling(15), time="ts").aggregate(**EVERY),
    "rows": lambda start: start.window(od.rows(4)).aggregate(**EVERY),
    "session": lambda start: start.window(od.session(3), time="ts").aggregate(**EVERY),
    "cum_sum": lambda start: start.cum_sum(A * 2, "total"),
    "positional": lambda start: start.scan(od.sum(A * 2).alias("sum of a * 2"), n=od.count()),
}
KEYED = {
    "sessionize": lambda start: start.sessionize(
        "ts", 3, ["ts"], aggregate={"x": od.sum(A * 2), "n": od.count()}
    ),
    "union": union,
}
NO_KEY = {f"{name}, no key": lambda _, make=make: make(od.Pipeline(SCHEMA)) for name, make in WAYS.items()}
ALL = WAYS | KEYED | NO_KEY


@pytest.mark.parametrize("way", ALL)
@pytest.mark.thin(11)
def test_every_way_to_run_gives_what_run_serial_gives(way):
    expected = run_serial(ALL[way](keyed()), TABLE)
    assert expected.error is None
    assert len(expected.rows) > 0
    shapes = itertools.product((0, 1, 2), (1, 7, "auto"), (None, 1, 5))
    for workers, rows, buckets in shapes:
        found = ALL[way](keyed(buckets)).run(TABLE, workers=workers, chunk_rows=rows)
        assert found.table.equals(expected.table), (workers, rows, buckets)


@pytest.mark.parametrize("way", [*WAYS, "sessionize"])
def test_it_is_what_columns_in_front_would_give(way):
    """The output's columns, too."""
    in_front = od.Pipeline(SCHEMA).with_columns(
        a2=A * 2, length=od.col("s").str.length(), by=A - od.col("ts"), b2=B * 2, a4=A % 4, b1=B + 1,
        a1=A + 1, bb=B * B, s1=od.col("s") + "!",
    )  # fmt: skip
    over = {
        "total": od.sum("a2"), "plain": od.sum("a"), "longest": od.max("length"),
        "most": od.arg_max("s", by="by", where=A > 0), "computed": od.arg_min("b2", "a4"),
        "again": od.mean("a2", where=B > 1), "n": od.count("b1"), "named": od.sum("a"),
        "last": od.collect("a1", 3), "middle": od.median("bb"), "first": od.first("s1"),
    }  # fmt: skip
    ways = {
        "scan": lambda p: p.scan(**over),
        "aggregate": lambda p: p.aggregate(**over),
        "final": lambda p: p.aggregate(**over, emit="final"),
        "tumbling": lambda p: p.window(od.tumbling(20), time="ts").aggregate(**over),
        "hopping": lambda p: p.window(od.hopping(20, every=5), time="ts").aggregate(**over, emit="both"),
        "rolling": lambda p: p.window(od.rolling(15), time="ts").aggregate(**over),
        "rows": lambda p: p.window(od.rows(4)).aggregate(**over),
        "session": lambda p: p.window(od.session(3), time="ts").aggregate(**over),
        "cum_sum": lambda p: p.cum_sum("a2", "total"),
        "positional": lambda p: p.scan(od.sum("a2").alias("sum of a * 2"), n=od.count()),
        "sessionize": lambda p: p.sessionize(
            "ts", 3, ["ts"], aggregate={"x": od.sum("a2"), "n": od.count()}
        ),
    }
    expected = run_serial(ways[way](in_front.key_by("k")), TABLE).table
    made = {"a2", "length", "by", "b2", "a4", "b1", "a1", "bb", "s1"}
    expected = expected.select([name for name in expected.column_names if name not in made])
    assert run_serial(ALL[way](keyed()), TABLE).table.equals(expected)


def test_equal_expressions_are_one_column_and_others_are_not():
    pipeline = keyed().scan(x=od.sum(A * 2), y=od.max(A * 2), z=od.sum(A * od.lit(2.0)), w=od.sum(A * 2.0))
    front = pipeline.plan.operators[0]
    assert front.output.names[len(SCHEMA) :] == ["(a * 2)", "(a * 2.0)"]


def test_a_name_that_is_taken_gets_another():
    schema = SCHEMA.append(pa.field("(a * 2)", pa.int64()))
    pipeline = od.Pipeline(schema).scan(od.sum(A * 2).alias("(a * 2)_"))
    table = TABLE.append_column("(a * 2)", TABLE["a"])
    expected = [*schema.names, "(a * 2)_"]
    assert pipeline.schema.names == run_serial(pipeline, table).table.column_names == expected
    assert pipeline.run(table).table.equals(run_serial(pipeline, table).table)


def test_explain_shows_the_expression_and_without_one_nothing_changes():
    text = keyed().scan(x=od.sum(A * 2, where=B > 1)).explain()
    assert "scan_1: scan by k: sum((a * 2) where (b > 1))" in text
    for pipeline, names in (
        (keyed().scan(x=od.sum("a"), y=od.arg_max("s", by=A)), ["scan_1"]),
        (keyed().scan(x=od.sum(-A)), ["scan_1: computed", "scan_1", "scan_1: shown"]),
        (keyed().aggregate(x=od.sum(-A), name="t"), ["t: computed", "t"]),
    ):
        assert [operator.name for operator in pipeline.plan.operators] == names


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: p.scan(x=od.sum(od.col("q") * 2)), "unknown column 'q' in scan_1"),
        (lambda p: p.scan(x=od.sum(od.col("s") * 2), name="t"), "^t: "),
        (lambda p: p.scan(x=od.sum(A > 1)), r"^scan_1: sum\(\(a > 1\)\).*od\.count\(where="),
        (lambda p: p.scan(a=od.sum(A * 2)), "scan_1: duplicate column name.* 'a'"),
        (lambda p: p.scan(x=od.var(od.lit(1).cast(pa.decimal128(5, 1)))), "cast the expression"),
    ],
)
def test_mistakes_are_told_of_the_operator(make, text):
    with pytest.raises(od.SchemaError, match=text):
        make(keyed())


def test_on_error_is_the_expressions_too():
    table = pa.table({"k": [1, 1, 2, 1], "a": [6, 1, 4, 9], "b": [2, 0, 2, 3]})
    pipeline = od.Pipeline(table.schema).key_by("k")
    with pytest.raises(od.OperatorError, match="'quotients: computed' failed at serial 2: ZeroDivision"):
        pipeline.scan(x=od.sum(A // B), name="quotients").run(table)
    skips = pipeline.scan(x=od.sum(A // B), name="quotients", on_error="skip")
    for result in (skips.run(table), run_serial(skips, table)):
        assert result.table["x"].to_pylist() == [3, 2, 6]
    with pytest.raises(od.PlanError, match=r"^quotients: on_error='dead_letter'"):
        pipeline.scan(x=od.sum(A // B), name="quotients", on_error="dead_letter")


@pytest.mark.parametrize("way", ["scan", "aggregate", "tumbling", "hopping", "rolling", "rows", "session"])
def test_a_stream_goes_on_from_its_state(way):
    pipeline = WAYS[way](keyed())
    first = pipeline.run(TABLE.slice(0, 150), workers=0, end="suspend")
    rest = pipeline.run(TABLE.slice(150), workers=2, chunk_rows=7, restore=first.snapshot)
    assert pa.concat_tables([first.table, rest.table]).equals(run_serial(pipeline, TABLE).table)


def test_the_state_of_another_expression_is_refused_with_both():
    snapshot = keyed().scan(x=od.sum(A * 2)).run(TABLE, end="suspend").snapshot
    with pytest.raises(od.CheckpointError, match=r"(?s)sum\(\(a \* 2\): int64\).*sum\(\(a \* 3\): int64\)"):
        keyed().scan(x=od.sum(A * 3)).run(TABLE, restore=snapshot)
    more = keyed().scan(x=od.sum(A * 2), y=od.count()).run(TABLE.slice(0, 5), restore=snapshot)
    assert more.table["y"][0].as_py() == 1


@pytest.mark.parametrize("way", ["scan", "final", "tumbling", "rows", "sessionize", "union"])
def test_processes_give_the_same(way):
    pipeline = ALL[way](keyed())
    assert pipeline.run(TABLE, processes=2).table.equals(run_serial(pipeline, TABLE).table)


def test_tables_that_are_looked_up_are_told_apart():
    """Two of them in one operator were a ValueError of NumPy's."""
    table = pa.table({"k": [0, 1, 2, 1]})
    key, prices, more = od.col("k"), np.array([1.5, 2.5, 4.0]), np.array([10, 20, 30])
    pipeline = od.Pipeline(table.schema).aggregate(
        a=od.sum(key.lookup(prices)), b=od.max(key.lookup(prices.copy())), c=od.sum(key.lookup(more)),
        d=od.min(key.lookup(more * 2)), emit="final",
    )  # fmt: skip
    expected = run_serial(pipeline, table).table
    assert expected.to_pylist() == [{"a": 10.5, "b": 4.0, "c": 80, "d": 20}]
    assert pipeline.run(table, workers=2, chunk_rows=1).table.equals(expected)


def test_a_constant_that_is_no_number_is_one_column():
    """NaN does not equal itself: the column was computed under one name, and looked for under another."""
    table = pa.table({"k": [0, 1, 2, 1]})
    nan, other = od.lit(float("nan")), od.col("k") * float("nan")
    pipeline = od.Pipeline(table.schema).aggregate(
        a=od.max(nan), b=od.min(other), c=od.max(od.lit(float("nan"))), n=od.count(), emit="final"
    )
    expected = run_serial(pipeline, table).table
    assert repr(expected.to_pylist()) == "[{'a': nan, 'b': nan, 'c': nan, 'n': 4}]"
    assert repr(pipeline.run(table).table.to_pylist()) == repr(expected.to_pylist())
