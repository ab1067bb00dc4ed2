"""Second outputs: dead letters with their errors, late rows, and functions that are tried again."""

from __future__ import annotations

import operator
import time
from collections import Counter

import pyarrow as pa
import pytest
from property.compare import exact_rows

import ordstream as od
from ordstream.operators.error_policy import Retried
from ordstream.testing import run_serial

SCHEMA = pa.schema({"k": pa.int64(), "s": pa.string(), "x": pa.list_(pa.int32())})
WAYS = (
    {"workers": 0, "chunk_rows": 1},
    {"workers": 1, "chunk_rows": 7},
    {"workers": 2, "chunk_rows": 2, "scheduler": "qst"},
    {"workers": 2},
)


def rows(n, bad=()):
    """Numbered rows; the text of those in `bad` is no number."""
    texts = [f"no{i}" if i in bad else str(i) for i in range(n)]
    return pa.table([list(range(n)), texts, [[i, i + 1] for i in range(n)]], schema=SCHEMA)


def drain(stream, found):
    for name, batch in stream:
        found[name].append(batch)


def tables(pipeline, data, outputs, **options):
    """The tables of a run with several outputs, with tags, and its report."""
    found = {name: [] for name in outputs}
    with pipeline.stream(data, outputs=outputs, tags=True, **options) as stream:
        drain(stream, found)
        schemas = stream.schemas
    report = stream.report
    assert report.leaked_chunks == 0
    return {name: pa.Table.from_batches(b, schema=schemas[name]) for name, b in found.items()}, report


def agreed(pipeline, data, outputs, ways=WAYS):
    """What `run_serial` says, and every run of the core after it; the outputs without tags, and a report."""
    expected = run_serial(pipeline, data, outputs=outputs)
    assert expected.error is None
    report = None
    for way in ways:
        found, report = tables(pipeline, data, outputs, **way)
        for name, table in expected.outputs.items():
            assert exact_rows(found[name].to_batches(), table.schema) == exact_rows(
                table.to_batches(), table.schema
            ), (name, way)
        counted = {one.name: one.rejected for one in report.operators if one.rejected}
        assert counted == Counter(name for name, _ in expected.rejected)
        assert {one.name: one.adjusted for one in report.operators if one.adjusted} == expected.adjusted
    kept = {name: table.drop_columns(["_serial", "_index"]) for name, table in expected.outputs.items()}
    return kept, report


def number(row):
    return {"n": int(row.s)}


def is_even(row):
    return int(row.s) % 2 == 0


def up_to(row):
    for i in range(row.k % 4):
        yield (i,)
    int(row.s)


def shouts(arrays):
    return {"n": [int(s) for s in arrays["s"]]}


def shouts_arrow(batch):
    return pa.RecordBatch.from_pydict({"n": pa.array([int(s) for s in batch["s"].to_pylist()], pa.int64())})


def total(row, state, emit):
    state.n += 1
    emit(state.n)
    int(row.s)


def odd_key(p):
    return p.with_columns(key=od.col("k") % 5).key_by("key")


N = {"n": pa.int64()}
POLICY = {"on_error": "dead_letter", "name": "f"}
OPERATORS = {
    "map": lambda p: p.map(number, schema=N, **POLICY),
    "filter": lambda p: p.filter(is_even, **POLICY),
    "flat_map": lambda p: p.flat_map(up_to, schema=N, **POLICY),
    "inspect": lambda p: p.inspect(number, **POLICY),
    "map_batches": lambda p: p.map_batches(shouts, schema=N, **POLICY),
    "map_batches, arrow": lambda p: p.map_batches(shouts_arrow, schema=N, format="arrow", **POLICY),
    "process": lambda p: p.process(total, schema=N, state=N, **POLICY),
    "process by key": lambda p: odd_key(p).process(total, schema=N, state=N, **POLICY),
}


@pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("bad", [(), (0, 3, 4, 17, 39), range(40)], ids=["none", "some", "all"])
def test_a_row_that_fails_is_in_the_second_output(make, bad):
    pipeline = make(od.Pipeline(SCHEMA))
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    found, report = agreed(outputs["good"], rows(40, bad), outputs)
    letters = found["bad"]
    assert letters["k"].to_pylist() == list(bad)
    assert letters["x"].to_pylist() == [[i, i + 1] for i in bad]
    assert letters["error_serial"].to_pylist() == [i + 1 for i in bad]
    assert set(letters["error_operator"].to_pylist()) <= {"f"}
    assert letters["error_type"].to_pylist() == ["ValueError"] * len(bad)
    assert letters["error_text"].to_pylist() == [
        f"invalid literal for int() with base 10: 'no{i}'" for i in bad
    ]
    assert report.skipped == 0
    assert (f"{len(bad)} tuples left 'f' by its second output, of 40 tuples" in str(report)) == bool(bad)


def test_rows_keep_their_place():
    """Behind a flat_map, in several operators, and united with the first output again."""
    rejecting = {"on_error": "dead_letter"}
    spread = od.Pipeline(SCHEMA).flat_map(
        lambda row: [(row.s, i) for i in range(3)], schema={"s": str, "i": int}, name="spread", **rejecting
    )
    parsed = spread.map(
        lambda row: (int(row.s) // (row.i - 1), row.i),
        schema={"n": int, "i": int}, name="parse", **rejecting,
    )  # fmt: skip
    bad = parsed.side_output("parse").select(n=od.lit(-1), i="i")
    both = od.union(bad, parsed)
    outputs = {"all": both, "errors": parsed.side_output("parse"), "spread": parsed.side_output("spread")}
    found, _ = agreed(both, rows(9, bad=(2, 5)), outputs)
    assert found["all"]["i"].to_pylist() == [0, 1, 2] * 9
    assert found["errors"]["error_type"].to_pylist()[:4] == ["ZeroDivisionError"] * 2 + ["ValueError"] * 2
    assert found["spread"].num_rows == 0


def test_the_second_output_alone():
    pipeline = OPERATORS["process by key"](od.Pipeline(SCHEMA)).side_output("f")
    for way in WAYS:
        found = pipeline.run(rows(20, bad=(3, 9)), **way).table
        assert found["k"].to_pylist() == [3, 9]
    assert run_serial(pipeline, rows(20, bad=(3, 9))).table == found
    counted = pipeline.key_by("error_type").count("n", emit="final")
    assert counted.run(rows(20, bad=(3, 9))).table.to_pylist() == [{"error_type": "ValueError", "n": 2}]


def test_a_state_is_as_before_the_row():
    pipeline = OPERATORS["process"](od.Pipeline(SCHEMA))
    found, _ = agreed(pipeline, rows(6, bad=(0, 3)), {"good": pipeline, "bad": pipeline.side_output()})
    assert found["good"]["n"].to_pylist() == [1, 2, 3, 4]


def test_a_step_of_a_flush_is_no_row():
    def last(key, state, emit):
        raise ValueError("at the end")

    pipeline = od.Pipeline(SCHEMA).process(total, schema=N, state=N, on_flush=last, **POLICY)
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    assert "at the end" in run_serial(pipeline, rows(3, bad=(1,)), outputs=outputs).error.reason
    with pytest.raises(od.OperatorError, match=r"'f' failed at serial 3: ValueError: at the end"):
        pipeline.run(rows(3, bad=(1,)), outputs=outputs)


def test_another_operator_that_fails_cuts_both_outputs():
    pipeline = OPERATORS["map"](od.Pipeline(SCHEMA)).map(lambda row: (1 // (row.n - 6),), schema=N, name="g")
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    data = rows(30, bad=(2, 4, 8, 9))
    expected = run_serial(pipeline, data, outputs=outputs)
    assert (expected.error.operator, expected.error.serial) == ("g", 7)
    assert expected.outputs["bad"]["k"].to_pylist() == [2, 4]
    for way in WAYS:
        found = {"good": [], "bad": []}
        with pipeline.stream(data, outputs=outputs, tags=True, **way) as stream:
            with pytest.raises(od.OperatorError, match="'g' failed at serial 7"):
                drain(stream, found)
            for name, table in expected.outputs.items():
                assert pa.Table.from_batches(found[name], schema=stream.schemas[name]) == table, way


def test_texts_of_errors():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    def fails(row):
        raise (Silent("x"), ValueError("é" * 2000), ValueError("\ud800"), ValueError(""))[row.k]

    pipeline = od.Pipeline(SCHEMA).map(fails, schema=N, **POLICY)
    found, _ = agreed(pipeline, rows(4), {"good": pipeline, "bad": pipeline.side_output()})
    assert found["bad"]["error_type"].to_pylist() == ["Silent", "ValueError", "ValueError", "ValueError"]
    assert found["bad"]["error_text"].to_pylist() == ["", "é" * 1000 + "...", "?", ""]


def test_a_letter_goes_through_a_function_again_without_its_error():
    def fails(row):
        raise ValueError(row.k)

    def letters(pipeline, name):
        return pipeline.map(fails, schema=pipeline.schema, name=name, on_error="dead_letter").side_output(
            name
        )

    first = letters(od.Pipeline(SCHEMA), "f")
    advice = "g: a dead letter adds a column 'error_operator', and there is one of that name: rename it"
    with pytest.raises(od.SchemaError, match=advice):
        letters(first, "g")
    again = letters(first.select(*SCHEMA.names, first_error="error_text"), "g")
    found, _ = agreed(again, rows(3), {"bad": again})
    assert (
        found["bad"]["first_error"].to_pylist() == found["bad"]["error_text"].to_pylist() == ["0", "1", "2"]
    )


def test_what_waits_is_bounded():
    """Rows with long texts, all of which fail: as other output, they stop the source at the cap."""
    data = pa.table([range(3000), ["no" * 300] * 3000, [[1]] * 3000], schema=SCHEMA)

    def first_is_slow(row):
        if row.k == 0:  # what fails behind it can't leave: the source must stop, however fast the reader is
            time.sleep(0.3)
        return number(row)

    pipeline = od.Pipeline(SCHEMA).map(first_is_slow, schema=N, **POLICY)
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    count = 0
    with pipeline.stream(data, outputs=outputs, workers=2, chunk_rows=8, max_bytes=1 << 19) as stream:
        for name, batch in stream:
            assert name == "bad"
            count += len(batch)
    assert count == 3000
    assert stream.report.throttled
    assert stream.report.peak_bytes < 3 << 20  # all letters together: 4 MB


def test_snapshots():
    pipeline = OPERATORS["process by key"](od.Pipeline(SCHEMA))
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    data = rows(30, bad=range(0, 30, 4))
    whole = pipeline.run(data, outputs=outputs)
    first = pipeline.run(data.slice(0, 13), outputs=outputs, end="suspend")
    second = pipeline.run(data.slice(13), outputs=outputs, restore=first.snapshot)
    for name in outputs:
        assert pa.concat_tables([first[name], second[name]]) == whole[name]


# ---------------------------------------------------------------------------------------- what is refused


def test_what_is_refused():
    p = od.Pipeline(SCHEMA)
    mapped = OPERATORS["map"](p)
    with pytest.raises(od.PlanError, match=r"f: nobody takes its second output.*side_output\('f'\)"):
        mapped.run(rows(1))
    with pytest.raises(od.PlanError, match="nobody takes its second output"):
        mapped.run(rows(1), processes=2)
    with pytest.raises(od.PlanError, match="nobody takes its second output"):
        run_serial(mapped, rows(1))
    with pytest.raises(od.PlanError, match=r"'dead_letter' is for operators that call a Python function"):
        p.filter(od.col("k") > 1, on_error="dead_letter")
    with pytest.raises(od.PlanError, match="without compiled=True"):
        p.map(number, schema=N, compiled=True, on_error="dead_letter")
    with pytest.raises(od.PlanError, match=r"od\.retry is for operators that call a Python function"):
        p.key_by("k").count(on_error=od.retry(2))
    with pytest.raises(od.SchemaError, match="error_text"):
        p.with_columns(error_text="s").map(number, schema=N, on_error="dead_letter")
    with pytest.raises(od.PlanError, match=r"no such operator.*are: 'f'"):
        mapped.side_output("g")
    with pytest.raises(od.PlanError, match=r"no such operator.*are: none"):
        p.side_output()
    two = mapped.map(operator.itemgetter(0), schema=N, name="g", on_error="dead_letter")
    with pytest.raises(od.PlanError, match=r"which operator.*are: 'f', 'g'"):
        two.side_output()
    with pytest.raises(od.PlanError, match="late='side_output', not on_error"):
        p.reorder("k", slack=1, on_error="dead_letter")
    for n in (0, True, 2.0, 1001):
        with pytest.raises(od.PlanError, match="retry: n must be an int"):
            od.retry(n)
    with pytest.raises(od.PlanError, match="retry: then must be"):
        od.retry(1, then="raise")
    with pytest.raises(od.PlanError, match="on_error must be 'fail', 'skip', 'dead_letter' or"):
        p.map(number, schema=N, on_error="dead")


def test_explain_draws_it():
    pipeline = OPERATORS["map"](od.Pipeline(SCHEMA))
    text = od.union(pipeline.select(k="n"), pipeline.side_output().select("k")).explain()
    assert "rejected by f: rows that 'f' could not process" in text
    assert "on error: to the second output" in text
    assert "on error: to the second output" in pipeline.explain()


def test_processes_run_it_in_one_node():
    pipeline = OPERATORS["process by key"](od.Pipeline(SCHEMA))
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    found = pipeline.run(rows(9, bad=(4,)), outputs=outputs, processes=2)
    assert found["bad"]["k"].to_pylist() == [4]
    assert pipeline.side_output().run(rows(9, bad=(4,)), processes=2).table == found["bad"]


# ---------------------------------------------------------------------------------------- retry


def flaky(fails, then=number):
    """A function of a row that fails so often for each row, by `k`, before it does `then`."""
    tries = Counter()

    def fn(row, *more):
        tries[row.k] += 1
        result = then(row, *more)
        if tries[row.k] <= fails(row.k):
            raise OSError(f"try {tries[row.k]}")
        return result

    return fn, tries


@pytest.mark.parametrize("then", ["fail", "skip", "dead_letter"])
def test_a_function_is_tried_again(then):
    fn, tries = flaky(lambda k: k % 4)
    pipeline = od.Pipeline(SCHEMA).map(fn, schema=N, name="f", on_error=od.retry(2, then=then))
    outputs = {"good": pipeline} | ({"bad": pipeline.side_output()} if then == "dead_letter" else {})
    if then == "fail":
        with pytest.raises(od.OperatorError, match="serial 4: OSError: try 3"):
            pipeline.run(rows(8), outputs=outputs, chunk_rows=1)
        assert tries == {0: 1, 1: 2, 2: 3, 3: 3}
        return
    found = pipeline.run(rows(8), outputs=outputs)
    assert found["good"]["n"].to_pylist() == [0, 1, 2, 4, 5, 6]
    assert tries == {k: min(k % 4 + 1, 3) for k in range(8)}
    if then == "dead_letter":
        assert found["bad"]["error_text"].to_pylist() == ["try 3", "try 3"]


def counts(row, state, emit):
    state.n += 1
    state.seen += f" {row.k}"
    emit(state.n)


class Bag:
    def __init__(self):
        self.n, self.seen = 0, ""


@pytest.mark.parametrize("state", ["declared", "object"])
@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize("core", [True, False])
def test_a_try_sees_the_state_of_before(state, key, core):
    fn, tries = flaky(lambda k: k % 4, counts)
    p = od.Pipeline(SCHEMA)
    given = {"state": {"n": int, "seen": str}} if state == "declared" else {"init": Bag}
    pipeline = (odd_key(p) if key else p).process(
        fn, schema=N, name="f", on_error=od.retry(2, then="dead_letter"), **given
    )
    outputs = {"good": pipeline, "bad": pipeline.side_output()}
    if core:
        found = pipeline.run(rows(40), outputs=outputs, workers=2, chunk_rows=4)
    else:
        found = run_serial(pipeline, rows(40), outputs=outputs).outputs
    expected, seen = [], Counter()
    for k in range(40):
        if k % 4 < 3:
            seen[k % 5 if key else 0] += 1
            expected.append(seen[k % 5 if key else 0])
    assert found["good"]["n"].to_pylist() == expected
    assert found["bad"]["k"].to_pylist() == list(range(3, 40, 4))
    assert tries == {k: min(k % 4 + 1, 3) for k in range(40)}


@pytest.mark.parametrize("core", [True, False])
def test_a_try_sees_the_state_of_before_under_fail(core):
    fn, _ = flaky(lambda k: k % 3, counts)
    pipeline = od.Pipeline(SCHEMA).process(fn, schema=N, state={"n": int, "seen": str}, on_error=od.retry(2))
    found = pipeline.run(rows(9)).table if core else run_serial(pipeline, rows(9)).table
    assert found["n"].to_pylist() == list(range(1, 10))


def test_a_generator_is_tried_again():
    fn, _ = flaky(lambda k: k % 3, lambda row: None)

    def twice(row):
        yield (row.k,)
        fn(row)
        yield (row.k,)

    pipeline = od.Pipeline(SCHEMA).flat_map(twice, schema=N, on_error=od.retry(1, then="skip"))
    assert pipeline.run(rows(6)).table["n"].to_pylist() == [0, 0, 1, 1, 3, 3, 4, 4]


def test_a_batch_is_tried_again():
    """Each try has arrays of its own, whatever an earlier one wrote into them."""
    calls = []

    def adds(arrays):
        arrays["k"] += 1
        calls.append(len(arrays["k"]))
        if len(calls) < 3:
            raise OSError
        return {"n": arrays["k"]}

    pipeline = od.Pipeline(SCHEMA).select("k").map_batches(adds, schema=N, on_error=od.retry(2))
    assert pipeline.run(rows(6), workers=0, chunk_rows=6).table["n"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert calls == [6, 6, 6]


def test_a_cancelled_run_is_not_tried_again():
    calls = []

    def fn(_):
        calls.append(1)
        raise od.Cancelled("stopped")

    with pytest.raises(od.Cancelled):
        Retried(fn, 3)(0)
    assert calls == [1]


# ---------------------------------------------------------------------------------------- late rows

TIMES = pa.schema({"ts": pa.int64(), "s": pa.string()})


def at(*times):
    return pa.table([times, [f"{i}" * (i % 7) for i in range(len(times))]], schema=TIMES)


def test_late_rows_are_a_second_output():
    pipeline = od.Pipeline(TIMES).reorder("ts", slack=3, late="side_output", name="in order")
    outputs = {"rows": pipeline, "late": pipeline.side_output()}
    data = at(8, 4, 5, 1, None, 9, 20, 2)
    found, report = agreed(pipeline, data, outputs)
    assert found["rows"]["ts"].to_pylist() == [5, 8, 9, 20]
    assert found["late"] == data.take([1, 3, 4, 7])
    assert "4 tuples left 'in order' by its second output, of 8 tuples; first at serial 2" in str(report)
    both = od.union(pipeline, pipeline.side_output())
    expected = run_serial(both, data)
    assert [row[0] for row in expected.rows] == [4, 5, 1, None, 8, 9, 2, 20]
    for way in WAYS:
        assert both.run(data, **way).table == expected.table


def test_adjusted_rows_are_counted():
    pipeline = od.Pipeline(TIMES).reorder("ts", slack=3, late="adjust", name="in order")
    found, report = agreed(pipeline, at(8, 4, 6, 9, 1), {"rows": pipeline})
    assert found["rows"]["ts"].to_pylist() == [5, 6, 6, 8, 9]
    assert "2 late tuples got a later time in 'in order' (late=\"adjust\"), of 5 tuples" in str(report)
