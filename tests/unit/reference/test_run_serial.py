"""The sequential reference, operator by operator, on inputs small enough to check by hand."""

import datetime as dt
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.reference.run_serial import run_serial

I = pa.int64()  # noqa: E741
NAN = math.nan


def table(**columns):
    return pa.table({name: c if isinstance(c, pa.Array) else pa.array(c) for name, c in columns.items()})


def serial(build, data, **options):
    return run_serial(build(od.Pipeline(data.schema)), data, **options)


def rows(build, data, **options):
    result = serial(build, data, **options)
    assert result.error is None, result.error
    columns = {name: [row[i] for row in result.rows] for i, name in enumerate(result.schema.names)}
    assert repr(result.table.to_pydict()) == repr(columns)  # repr: NaN must equal NaN
    assert result.tags == sorted(result.tags)
    assert len(result.tags) == len(result.rows)
    return result.rows


# ---------------------------------------------------------------------------------------- sessions

CLICKS = [
    *(1000000, 1000000, 1000001, 1000002, 1000010),
    *(1003800, 1003900, 1003900, 1003901, 1003902),
    1009999,
]


def sessions_of(times, timeout=3600, **options):
    data = table(user=[11] * len(times), ts=times, item=list(range(len(times))))
    return rows(lambda p: p.key_by("user").sessionize("ts", timeout, {"items": "item"}), data, **options)


def test_micro_fixture_three_sessions():
    assert sessions_of(CLICKS) == [
        (11, 1000000, 1000010, 5, [0, 1, 2, 3, 4]),
        (11, 1003800, 1003902, 5, [5, 6, 7, 8, 9]),
        (11, 1009999, 1009999, 1, [10]),
    ]


def test_micro_fixture_exact_gap_does_not_split():
    assert len(sessions_of([0, 3600, 7200])) == 1
    assert len(sessions_of([0, 3601])) == 2


def test_sessions_are_emitted_at_the_next_click_and_at_the_end_by_key():
    data = table(user=pa.array([2, 1, None, 2, 1], I), ts=[0, 0, 0, 100, 5])
    result = serial(lambda p: p.key_by("user").sessionize("ts", 10), data)
    assert result.rows == [(2, 0, 0, 1), (None, 0, 0, 1), (1, 0, 5, 2), (2, 100, 100, 1)]
    assert result.tags == [(4, 0), (5, 0), (5, 1), (5, 2)]


def test_sessions_on_timestamps():
    start = dt.datetime(2020, 1, 1)
    times = [start, start + dt.timedelta(hours=1), start + dt.timedelta(hours=2, seconds=1)]
    data = table(user=[1, 1, 1], ts=pa.array(times, pa.timestamp("ms")))
    out = rows(lambda p: p.key_by("user").sessionize("ts", dt.timedelta(hours=1), ["ts"]), data)
    assert out == [(1, times[0], times[1], 2, times[:2]), (1, times[2], times[2], 1, times[2:])]


def test_null_times_and_collected_nulls_are_errors():
    data = table(user=[1, 1], ts=pa.array([0, None], I), item=pa.array([None, 1], I))
    late = serial(lambda p: p.key_by("user").sessionize("ts", 1), data)
    assert (late.error.operator, late.error.serial) == ("sessionize_1", 2)
    assert "'ts' is null" in str(late.error)
    early = serial(lambda p: p.key_by("user").sessionize("ts", 1, ["item"]), data)
    assert early.error.serial == 1
    assert early.error.row == {"user": 1, "ts": 0, "item": None}


# ---------------------------------------------------------------------------------------- punctuation


def test_time_punctuation_closes_sessions_by_end_then_key():
    data = table(user=[3, 1, 2, 9, 9], ts=[0, 0, 1, 50, 99])
    result = serial(lambda p: p.key_by("user").sessionize("ts", 10), data, punctuate=od.every("ts", 20))
    # before serial 4 comes the punctuation 40, before serial 5 comes 80: what they cause has their tags
    assert result.rows == [(1, 0, 0, 1), (3, 0, 0, 1), (2, 1, 1, 1), (9, 50, 50, 1), (9, 99, 99, 1)]
    assert result.tags == [(4, 0), (4, 1), (4, 2), (5, 0), (5, 1)]


