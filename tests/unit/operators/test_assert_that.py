"""assert_that: rows as they are, or an error at one that is not as asserted."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

DATA = pa.table({"x": pa.array([1, 2, None, -4, 5])})


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_an_untrue_row_ends_the_run_with_the_message(rows):
    pipeline = od.Pipeline(DATA.schema).assert_that(od.col("x") > 0, "x must be positive", name="check")
    seen = []
    with pytest.raises(
        od.OperatorError, match=r"'check' failed at serial 3.*\n?.*x must be positive"
    ) as error:
        seen.extend(pipeline.stream(DATA, chunk_rows=rows))
    assert isinstance(error.value.__cause__, ValueError)
    assert sum(len(batch) for batch in seen) == 2
    assert "x must be positive" in str(run_serial(pipeline, DATA).error)


def test_untrue_and_null_rows_are_skipped_and_counted_with_the_message():
    pipeline = od.Pipeline(DATA.schema).assert_that(od.col("x") > 0, "ä" * 200, on_error="skip")
    expected = run_serial(pipeline, DATA)
    for rows in (1, 64):
        result = pipeline.run(DATA, chunk_rows=rows)
        assert result.table.equals(expected.table)
        (figures,) = result.report.operators
        assert figures.skipped == len(expected.skipped) == 2
        assert figures.first_skipped.serial == 3
        assert figures.first_skipped.reason.startswith("ValueError: ää")


def test_a_null_is_not_true_whatever_lies_under_it():
    pipeline = od.Pipeline(DATA.schema).assert_that(od.col("x") < 100, on_error="skip")
    assert pipeline.run(DATA).table["x"].to_pylist() == [1, 2, -4, 5]


def test_an_error_of_the_condition_is_its_own():
    pipeline = od.Pipeline(DATA.schema).assert_that(1 // (od.col("x") - 2) < 9)
    with pytest.raises(od.OperatorError, match="serial 2") as error:
        pipeline.run(DATA)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(od.SchemaError, match="a boolean expression is needed"):
        od.Pipeline(DATA.schema).assert_that(od.col("x") + 1)
