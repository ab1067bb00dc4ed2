"""Blocks of rows, folded one aggregation after the other, and keys that are found without a hash: what comes
out is that of one row at a time.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordstream as od
from ordstream.errors import OperatorError
from ordstream.testing import run_serial

NUMBERS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
    pa.int32(): st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 5),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.integers(0, 5),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, 1.5]),
    pa.bool_(): st.booleans(),
    pa.timestamp("us"): st.integers(-(2**40), 2**40),
}
FUNCTIONS = ("sum", "mean", "min", "max", "first", "last", "var", "std")
#: Keys that a map has an index for, that it has none for, and that begin as one and end as the other.
KEYS = {
    "few": st.integers(0, 3),
    "near": st.integers(0, 700),
    "far": st.integers(-(2**63), 2**63 - 1),
    "both": st.sampled_from([0, 1, 4095, 4096, 5000, 70_000, -1, 2**63 - 1, -(2**63)]),
}


def aggregations(draw, type_):
    """Functions that take the type, one of them where some rows count."""
    known = [name for name in FUNCTIONS if not (pa.types.is_boolean(type_) or pa.types.is_temporal(type_))]
    names = draw(st.lists(st.sampled_from(known or ["min", "max", "first", "last"]), min_size=1, max_size=4))
    made = {f"{name}_{i}": getattr(od, name)("x") for i, name in enumerate(names)}
    return made | ({"n": od.count()} if draw(st.booleans()) else {})


@st.composite
def runs(draw):
    type_ = draw(st.sampled_from(list(NUMBERS)))
    keys = KEYS[draw(st.sampled_from(list(KEYS)))]
    values = NUMBERS[type_] | st.none() if draw(st.booleans()) else NUMBERS[type_]
    if draw(st.integers(0, 9)) == 0:
        keys = keys | st.none()
    rows = draw(st.lists(st.tuples(keys, values), min_size=1, max_size=200))
    schema = pa.schema([("k", pa.int64()), ("x", type_)])
    table = pa.table([[k for k, _ in rows], pa.array([x for _, x in rows], type_)], schema=schema)
    made, keyed = aggregations(draw, type_), od.Pipeline(schema).key_by("k")
    how = draw(st.sampled_from(["scan", "aggregate", "rows"]))
    if how == "rows":
        window = od.rows(draw(st.integers(1, 70)))
        pipeline = keyed.window(window).aggregate(**made)
    else:
        pipeline = getattr(keyed, how)(**made, on_error=draw(st.sampled_from(["fail", "skip"])))
    options = {
        "workers": draw(st.sampled_from([0, 1, 2])),
        "chunk_rows": draw(st.sampled_from([1, 7, 64, 1000])),
        "buckets": draw(st.sampled_from([1, 5])),
    }
    return pipeline, table, options


@settings(deadline=None)
@given(runs())
def test_any_fold_is_that_of_one_row_at_a_time(case):
    pipeline, table, options = case
    expected = run_serial(pipeline, table)
    if expected.error is not None:
        with pytest.raises(OperatorError) as raised:
            pipeline.run(table, **options)
        assert (raised.value.operator, raised.value.serial) == (
            expected.error.operator,
            expected.error.serial,
        )
        return
    found = pipeline.run(table, **options).table
    assert repr(found.to_pylist()) == repr(expected.table.to_pylist())  # NaN is not itself; -0.0 is not 0.0


@pytest.mark.parametrize("options", [{"workers": 0, "buckets": 1}, {"workers": 2, "buckets": 5}], ids=str)
@pytest.mark.parametrize("step", [1, 7, 9, 1000], ids=lambda step: f"every {step}")
def test_keys_that_are_counted_up(step, options):
    """Ever larger numbers; each comes again much later; then ones that no index takes."""
    keys = [step * (i if i % 3 else i // 2) for i in range(9_000)] + [2**40 + i % 50 for i in range(30_000)]
    keys += [step * i for i in range(9_000)]
    table = pa.table({"k": pa.array(keys, pa.int64()), "x": pa.array(range(len(keys)), pa.int64())})
    pipeline = od.Pipeline(table.schema).key_by("k").scan(n=od.count(), s=od.sum("x"))
    seen: dict[int, tuple[int, int]] = {}
    expected = []
    for x, key in enumerate(keys):
        n, s = seen.get(key, (0, 0))
        seen[key] = n + 1, s + x
        expected.append(seen[key])
    found = pipeline.run(table, **options).table
    assert list(zip(found["n"].to_pylist(), found["s"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("at", [5, 31, 63, 64, 90])
@pytest.mark.parametrize("first", ["mean", "sum"])
@pytest.mark.parametrize("how", ["scan", "aggregate"])
def test_a_block_whose_sum_overflows_is_folded_row_by_row(how, first, at):
    """What was folded of it already is taken off again: other sums of the row, and those in front."""
    rows = 100
    big = [i % 5 for i in range(rows)]
    big[at] = 2**63 - 1
    big[at + 3] = 2**63 - 1
    fields = {"k": [i % 2 for i in range(rows)], "x": list(range(rows)), "y": big, "z": [1.5] * rows}
    table = pa.table(fields)
    keyed = od.Pipeline(table.schema).key_by("k")
    failing = (
        {"b": od.mean("y"), "c": od.sum("y")} if first == "mean" else {"c": od.sum("y"), "b": od.mean("y")}
    )
    sums = {"a": od.sum("x"), **failing, "d": od.sum("z"), "n": od.count()}
    pipeline = getattr(keyed, how)(**sums, on_error="skip")
    expected = run_serial(pipeline, table)
    assert len(expected.skipped) == 2
    found = pipeline.run(table, workers=0, chunk_rows=1000, buckets=1)
    assert found.table.to_pylist() == expected.table.to_pylist()