def test_on_time_runs_by_key_and_its_outputs_flow_downstream():
    def step(row, state, emit):
        state.n += 1

    def tick(key, state, time, emit):
        emit(key, time, state.n)

    data = table(k=["b", "a", "b", "a"], ts=pa.array([1, None, 12, 3], I))
    schema = {"k": str, "time": int, "n": int}
    result = serial(
        lambda p: p.key_by("k").process(step, state={"n": int}, schema=schema, on_time=tick).count("seen"),
        data,
        punctuate=od.every("ts", 5),
    )
    assert result.rows == [(1,), (2,)]
    assert result.tags == [(3, 0), (3, 1)]


def test_count_updates_and_final():
    data = table(k=["b", None, "b", "a"])
    assert rows(lambda p: p.key_by("k").count(), data) == [("b", 1), (None, 1), ("b", 2), ("a", 1)]
    final = serial(lambda p: p.key_by("k").count("n", emit="final"), data)
    assert final.rows == [(None, 1), ("a", 1), ("b", 2)]
    assert final.tags == [(4, 0), (4, 1), (4, 2)]
    assert rows(lambda p: p.count(), data) == [(1,), (2,), (3,), (4,)]
    assert rows(lambda p: p.count(emit="final"), data) == [(4,)]
    assert rows(lambda p: p.count(emit="final"), data.slice(0, 0)) == []


def test_keys_compare_as_arrow_sorts():
    data = table(k=[NAN, 0.0, None, -0.0, NAN, -1.0, math.inf])
    out = rows(lambda p: p.key_by("k").count(emit="final"), data)
    assert [n for _, n in out] == [1, 1, 2, 1, 2]
    assert out[0][0] is None
    assert math.isnan(out[-1][0])
    text = table(k=["é", "z", "", "Z", "\U0001f600", "\uffff"])
    assert [k for k, _ in rows(lambda p: p.key_by("k").count(emit="final"), text)] == [
        *("", "Z", "z", "é", "\uffff", "\U0001f600")
    ]


def test_scan():
    data = table(k=[1, 2, 1, 1], x=pa.array([5, None, None, 7], I), y=[0.5, NAN, NAN, 0.25])
    aggregates = {"total": od.sum("x"), "n": od.count(), "seen": od.count("x"), "mean": od.mean("x")}
    out = rows(lambda p: p.key_by("k").scan(**aggregates), data)
    assert [r[3:] for r in out] == [(5, 1, 1, 5.0), (0, 1, 0, None), (5, 2, 1, 5.0), (12, 3, 2, 6.0)]
    out = rows(
        lambda p: p.scan(first=od.first("x"), last=od.last("x"), lo=od.min("y"), hi=od.max("y")), data
    )
    assert [r[3:] for r in out] == [(5, 5, 0.5, 0.5), (5, 5, 0.5, 0.5), (5, 5, 0.5, 0.5), (5, 7, 0.25, 0.5)]
    alone = rows(lambda p: p.scan(lo=od.min("y")), data.slice(1, 3))
    assert math.isnan(alone[0][3])
    assert alone[2][3] == 0.25


def test_scan_overflow_is_an_error_and_leaves_the_state():
    data = table(k=[1, 1, 1], x=[2**63 - 1, 1, -1])
    failed = serial(lambda p: p.key_by("k").scan(n=od.count(), total=od.sum("x")), data)
    assert failed.rows == [(1, 2**63 - 1, 1, 2**63 - 1)]
    assert isinstance(failed.error.__cause__, OverflowError)
    assert failed.error.row == {"k": 1, "x": 1}
    skipped = serial(lambda p: p.key_by("k").scan(n=od.count(), total=od.sum("x"), on_error="skip"), data)
    assert skipped.rows[1] == (1, -1, 2, 2**63 - 2)
    assert skipped.skipped == [("scan_1", 2)]


