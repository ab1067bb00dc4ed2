"""isin: as many members as there are, at the price of one search."""

from __future__ import annotations

import decimal
import math
import random

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions import lowering
from ordstream.testing import run_serial

D = decimal.Decimal
FLOATS = [0.0, -0.0, 0.1, -0.1, math.nan, math.inf, -math.inf, 5e-324, 2.0**53, 2.0**63, None, 3.0]
WIDE = [D(0), D("1.25"), D(-7), D(2**63), D(2**63 - 1), D(-(2**63)), D(-(2**63) - 1), D(10**25), None]


def instructions(pipeline):
    """How many instructions its expression has."""
    return len(pipeline.plan.operators[-1].columns[0])


def same(pipeline, table):
    serial = run_serial(pipeline, table)
    assert serial.error is None
    for options in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 64}, {}):
        assert pipeline.run(table, **options).table.equals(serial.table)
    return serial.table.column(0).to_pylist()


@pytest.mark.parametrize("type_", [pa.float64(), pa.float32()])
def test_floats_equal_as_floats_do(type_):
    values = [*FLOATS, *(random.Random(1).choice(FLOATS) for _ in range(500))]
    table = pa.table({"x": pa.array(values, type_)})
    held = table.column(0).to_pylist()
    for members in ([0.0], [-0.0], [math.nan], [], [3], [math.inf, math.nan, 0.1], [D("0.1"), 3, D("1.5")],
                    [float(i) for i in range(100)], [2**53, -math.inf, 5e-324]):  # fmt: skip
        found = same(od.Pipeline(table.schema).select(a=od.col("x").isin(members)), table)
        numbers = [float(one) for one in members]
        assert found == [None if one is None else any(one == number for number in numbers) for one in held]


def test_wide_decimals():
    values = [*WIDE, *(random.Random(2).choice(WIDE) for _ in range(500))]
    for type_ in (pa.decimal128(38, 2), pa.decimal128(30, 0)):
        kept = [one for one in values if type_.scale or one != D("1.25")]
        table = pa.table({"x": pa.array(kept, type_)})
        for members in ([0], [], [D("1.25"), 5], [2**63, -(2**63)], [D(2**63 - 1), -(2**63) - 1, 10**25],
                        list(range(50)), [D("0.001")]):  # fmt: skip
            found = same(od.Pipeline(table.schema).select(a=od.col("x").isin(members)), table)
            assert found == [None if one is None else one in members for one in kept]


@pytest.mark.parametrize(
    "type_", [pa.float64(), pa.float32(), pa.decimal128(30, 2), pa.decimal128(9, 2), pa.int64()]
)
def test_members_are_no_instructions(type_):
    """Each member of a float was compared on its own, and what it is compared with computed again: 84 us a
    row with 100,000 members.
    """
    pipeline = od.Pipeline(pa.schema({"x": type_}))
    few, many = (pipeline.select(a=(od.col("x") + 1).isin(list(range(n)))) for n in (2, 1_000))
    assert instructions(few) == instructions(many) < 20


@pytest.mark.parametrize("made", [list, np.array, pa.array], ids=["list", "numpy", "arrow"])
@pytest.mark.parametrize("column", ["n", "small", "s"])
def test_plain_members_are_not_looked_at_one_by_one(column, made, monkeypatch):
    """A list of 100,000 ids took 3.3 s to plan, 33 us each."""
    looked_at = []
    monkeypatch.setattr(lowering, "type_of_constant", lambda value: looked_at.append(value) or pa.int64())
    table = pa.table({"n": [1, 2, None], "small": pa.array([2, None, 3], pa.int8()), "s": ["2", "x", None]})
    members = made([str(i) for i in range(2, 5000)] if column == "s" else list(range(2, 5000)))
    pipeline = od.Pipeline(table.schema).select(a=od.col(column).isin(members))
    assert not looked_at
    expected = {"n": [False, True, None], "small": [True, None, True], "s": [True, False, None]}
    assert same(pipeline, table) == expected[column]
