"""select and with_columns on their kernel: expressions, casts, a condition."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from unit.kernel_check import QUICK, ROWS, check, pipeline
from unit.kernel_expressions import BOOLEANS, INTEGERS, REALS
from unit.operators.test_aggregate import CONDITIONS

import ordstream as od
from ordstream.reference.run_serial import run_serial

FEW = settings(max_examples=20, deadline=None)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(deadline=None)
@given(rows=ROWS, integer=INTEGERS, real=REALS, boolean=BOOLEANS)
def test_project_equals_the_reference(on_error, rows, integer, real, boolean):
    check(pipeline().select("s", "l", "u", a=integer, b=real, c=boolean, on_error=on_error), rows)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    "type_",
    [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32()],
    ids=str,
)
@QUICK
@given(rows=ROWS)
@pytest.mark.thin(5)
def test_casts_are_range_checked(type_, on_error, rows):
    source = od.col("x") if type_ == pa.float32() else od.col("i")
    check(
        pipeline().select("i", y=source.cast(type_), z=od.lit(-1).cast(pa.int64()), on_error=on_error), rows
    )


@QUICK
@given(rows=ROWS)
def test_uint64_loads_are_checked(rows):
    check(pipeline().select(v=od.col("u") + 1), rows)


@QUICK
@given(rows=ROWS)
def test_strings_pass_through_expressions(rows):
    choice = (
        od.when(od.col("b"), od.col("s")).when(od.col("s").is_null(), od.lit("none")).otherwise(od.lit("no"))
    )
    check(pipeline().select(t=choice, n=od.col("s").coalesce("?").length()), rows)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("where", CONDITIONS)
@FEW
@given(rows=ROWS)
def test_select_where(where, on_error, rows):
    columns = {"a": od.col("i") * 2, "b2": 7 % od.col("j"), "c": od.col("x") + 1}
    check(pipeline().select("s", "l", where=CONDITIONS[where], on_error=on_error, **columns), rows)
    check(pipeline().select(where=CONDITIONS[where], on_error=on_error, **columns), rows)


def test_select_where_sees_the_input_and_spares_the_other_rows():
    data = pa.table({"x": [0, 5, None]})
    built = od.Pipeline(data.schema).select(x=10 // od.col("x"), where=od.col("x") != 0)
    assert run_serial(built, data).rows == [(2,)]
    assert "where (x != 0)" in built.explain()
    with pytest.raises(od.SchemaError, match="a boolean expression is needed"):
        od.Pipeline(data.schema).select("x", where=od.col("x"))