def test_top_k():
    data = table(k=["b", "a", "c", "b", "d"], n=[2.0, 5.0, NAN, 5.0, -1.0])
    assert rows(lambda p: p.top_k(3, by="n"), data) == [("a", 5.0), ("b", 5.0), ("d", -1.0)]
    assert [k for k, _ in rows(lambda p: p.top_k(9, by="n"), data)] == ["a", "b", "d", "c"]
    assert rows(lambda p: p.top_k(3, by="n"), data.slice(0, 0)) == []
    empty = serial(lambda p: p.top_k(1, by="n"), table(k=[1], n=pa.array([None], I)))
    assert empty.error.serial == 1


def test_pairs_and_explode():
    lists = pa.array([[3, 1, None, 3], None, [], [7], [2, 1]], pa.list_(I))
    data = table(id=[10, 11, 12, 13, 14], tags=lists)
    out = rows(lambda p: p.flat_map(od.pairs("tags", carry=["id"])), data)
    assert out == [(10, 1, 3), (14, 1, 2)]
    out = serial(lambda p: p.flat_map(od.explode("tags")), data)
    assert out.rows == [(3,), (1,), (None,), (3,), (7,), (2,), (1,)]
    assert out.tags == [(1, 0), (1, 1), (1, 2), (1, 3), (4, 0), (5, 0), (5, 1)]
    floats = table(x=pa.array([[NAN, 0.0, -0.0, NAN, -1.0]], pa.list_(pa.float64())))
    out = rows(lambda p: p.flat_map(od.pairs("x")), floats)
    assert [(a, math.isnan(b)) for a, b in out] == [(-1.0, False), (-1.0, True), (0.0, True)]


def test_chain_flushes_in_order():
    data = table(user=[1, 2, 1, 2], ts=[0, 0, 1, 1], item=[5, 5, 6, 6])
    result = serial(
        lambda p: (
            p.key_by("user")
            .sessionize("ts", 10, {"items": "item"})
            .flat_map(od.pairs("items"))
            .key_by("left", "right")
            .count()
            .top_k(30, by="count")
        ),
        data,
    )
    assert result.rows == [(5, 6, 2)]
    assert result.tags == [(4, 0)]


# ---------------------------------------------------------------------------------------- user functions


def test_process_declared_state():
    def step(row, state, emit):
        state.n += 1
        state.total += row.x
        if state.n % 2 == 0:
            emit(row.k, state.total / state.n)

    data = table(k=["a", "b", "a", "b"], x=[1.0, 2.0, 3.0, 4.0])
    declared = {"n": pa.int32(), "total": float}
    for compiled in (False, True):
        out = rows(
            lambda p, compiled=compiled: p.key_by("k").process(
                step, state=declared, schema={"k": str, "mean": float}, compiled=compiled
            ),
            data,
        )
        assert out == [("a", 2.0), ("b", 3.0)]


def test_declared_state_starts_as_zero_and_is_checked():
    kinds = {"i": pa.int8(), "f": float, "b": bool, "s": str, "y": bytes, "t": pa.timestamp("s")}
    seen = []

    def step(row, state, emit):
        seen.append([getattr(state, name) for name in kinds])
        setattr(state, row.field, 300 if row.field == "i" else None)

    back = r"its zero, datetime.datetime(1970, 1, 1, 0, 0), takes a timer back"
    wrong = [("i", "out of range"), ("f", "can't be None; use a flag"), ("t", back), ("z", "no field 'z'")]
    for field, words in wrong:
        data = table(field=[field])
        failed = serial(lambda p: p.process(step, state=kinds, schema={"a": int}), data)
        assert words in str(failed.error)
    assert seen[0] == [0, 0.0, False, "", b"", dt.datetime(1970, 1, 1)]


