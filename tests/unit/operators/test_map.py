"""map on its kernel: results, wrong results, failures, references."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pyarrow as pa
import pytest
from unit.function_check import DATA, I64, SOURCE, check_serial, door

import ordstream as od
from ordstream.testing import run_serial


def double(row):
    return row.k, None if row.x is None else row.x * 2, row.s


def picky(row):
    if row.k is None:
        raise ValueError("no key")
    return {"k": row.k, "x": row.x, "s": row.s}


def test_map():
    assert check_serial(od.Pipeline(SOURCE).map(double, schema=SOURCE), DATA)[1] == (2, -6, None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_map_failure(on_error):
    rows = check_serial(od.Pipeline(SOURCE).map(picky, schema=SOURCE, on_error=on_error), DATA)
    assert len(rows) == (2 if on_error == "fail" else 4)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("result", [None, 3, (1,), (1.5, 1, "a"), (1, 2, 3), {"k": 1}, [1, 2, "x", 4]])
def test_map_wrong_result(result, on_error):
    def wrong(row):
        return result if row.k == 2 else (row.k, row.x, row.s)

    check_serial(od.Pipeline(SOURCE).map(wrong, schema=SOURCE, on_error=on_error), DATA)


def test_row_is_a_named_tuple():
    seen = []
    pipeline = od.Pipeline(SOURCE).map(lambda row: seen.append(row) or row, schema=SOURCE)
    door(pipeline).apply(DATA)
    assert seen[0] == (1, 10, "a")
    assert seen[0]._asdict() == {"k": 1, "x": 10, "s": "a"}
    with pytest.raises(AttributeError, match="no column 'y'"):
        _ = seen[0].y


def test_selection():
    rows, origins = door(od.Pipeline(SOURCE).map(double, schema=SOURCE)).apply(DATA, select=[4, 1])
    assert rows == [(5, 14, "e"), (2, -6, None)]
    assert origins == [4, 1]


def test_empty():
    assert door(od.Pipeline(SOURCE).map(double, schema=SOURCE)).apply(DATA, select=[])[0] == []


def test_unreadable_row_fails_alone():
    """A timestamp that datetime cannot hold is a failure of its row only."""
    schema = pa.schema({"t": pa.timestamp("s")})
    data = pa.record_batch([pa.array([0, 2**60, 60], I64).cast(pa.timestamp("s"))], schema=schema)
    kernel = door(od.Pipeline(schema).map(lambda row: (row.t,), schema=schema, on_error="skip"))
    _, origins = kernel.apply(data)
    assert origins == [0, 2]
    assert kernel.skipped == 1


def test_interrupt_is_never_skipped():
    def interrupted(row):
        if row.k == 2:
            raise KeyboardInterrupt
        return tuple(row)

    kernel = door(od.Pipeline(SOURCE).map(interrupted, schema=SOURCE, on_error="skip"))
    assert kernel.apply(DATA)[0] == [(1, 10, "a")]
    assert isinstance(kernel.failure[3], KeyboardInterrupt)


def test_exception_whose_text_fails():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def fail(row):
        raise Odd

    kernel = door(od.Pipeline(SOURCE).map(fail, schema=SOURCE))
    kernel.apply(DATA)
    assert (kernel.failure[2], type(kernel.failure[3])) == ("Odd", Odd)


def test_references_are_dropped():
    class Token(str):
        pass

    def fail(row):
        raise ValueError(token)

    token = Token("x")
    kernel = door(od.Pipeline(SOURCE).map(fail, schema=SOURCE))
    before = sys.getrefcount(token)
    for _ in range(20):
        kernel.apply(DATA)
    kernel.apply(DATA, select=[])
    gc.collect()
    assert sys.getrefcount(token) <= before + 1


def test_workers():
    bound = 1 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
    assert door(od.Pipeline(SOURCE).map(lambda row: row, schema=SOURCE)).max_workers == bound


@pytest.mark.parametrize(
    ("type_", "count"),
    [
        (pa.timestamp("us"), 2**63 - 1),
        (pa.timestamp("us", "Asia/Tokyo"), 253_402_300_799_000_000),  # the last second of 9999, in UTC
        (pa.timestamp("s"), -(10**12)),
        (pa.date32(), 10**7),
        (pa.date64(), 864 * 10**12),
        (pa.duration("s"), 2**62),
    ],
    ids=str,
)
def test_a_time_beyond_pythons_says_what_to_do(type_, count):
    """It said "date value out of range", at a line of pyarrow's."""
    data = pa.table({"k": [1, 2], "x": pa.array([0, count], type_)})
    base = od.Pipeline(data.schema)
    pipeline = base.map(lambda row: (row.x,), schema={"x": type_})
    with pytest.raises(od.OperatorError) as run:
        pipeline.run(data, workers=0)
    assert str(run.value) == str(run_serial(pipeline, data).error)
    assert f"Python has no object for a value of {type_}" in str(run.value)
    assert (run.value.serial, run.value.place) == (2, "")
    counts = base.with_columns(x=od.col("x").cast(int)).map(lambda row: (row.x,), schema={"x": int})
    assert counts.run(data).table["x"].to_pylist() == [0, count]


def test_an_index_beyond_a_compiled_functions_array_is_an_error():
    """It read whatever lay there."""
    pytest.importorskip("numba")
    table = np.array([10, 20])
    data = pa.table([pa.array([0, 1, -1, 5])], schema=pa.schema([pa.field("i", pa.int64(), False)]))

    def found(row, emit):
        emit(table[row.i])

    pipeline = od.Pipeline(data.schema).map(found, schema={"x": int}, compiled=True)
    assert pipeline.run(data[:3]).table["x"].to_pylist() == [10, 20, 20]
    with pytest.raises(od.OperatorError, match="serial 4: IndexError: index 5 is out of bounds"):
        pipeline.run(data)
