"""filter, by an expression and by a function of the user's, on their kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from unit.function_check import DATA, SOURCE, check_serial, door
from unit.kernel_check import QUICK, ROWS, check, pipeline
from unit.kernel_expressions import BOOLEANS

import ordstream as od


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@settings(deadline=None)
@given(rows=ROWS, predicate=BOOLEANS)
def test_filter_equals_the_reference(on_error, rows, predicate):
    check(pipeline().filter(predicate, on_error=on_error), rows)


@QUICK
@given(rows=ROWS)
def test_uint64_loads_are_checked(rows):
    check(pipeline().filter(od.col("u") > 2, on_error="skip"), rows)


@pytest.mark.parametrize("answer", [True, False, None, np.True_, np.False_])
def test_filter_answers(answer):
    check_serial(od.Pipeline(SOURCE).filter(lambda row: answer), DATA)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("wrong", [1, "yes", []])
def test_filter(wrong, on_error):
    def keep(row):
        return wrong if row.k == 2 else row.k != 4

    rows = check_serial(od.Pipeline(SOURCE).filter(keep, on_error=on_error), DATA)
    assert rows[0] == (1, 10, "a")


def test_a_function_and_no_rows():
    assert door(od.Pipeline(SOURCE).filter(lambda row: True)).apply(DATA, select=[])[0] == []