def test_undeclared_and_codec_state_and_flush():
    def step(row, state, emit):
        state.append(row.x)

    def flush(key, state, emit):
        emit(key, len(state))

    data = table(k=pa.array([2, None, 1, 2], I), x=[1, 2, 3, 4])
    codec = od.codec(lambda s: bytes(s), lambda b: list(b), list)
    for options in ({"init": list}, {"state": codec}):
        result = serial(
            lambda p, options=options: p.key_by("k").process(
                step, schema={"k": int, "n": int}, on_flush=flush, **options
            ),
            data,
        )
        assert result.rows == [(None, 1), (1, 1), (2, 2)]
        assert result.tags == [(4, 0), (4, 1), (4, 2)]
    two = serial(
        lambda p: p.key_by("k", "x").process(
            step, init=list, schema={"k": str}, on_flush=lambda key, state, emit: emit(repr(key))
        ),
        data,
    )
    assert two.rows[0] == ("(None, 2)",)
    whole = serial(
        lambda p: p.process(step, init=list, schema={"k": str}, on_flush=lambda k, s, emit: emit(repr(k))),
        data,
    )
    assert whole.rows == [("()",)]


@pytest.mark.parametrize("kind", ["declared", "undeclared", "codec"])
def test_a_skipped_tuple_leaves_no_trace(kind):
    class Box:
        def __init__(self, n=0):
            self.n = n

    codec = od.codec(lambda s: s.n.to_bytes(4), lambda b: Box(int.from_bytes(b)), Box)
    options = {"declared": {"state": {"n": int}}, "undeclared": {"init": Box}, "codec": {"state": codec}}[
        kind
    ]

    def step(row, state, emit):
        state.n += 1
        emit(state.n)
        if row.x < 0:
            raise ValueError("negative")

    result = serial(
        lambda p: p.key_by("k").process(
            step, schema={"n": int}, on_error="skip", on_flush=lambda key, s, emit: emit(s.n), **options
        ),
        table(k=[1, 1, 1, 2], x=[1, -1, 1, -1]),
    )
    assert result.rows == [(1,), (2,), (2,)]  # key 2 never came to have a state
    assert result.skipped == [("process_1", 2), ("process_1", 4)]


def test_failure_stops_the_run_in_order():
    def split(row):
        return [(row.x, i) for i in range(row.x)]

    def check(row):
        if (row.x, row.i) == (3, 1):
            raise KeyError("bad")
        return row

    schema = {"x": int, "i": int}
    result = serial(
        lambda p: p.flat_map(split, schema=schema).map(check, schema=schema), table(x=[1, 2, 3, 4])
    )
    assert result.rows == [(1, 0), (2, 0), (2, 1), (3, 0)]
    error = result.error
    assert (error.operator, error.serial, error.row) == ("map_2", 3, {"x": 3, "i": 1})
    assert isinstance(error.__cause__, KeyError)
    assert "KeyError: 'bad'" in str(error)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "expected a tuple, list or dict"),
        ((1,), "expected 2 values"),
        ({"a": 1, "c": 2}, "keys"),
        ((1.0, "x"), "'a' is int8, got float 1.0"),
        ((True, "x"), "'a' is int8, got bool"),
        ((128, "x"), "'a' is int8, 128 is out of range"),
        ((1, b"x"), "'b' is string, got bytes"),
        ((None, "x"), "declared without nulls"),
    ],
)
def test_map_results_must_fit(result, words):
    schema = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.string())])
    failed = serial(lambda p: p.map(lambda row: result, schema=schema), table(x=[1]))
    assert words in str(failed.error)
    good = rows(lambda p: p.map(lambda row: {"b": None, "a": np.int64(row.x)}, schema=schema), table(x=[1]))
    assert good == [(1, None)]


def test_rows_have_python_values():
    when = dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc)  # noqa: UP017
    data = table(t=pa.array([when], pa.timestamp("us", "UTC")), d=[dt.date(2020, 1, 1)], l=[[1, None]])
    seen = []
    out = rows(lambda p: p.map(lambda row: seen.append(row) or row, schema=data.schema), data)
    assert out == [(when, dt.date(2020, 1, 1), [1, None])]
    assert seen[0] == out[0]
    assert seen[0].t == when
    compiled = serial(
        lambda p: p.flat_map(
            lambda row, emit: emit(row.t + 1), schema={"t": data.schema.types[0]}, compiled=True
        ),
        data,
    )
    assert compiled.rows == [(when + dt.timedelta(microseconds=1),)]


def test_other_functions():
    data = table(x=pa.array([3, 0, None], I))
    assert rows(lambda p: p.filter(lambda row: row.x and row.x > 1 if row.x else None), data) == [(3,)]
    assert "expected a bool" in str(serial(lambda p: p.filter(lambda row: row.x), data).error)
    assert "iterable" in str(serial(lambda p: p.flat_map(lambda row: None, schema={"a": int}), data).error)
    double = {"y": pa.int64()}
    numpy = serial(lambda p: p.map_batches(lambda c: {"y": c["x"] * 2}, schema=double), data)
    assert numpy.rows == [(6,), (0,)]
    assert "NumPy has no nulls" in str(numpy.error)

    def arrow(batch):
        return pa.record_batch({"y": pc.multiply(batch["x"], 2)})

    assert rows(lambda p: p.map_batches(arrow, schema=double, format="arrow"), data) == [(6,), (0,), (None,)]
    wrong = serial(lambda p: p.map_batches(lambda c: {"y": c["x"] / 2}, schema=double), data)
    assert "'y' is int64, got an array of double" in str(wrong.error)
    many = lambda row, emit: [emit(i) for i in range(row.x)] and None  # noqa: E731
    limited = serial(lambda p: p.flat_map(many, schema={"i": int}, compiled=True, fan_out=2), data)
    assert "fan_out" in str(limited.error)


# ----------------------------------------------------------------------------- expressions, sources


def test_expressions_in_a_chain():
    data = table(a=pa.array([1, None, 3], I), b=pa.array([0, 5, 0], I))
    keep = rows(
        lambda p: p.filter((od.col("a") > 0) & (od.col("b") >= 0)).with_columns(c=od.col("a") * 10), data
    )
    assert keep == [(1, 0, 10), (3, 0, 30)]
    failed = serial(lambda p: p.select(q=od.col("a") // od.col("b"), on_error="skip"), data)
    assert failed.rows == [(None,)]
    assert failed.skipped == [("select_1", 1), ("select_1", 3)]


def test_sources():
    data = table(k=["a", "b"], n=[1, 2])
    pipeline = od.Pipeline(data.schema).select("n", "k")
    encoded = data.set_column(0, "k", data["k"].dictionary_encode()).select(["n", "k"])
    for source in (
        data,
        data.to_batches()[0],
        data.to_batches(),
        iter(data.to_batches()),
        data.to_reader(),
        encoded,
    ):
        assert run_serial(pipeline, source).rows == [(1, "a"), (2, "b")]
    for bad, words in [
        (data.select(["n"]), "no column 'k'"),
        (data.rename_columns(["n", "k"]), "expects"),
        (5, "int"),
    ]:
        with pytest.raises(od.SourceError, match=words):
            run_serial(pipeline, bad)


def test_one_of_several_outputs_is_that_of_run():
    rows = pa.table({"x": [1, 5, 2]})
    small, large = od.Pipeline(rows.schema).branch(od.col("x") < 3)
    outputs = {"small": small, "large": large}
    serial, found = run_serial(small, rows, outputs=outputs), small.run(rows, outputs=outputs)
    assert [serial[name].equals(found[name]) for name in outputs] == [True, True]
    with pytest.raises(KeyError, match="there is no output 'other'; there are 'small', 'large'"):
        serial["other"]
    with pytest.raises(KeyError, match="there are no names"):
        run_serial(small, rows)["small"]


def test_options_have_the_names_that_a_run_gives_them():
    data = table(ts=[1, 2, 11, 12], v=[1, 1, 1, 1])
    made = od.Pipeline(data).key_by("v").window(od.tumbling(5), time="ts").aggregate(n=od.count())
    every = od.every("ts", 10)
    named = run_serial(made, data, punctuate=every)
    assert named.table.equals(made.run(data, punctuate=every).table)
    counted = od.Pipeline(data).key_by("v").count()
    final = run_serial(counted, data, emit="final")
    assert final.table.equals(counted.run(data, emit="final").table)
    assert final.rows == [(1, 4)]
    assert run_serial(counted, data, emit=None).rows == run_serial(counted, data).rows != final.rows
    with pytest.raises(od.PlanError, match="run_serial: emit must be 'updates' or 'final', got 'last'"):
        run_serial(counted, data, emit="last")
    suspended = run_serial(counted, data, end="suspend")
    with pytest.raises(od.PlanError, match="after= goes on from a run that emits updates"):
        run_serial(counted, data, after=suspended, emit="final")


ONE = pa.table({"ts": [1, 5]})
TWO = {"a": ONE, "b": pa.table({"ts": [3, 5]})}
MERGED = od.union(*(od.Pipeline(ONE.schema, source=name) for name in TWO))


@pytest.mark.parametrize(
    ("pipeline", "data", "options", "text"),
    [
        (
            od.Pipeline(ONE),
            ONE,
            {"punctuate": "1m"},
            r"punctuate must be od\.every\(column, period\), got '1m'",
        ),
        (od.Pipeline(ONE), ONE, {"end": "suspnd"}, "end must be .*suspend.* got 'suspnd'"),
        (od.Pipeline(ONE), ONE, {"shed_log": 5}, r"shed_log is the table `result\.shed\.log`.*got int"),
        (od.Pipeline(ONE), ONE, {"shed_partition": "x"}, "shed_partition must be a whole number from 0"),
        (od.Pipeline(ONE), ONE, {"merge_by": "ts"}, "merge_by is for a pipeline of several sources"),
        (od.Pipeline(ONE), ONE, {"merge_log": ONE}, "merge_log is for a pipeline of several sources"),
        (od.Pipeline(ONE), ONE, {"outputs": {}}, "outputs must be a mapping of names to pipelines, got {}"),
        (od.Pipeline(ONE), ONE, {"outputs": {"x": 1}}, "mapping of names to pipelines; got 'x': 1"),
        (MERGED, TWO, {}, "sources 'a', 'b': say which column merges them"),
        (MERGED, TWO, {"merge_by": ["ts"]}, r"merge_by is the name of a column.*got \['ts'\]"),
        (MERGED, TWO, {"merge_by": 5}, "merge_by is the name of a column.*got 5"),
        (MERGED, TWO, {"merge_by": "ts", "merge_log": 5}, "merge_log must be the table .* got int"),
        (
            MERGED,
            TWO,
            {"merge_by": "ts", "merge_log": pa.table({"source": ["x"], "rows": [1]})},
            "merge_log is of other sources: it has 'x'",
        ),
        (
            MERGED,
            TWO,
            {"merge_by": "ts", "merge_log": pa.table({"source": ["a"], "rows": [3]})},
            "more rows of source 'a' than the source",
        ),
        (
            MERGED,
            TWO | {"b": pa.table({"ts": pa.array([1, None], I)})},
            {"merge_by": "ts"},
            "source 'b': 'ts', by which it is merged, is null in row 2",
        ),
    ],
)
def test_what_run_refuses_is_refused_here(pipeline, data, options, text):
    """A misspelt `end` was "finish"; others were an AttributeError, an IndexError, or not looked at."""
    for call in (pipeline.run, lambda *args, **given: run_serial(pipeline, *args, **given)):
        with pytest.raises((od.PlanError, od.SourceError), match=text):
            call(data, **options)


@pytest.mark.parametrize("after", [True, 5, {}, "x"])
def test_after_takes_a_suspended_result(after):
    with pytest.raises(od.PlanError, match="after= takes the result of a run with end='suspend', once"):
        run_serial(od.Pipeline(ONE), ONE, after=after)
